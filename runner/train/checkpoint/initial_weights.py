"""Initial weights of a run (`checkpoint.load`): from a `.ckpt` file, a checkpoint, or a run directory."""

from pathlib import Path

from runner import nn
from runner.errors import ConfigError, DataError, some
from runner.host.log import LOG
from runner.train.checkpoint import load_checkpoint, load_param_into_net, state

FOLDER = "checkpoints"  # in a run directory


def load(network: nn.Cell, place: str, prefix: str) -> None:
    """Load the weights at `place`, relative to the working directory; `prefix` is that of a run's checkpoints.

    Parameters missing in the checkpoint keep their values, and a warning names them. Raises ConfigError for a
    checkpoint of another network, DataError when it is missing or damaged.
    """
    path = Path(place)
    found = _of_run(path, prefix) if (path / FOLDER).is_dir() else path
    try:
        missing = load_param_into_net(network, load_checkpoint(found))
    except (ConfigError, DataError) as error:
        raise error.add(key="checkpoint.load", value=place) from None
    if missing:
        LOG.warning("%s does not have %s", found, some(missing, 3))


def _of_run(path: Path, prefix: str) -> Path:
    newest, lines = state.newest(path / FOLDER, prefix)
    if newest is None:
        damaged = "\n".join(lines) or None
        rows = {"key": "checkpoint.load", "value": str(path), "damaged": damaged, "prefix": prefix}
        raise DataError("the run has no good checkpoint", **rows)
    return newest.folder

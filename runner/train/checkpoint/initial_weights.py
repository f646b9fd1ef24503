"""Initial weights of a run (`checkpoint.load`): from a `.ckpt` file, a checkpoint, or a run directory."""

from collections.abc import Mapping
from pathlib import Path

from runner import nn
from runner.core.value import Parameter
from runner.errors import ConfigError, DataError, some
from runner.host.log import LOG
from runner.train.checkpoint import load_checkpoint, load_param_into_net, state
from runner.train.checkpoint.parameters import other_network

FOLDER = "checkpoints"  # in a run directory
REPAIR = "the network of the checkpoint, or checkpoint.strict=false to load the parameters that both have"


def load(network: nn.Cell, place: str, prefix: str, strict: bool, loss: nn.Cell | None = None) -> Path:
    """Load the weights at `place`, relative to the working directory; `prefix` is that of a run's checkpoints.

    Returns the file or the folder of the checkpoint. `loss` is a cell whose parameters are loaded where they are found.

    `strict` requires a value for every parameter of the network, and no values of other layers; otherwise missing
    parameters keep their values, and a warning names both. The state of a training (of its optimizer, and counters) may
    always be surplus or missing. Raises ConfigError for a checkpoint of another network, DataError when it is missing
    or damaged.
    """
    path = Path(place)
    found = _of_run(path, prefix) if (path / FOLDER).is_dir() else path
    try:
        parameters = load_checkpoint(found)
        of_loss = {} if loss is None else loss.parameters_dict()
        surplus = [name for name in _surplus(network, parameters) if name not in of_loss]
        present = parameters.keys() | _counters(network)
        missing = [name for name in network.parameters_dict() if name not in present]
        if strict and (missing or surplus):
            raise other_network(network, parameters, missing, surplus).add(repair=REPAIR)
        load_param_into_net(network, parameters)
        if loss is not None and of_loss.keys() & parameters.keys():
            load_param_into_net(loss, parameters)
    except (ConfigError, DataError) as error:
        raise error.add(key="checkpoint.load", value=place) from None
    if missing:
        LOG.warning("%s does not have %s", found, some(missing, 3))
    if surplus:
        LOG.warning("%s has %s, which the network does not have", found, some(surplus, 3))
    return found


def _surplus(network: nn.Cell, parameters: Mapping[str, Parameter]) -> list[str]:
    """The names of a checkpoint that are neither in the network nor the state of a training.

    Such state is, in the reference too, a value `{slot}.{parameter}` per parameter, or a single number whose name has
    no dot, as `learning_rate`, `scale_sense` and `epoch_num`.
    """
    known = network.parameters_dict().keys()
    every = known | parameters.keys()

    def is_state(name: str) -> bool:
        return parameters[name].size == 1 if "." not in name else name.partition(".")[2] in every

    return [name for name in parameters if name not in known and not is_state(name)]


def _counters(network: nn.Cell) -> set[str]:
    """The counters of random numbers in a network, which inference does not use."""
    return {cell.counter.name for _, cell in network.cells_and_names() if isinstance(cell, nn.Dropout)}


def _of_run(path: Path, prefix: str) -> Path:
    newest, lines = state.newest(path / FOLDER, prefix)
    if newest is None:
        damaged = "\n".join(lines) or None
        rows = {"key": "checkpoint.load", "value": str(path), "damaged": damaged, "prefix": prefix}
        raise DataError("the run has no good checkpoint", **rows)
    return newest.folder

"""`runner.dump`: dumps of whatever runs inside of a `with` block, in both modes."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from runner import context
from runner.errors import ConfigError
from runner.observe.dump.dumper import Dumper
from runner.observe.dump.settings import DumpSettings, Iterations

SIDES = {0: (True, True), 1: (True, False), 2: (False, True)}


@contextmanager
def dump(
    path: str | Path,
    kernels: Sequence[str] | None = None,
    *,
    net_name: str = "network",
    iteration: str | int = "all",
    input_output: int = 0,
    trans_flag: bool = True,
) -> Iterator[Dumper]:
    """Dump the cells that are called inside, and the models that are trained, in the synchronous layout of seed 002.

    Every call of a cell is an iteration, counted from 0; those of `Model.train` are its steps. `path` is made if it is
    not there; `kernels` are full names, operator types or patterns with `*` (None: all); the rest as the config keys.
    Read it with `numpy.fromfile`, or compare two of them with `runner compare`. Raises ConfigError for impossible
    arguments, StorageError when something cannot be written.
    """
    if input_output not in SIDES:
        raise ConfigError(
            "unknown sides of operators", input_output=input_output, allowed="0 both, 1 inputs, 2 outputs"
        )
    if isinstance(kernels, str):
        raise ConfigError("kernels is a list", kernels=kernels, hint=f"kernels=[{kernels!r}]")
    inputs, outputs = SIDES[input_output]
    chosen = None if kernels is None else tuple(kernels)
    settings = DumpSettings(
        "sync", Path(path).absolute(), net_name, Iterations.parse(iteration), inputs, outputs, chosen, 0, trans_flag
    )
    with closing(Dumper(settings, context.device().id)) as dumper, context.observing(dumper):
        yield dumper

"""Initial weights of a run (`checkpoint.load`): from a file, a checkpoint, or a run directory.

`InitialWeights` is what the keys below `checkpoint` select; `load` puts the values into a network. With
`checkpoint.names` they are those of another program, which has other names for them.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from runner import nn
from runner.core.values import Parameter
from runner.errors import ConfigError, DataError, nearest, some
from runner.host.console import LOG
from runner.train.checkpoint import state
from runner.train.checkpoint.parameters import load_checkpoint, load_param_into_net, other_network, other_types
from runner.validation.rules import Frozen, Names

FOLDER = "checkpoints"  # in a run directory
REPAIR = "the network of the checkpoint, or checkpoint.strict=false to load the parameters that both have"
MOST_NAMES = 1000  # of each kind, in an error about the weights of another program
OF_TORCH = ".running_mean"


class InitialWeights:
    """What `checkpoint.load` and the keys beside it select.

    `place` is relative to the working directory; `prefix` is that of a run's checkpoints. `names` are those of another
    program. Parameters of the network that are in `kept` are not loaded: those of a new head.

    `strict` requires a value for every parameter of the network, and no values of other layers; otherwise missing
    parameters keep their values, and a warning names both. The state of a training (of its optimizer, and counters) may
    always be surplus or missing.
    """

    def __init__(
        self, place: str, prefix: str, strict: bool, names: Names | None = None, kept: Collection[Parameter] = ()
    ) -> None:
        self.place, self.prefix, self.strict, self.names = place, prefix, strict, names
        self.kept = {parameter.name for parameter in kept}

    def load(self, network: nn.Cell, loss: nn.Cell | None = None) -> Path:
        """Load the weights, and return the file or the folder of the checkpoint.

        `loss` is a cell whose parameters are loaded where they are found. Raises ConfigError for a checkpoint of
        another network, DataError when it is missing or damaged.
        """
        path = Path(self.place)
        found = _of_run(path, self.prefix) if (path / FOLDER).is_dir() else path
        try:
            parameters = load_checkpoint(found)
            if self.names is None:
                missing, surplus = self._load(network, parameters, {} if loss is None else loss.parameters_dict())
            else:
                missing, surplus = self._load_renamed(network, parameters, self.names)
            if loss is not None and loss.parameters_dict().keys() & parameters.keys():
                load_param_into_net(loss, parameters)
        except (ConfigError, DataError) as error:
            raise error.add(key="checkpoint.load", value=self.place) from None
        if missing:
            LOG.warning("%s does not have %s", found, some(missing, 3))
        if surplus:
            LOG.warning("%s has %s, which the network does not have", found, some(surplus, 3))
        return found

    def _load(
        self, network: nn.Cell, parameters: Mapping[str, Parameter], of_loss: Mapping[str, Parameter]
    ) -> tuple[list[str], list[str]]:
        """Load parameters with our names, and return what is missing and surplus."""
        surplus = [name for name in _surplus(network, parameters) if name not in of_loss]
        present = parameters.keys() | _counters(network) | self.kept
        missing = [name for name in network.parameters_dict() if name not in present]
        parameters = {name: value for name, value in parameters.items() if name not in self.kept}
        if self.strict and (missing or surplus):
            raise _with_hint(other_network(network, parameters, missing, surplus).add(repair=REPAIR), surplus)
        try:
            load_param_into_net(network, parameters)
        except ConfigError as error:
            raise _with_hint(error, surplus) from None
        return missing, surplus

    def _load_renamed(
        self, network: nn.Cell, parameters: Mapping[str, Parameter], names: Names
    ) -> tuple[list[str], list[str]]:
        """Load parameters with names of another program; an error lists all that do not fit."""
        found = renamed(network.parameters_dict(), parameters, names)
        wanted = {name: value for name, value in found.parameters.items() if name not in self.kept}
        absent = {name: other for name, other in found.missing.items() if name not in _counters(network) | self.kept}
        missing = [name if name == other else f"{name} ({other})" for name, other in absent.items()]
        if other_types(network, wanted) or not wanted or (self.strict and (missing or found.surplus)):
            raise other_network(network, wanted, missing, found.surplus, MOST_NAMES).add(repair=REPAIR)
        load_param_into_net(network, wanted)
        return missing, found.surplus


def _with_hint(error: ConfigError, surplus: Sequence[str]) -> ConfigError:
    """The error, with the key that reads the weights of torch where they seem to be such."""
    is_of_torch = any(name.endswith(OF_TORCH) for name in surplus)
    return error.add(hint="checkpoint.names=torchvision, torch, or a file with names" if is_of_torch else None)


def _surplus(network: nn.Cell, parameters: Mapping[str, Parameter]) -> list[str]:
    """The names of a checkpoint that are neither in the network nor the state of a training.

    Such state is, in MindSpore too, a value `{slot}.{parameter}` per parameter, or a single number whose name has
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


# Weights of other programs, under the names of our parameters (`checkpoint.names`).

COUNTERS = re.compile(r"(.*\.)?num_batches_tracked")  # of torch's normalizations, which need none here


class Renamed(Frozen):
    """Weights by our names; our names that have none, with theirs, and their names that are left."""

    parameters: dict[str, Parameter]
    missing: dict[str, str]
    surplus: list[str]


def renamed(own: Mapping[str, Parameter], given: Mapping[str, Parameter], names: Names) -> Renamed:
    """The values `given` for our parameters `own`, floats in the element types of these.

    Raises ConfigError for rules of a file that match none of our names.
    """
    if unused := names.unused(own):
        lines = "\n".join(_with_nearest(rule, list(own)) for rule in unused)
        raise ConfigError("rules for names of weights match no parameter of the network", rules=lines)
    found, missing = dict[str, Parameter](), dict[str, str]()
    for name, parameter in own.items():
        other = names.theirs(name)
        if other is not None and other in given:
            found[name] = _converted(given[other], parameter)
        elif other is not None:
            missing[name] = other
    used = {names.theirs(name) for name in own}
    surplus = [name for name in sorted(given) if name not in used and not COUNTERS.fullmatch(name)]
    return Renamed(parameters=found, missing=missing, surplus=surplus)


def _with_nearest(rule: str, names: list[str]) -> str:
    close = nearest(rule, names)
    return f"{rule} (nearest: {close})" if close else rule


def _converted(given: Parameter, own: Parameter) -> Parameter:
    if given.dtype is own.dtype or not (given.dtype.is_float and own.dtype.is_float):
        return given
    return Parameter(given.array.astype(own.dtype.numpy), given.name)

"""A trial of what training makes of an ONNX file, without data: whether its training step can be made, and if not, why.

`tried` makes the step as graph mode makes it for a first batch: the network is traced with types in place of values,
differentiated, lowered and opened in a session, which does not run. PyNative mode has the same rules and gradients.
Lengths that the file leaves to the data are assumed, and reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runner import dtype as dt, nn, ops
from runner.compile.onnx.lower import lower
from runner.compile.program import Program
from runner.core.graph import Graph, as_symbol
from runner.core.trace import trace
from runner.core.values import Value
from runner.device import Device
from runner.errors import ConfigError, RunnerError, ShapeError
from runner.importer.batch import UNNAMED, length_of
from runner.importer.file import OnnxValue
from runner.importer.network import OnnxNetwork
from runner.importer.node_call import collected, value_of
from runner.nn.cell import Cell
from runner.types import TensorType

ROWS = 2, 3  # of batches
LENGTHS = 32, 8, 224, 64, 16, 28, 128, 299  # of other free axes, as images and texts have them; all are tried alike
MOST_TRACED = 20_000  # nodes in all trials of lengths
MOST_NODES = 2_000  # of files whose step is lowered whole and for all batches, in a few seconds
MOST_LOWERED = 10_000  # nodes of a step that is lowered whole: of a recurrent layer, 260 steps


@dataclass(frozen=True)
class Promise:
    """What was found: `rows` of the batches for which a step was made, and the `lengths` assumed for free axes.

    Without `rows` there is none, for the reasons in `refusals`; with `rows`, those are of batches of other sizes. When
    `depends`, the reasons follow from the lengths, and the file may be trained with other ones.
    """

    rows: Sequence[int]
    lengths: Mapping[str, int]
    refusals: Sequence[RunnerError]
    depends: bool = False


def tried(path: Path) -> Promise:
    """Make the training step of a file. Raises DataError and ConfigError for what is no file of a network."""
    with collected() as refusals:
        network = OnnxNetwork(str(path))
    unknown = [value for value in network.graph.inputs if value.shape is None or value.dtype is None]
    if unknown:
        what = "the file does not say what its inputs are, so only a run with data can show whether it trains"
        rows = {"inputs": ", ".join(map(str, unknown)), "repair": "onnx.helper.make_tensor_value_info with a shape"}
        return Promise((), {}, [*refusals, ConfigError(what, **rows)], depends=True)
    if not network.trainable_params():
        refusals.append(ConfigError("no tensor of the file is trained", repair="network.train=[NAME, ...]"))
    places = dict.fromkeys((network.batch_axes, (0,) * len(network.batch_axes)))  # rows of data may be first after all
    choices = [(one, *_chosen(network, one)) for one in (_Axes(network.graph.inputs, place) for place in places)]
    axes, lengths, found, depends = min(choices, key=lambda choice: len(choice[2]))
    if refusals or found:
        return Promise((), lengths, [*refusals, *found], depends)
    batches = axes.rows if _is_small(network) else axes.rows[:1]
    errors = {rows: _errors_of_step(network, axes.types(rows, lengths)) for rows in batches}
    made = [rows for rows, found in errors.items() if not found]
    refusals = [error for found in errors.values() for error in found]
    depends = bool(lengths) and not made and all(isinstance(error, ShapeError) for error in refusals)
    return Promise(made, lengths, refusals, depends)


def _is_small(network: OnnxNetwork) -> bool:
    return len(network.graph.all_nodes()) <= MOST_NODES


def _chosen(network: OnnxNetwork, axes: "_Axes") -> tuple[Mapping[str, int], list[RunnerError], bool]:
    """Lengths of free axes with which the network can be computed, or with the fewest refusals; these; and whether
    other lengths may have none."""
    found = list[tuple[dict[str, int], list[RunnerError]]]()
    for length in _lengths(network) if axes.free else LENGTHS[:1]:
        lengths = dict.fromkeys(axes.free, length)
        found.append((lengths, _refusals(network, axes.types(axes.rows[0], lengths))))
        if not found[-1][1] or (len(found) > 1 and _certain(found)):
            break
    lengths, fewest = min(found, key=lambda pair: len(pair[1]))
    return lengths, fewest, bool(axes.free) and not _certain(found)


def _certain(found: Sequence[tuple[Mapping[str, int], Sequence[RunnerError]]]) -> set[tuple[str, ...]]:
    """The refusals that are the same for all lengths, in what they say of shapes and indices too."""
    return set.intersection(*[{(error.what, *error.rows.values()) for error in errors} for _, errors in found])


def _lengths(network: OnnxNetwork) -> Sequence[int]:
    """The lengths to try, as many as take a few seconds: frequent ones, those of weights, all small ones."""
    of_weights = sorted({n for weight in network.get_parameters() for n in weight.shape} - {1})
    count = max(2, MOST_TRACED // max(1, len(network.graph.all_nodes())))
    return [*dict.fromkeys([*LENGTHS, *of_weights, *range(2, 65), 1])][:count]


def _refusals(network: OnnxNetwork, types: Sequence[TensorType]) -> list[RunnerError]:
    """The errors of all nodes that do not depend on others that are refused."""
    network.set_train()

    def computed(*inputs: Value) -> tuple[()]:
        value_of(network.values(*inputs), network.graph.outputs[0].name)
        return ()

    with collected() as refusals:
        try:
            trace(computed, types, "network")
        except RunnerError as error:
            refusals.append(error)
    return refusals


class _MeanSquare(Cell):
    """The network with the mean of the squares of its results in place of a loss."""

    def __init__(self, network: Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs: Value) -> Value:
        loss: Value = ops.ReduceMean()(ops.Square()(self.network(*inputs)))
        return loss


def _errors_of_step(network: OnnxNetwork, types: Sequence[TensorType]) -> list[RunnerError]:
    try:
        step = nn.TrainOneStepCell(_MeanSquare(network), nn.Momentum(network.trainable_params(), 0.01, 0.9))
        graph = trace(step.set_train().construct, types, "train_step")
        if _is_small(network) and len(graph.nodes) <= MOST_LOWERED:
            Program(step.construct, types, Device(threads=1), "train_step")
        else:
            lower(_of_each_kind(graph))
    except RunnerError as error:
        return [error]
    return []


def _of_each_kind(graph: Graph) -> Graph:
    """One node of a large graph for each operator and types of its operands; what they read are inputs."""
    kinds = {(node.op, *[x.type for x in node.inputs]): node for node in graph.nodes}
    nodes = tuple(sorted(kinds.values(), key=lambda node: node.number))
    results = dict.fromkeys(as_symbol(y) for node in nodes for y in node.outputs)
    read = dict.fromkeys(as_symbol(x) for node in nodes for x in node.inputs if x not in results)
    constants = {x: array for x, array in graph.constants.items() if x in read}
    inputs = tuple([x for x in read if x not in constants])
    return Graph(graph.name, inputs, {}, constants, nodes, tuple(results))


# Types for the inputs of a file.


@dataclass(frozen=True)
class _Axes:
    """The axes of the inputs of a file, of which `batch` are those with the samples."""

    inputs: Sequence[OnnxValue]
    batch: Sequence[int]

    @cached_property
    def symbols(self) -> Sequence[dict[int, str]]:
        """The names of free axes of each input, by their numbers."""
        ends = [enumerate(value.shape or ()) for value in self.inputs]
        names = [{k: name for k, name in axes if isinstance(name, str)} for axes in ends]
        return [
            {k: f"{value.name}[{k}]" if name == UNNAMED else name for k, name in one.items()}
            for value, one in zip(self.inputs, names, strict=True)
        ]

    @cached_property
    def samples(self) -> set[str]:
        """The names of free axes with the samples."""
        return {one[axis] for one, axis in zip(self.symbols, self.batch, strict=True) if axis in one}

    @cached_property
    def free(self) -> list[str]:
        """The names of other free axes, in order."""
        names = dict.fromkeys(name for one in self.symbols for name in one.values())
        return [name for name in names if name not in self.samples]

    @cached_property
    def rows(self) -> Sequence[int]:
        """The batches to try; the first one is that of the file, if it has one."""
        fixed = length_of(self.inputs, self.batch)
        if fixed is not None:
            return fixed, next(n for n in ROWS if n != fixed)
        return ROWS if self.samples else ROWS[:1]

    def types(self, rows: int, lengths: Mapping[str, int]) -> list[TensorType]:
        """Types of the inputs with so many samples and these lengths."""
        known = {**lengths, **dict.fromkeys(self.samples, rows)}
        is_fixed = length_of(self.inputs, self.batch) is not None
        types = []
        for value, names, axis in zip(self.inputs, self.symbols, self.batch, strict=True):
            shape = [known[names[k]] if k in names else n for k, n in enumerate(value.shape or ())]
            if is_fixed and shape:
                shape[axis] = rows
            types.append(TensorType(value.dtype or dt.float32, tuple(map(int, shape))))
        return types

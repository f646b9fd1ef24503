"""A trial of what training makes of an ONNX file, without data: whether its training step can be made, and if not, why.

`tried` makes the step as graph mode makes it for a first batch: the network is traced with types in place of values,
differentiated, lowered and opened in a session, which does not run. PyNative mode has the same rules and gradients.
Lengths that the file leaves to the data are assumed, and reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import dtype as dt, nn, ops
from runner.compile.onnx.lower import lower
from runner.compile.program import Program
from runner.core.graph import Graph, as_symbol
from runner.core.trace import trace
from runner.core.values import Value
from runner.device import Device
from runner.errors import ConfigError, RunnerError, ShapeError
from runner.importer.file import OnnxValue
from runner.importer.network import OnnxNetwork
from runner.importer.node_call import collected, value_of
from runner.nn.cell import Cell
from runner.types import TensorType

ROWS = 2, 3  # of batches
LENGTHS = 32, 224, 64, 16, 28, 128, 299, 8  # of other free axes, as images and texts have them; all are tried alike
MOST_TRACED = 20_000  # nodes in all trials of lengths
MOST_NODES = 2_000  # of files whose step is lowered whole and for all batches, in a few seconds


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
    lengths, found, depends = _chosen(network)
    if refusals or found:
        return Promise((), lengths, [*refusals, *found], depends)
    errors = {rows: _errors_of_step(network, _types(network, rows, lengths)) for rows in _rows(network)}
    made = [rows for rows, found in errors.items() if not found]
    refusals = [error for found in errors.values() for error in found]
    depends = bool(lengths) and not made and all(isinstance(error, ShapeError) for error in refusals)
    return Promise(made, lengths, refusals, depends)


def _chosen(network: OnnxNetwork) -> tuple[Mapping[str, int], list[RunnerError], bool]:
    """Lengths of free axes with which the network can be computed, or with the fewest refusals; these; and whether
    other lengths may have none."""
    axes, found = _free_axes(network), list[tuple[dict[str, int], list[RunnerError]]]()
    for length in _lengths(network) if axes else LENGTHS[:1]:
        lengths = dict.fromkeys(axes, length)
        found.append((lengths, _refusals(network, _types(network, _rows(network)[0], lengths))))
        if not found[-1][1] or (len(found) > 1 and _certain(found)):
            break
    lengths, fewest = min(found, key=lambda pair: len(pair[1]))
    return lengths, fewest, bool(axes) and not _certain(found)


def _certain(found: Sequence[tuple[Mapping[str, int], Sequence[RunnerError]]]) -> set[tuple[str, str]]:
    """Refusals that all lengths have, and that are not about shapes."""
    kinds = [{_place(error) for error in errors if not isinstance(error, ShapeError)} for _, errors in found]
    return set.intersection(*kinds)


def _lengths(network: OnnxNetwork) -> Sequence[int]:
    """The lengths to try, as many as take a few seconds: frequent ones, those of weights, all small ones."""
    of_weights = sorted({n for weight in network.get_parameters() for n in weight.shape})
    count = max(2, MOST_TRACED // len(network.graph.all_nodes()))
    return [*dict.fromkeys([*LENGTHS, *of_weights, *range(1, 65)])][:count]


def _place(error: RunnerError) -> tuple[str, str]:
    return error.what, error.rows.get("node", "")


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
        if _is_small(network):
            Program(step.set_train().construct, types, Device(threads=1), "train_step")
        else:
            lower(_of_each_kind(trace(step.set_train().construct, types, "train_step")))
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


def _is_small(network: OnnxNetwork) -> bool:
    return len(network.graph.all_nodes()) <= MOST_NODES


def _labels(value: OnnxValue) -> Iterator[tuple[int, str]]:
    """The axes of an input whose lengths are free, with their names."""
    for axis, length in enumerate(value.shape or ()):
        if isinstance(length, str):
            yield axis, f"{value.name}[{axis}]" if length == "?" else length


def _batch_axes(network: OnnxNetwork) -> set[str]:
    """The names of free axes with the samples of a batch: the first ones, or the only one."""
    names = {name for value in network.graph.inputs for _, name in _labels(value)}
    first = {name for value in network.graph.inputs for axis, name in _labels(value) if axis == 0}
    return first or (names if len(names) == 1 and 1 not in _fixed_rows(network) else set())


def _fixed_rows(network: OnnxNetwork) -> set[int]:
    return {value.shape[0] for value in network.graph.inputs if value.shape and isinstance(value.shape[0], int)}


def _free_axes(network: OnnxNetwork) -> list[str]:
    """The names of other free axes, in order."""
    names = dict.fromkeys(name for value in network.graph.inputs for _, name in _labels(value))
    return [name for name in names if name not in _batch_axes(network)]


def _rows(network: OnnxNetwork) -> Sequence[int]:
    """The batches to try; the first one is that of the file, if it has one."""
    fixed = sorted(_fixed_rows(network))
    if _batch_axes(network) or len(fixed) != 1:
        chosen = ROWS if _batch_axes(network) else ROWS[:1]
    else:
        chosen = fixed[0], next(n for n in ROWS if n != fixed[0])
    return chosen if _is_small(network) else chosen[:1]


def _types(network: OnnxNetwork, rows: int, lengths: Mapping[str, int]) -> list[TensorType]:
    """Types for the inputs with so many samples and these lengths."""
    batch = _batch_axes(network)
    is_fixed = not batch and len(_fixed_rows(network)) == 1
    types = []
    for value in network.graph.inputs:
        names = dict(_labels(value))
        shape = [
            rows if names.get(k) in batch or (k == 0 and is_fixed) else lengths[names[k]] if k in names else n
            for k, n in enumerate(value.shape or ())
        ]
        types.append(TensorType(value.dtype or dt.float32, tuple(map(int, shape))))
    return types

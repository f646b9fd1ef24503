"""A batch of any size in MindIR: an axis is free (-1) if the traces for two sizes of the batch agree otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.core.graph import Graph
from runner.core.operators import Node, Primitive
from runner.core.values import Value
from runner.types import Shape, TensorType

FREE = -1
SHAPED = ("Reshape", "BroadcastTo")  # operators whose attribute `shape` may have a free axis
LENGTHS = range(37, 1 << 20, 2)
Types = Mapping[Value, TensorType]


def free_batch(graph: Graph, other: Graph) -> tuple[Graph, Types] | None:
    """The graph with a free axis wherever `other`, for another size of the batch, has another length, and the types of
    its values. None when the graphs differ otherwise: then the batch has to keep its size.
    """
    twins = _paired_sources(graph, other)
    if twins is None or len(graph.nodes) != len(other.nodes):
        return None
    nodes: list[Node] = []
    for node, twin in zip(graph.nodes, other.nodes, strict=True):
        op = _common(node.op, twin.op)
        if op is None or [twins[x] for x in node.inputs] != list(twin.inputs):
            return None
        twins.update(zip(node.outputs, twin.outputs, strict=True))
        nodes.append(replace(node, op=op))
    if [twins[y] for y in graph.outputs] != list(other.outputs):
        return None
    types = {x: TensorType(x.dtype, _free(x.shape, twin.shape)) for x, twin in twins.items()}
    return replace(graph, nodes=tuple(nodes)), types


def other_types(types: Sequence[TensorType], graph: Graph) -> list[TensorType] | None:
    """The types of the inputs for another size of the batch, which is no length in the graph; None without a batch."""
    rows = types[0].shape[:1] if types else ()
    if not rows:
        return None
    used = {n for node in graph.nodes for x in (*node.inputs, *node.outputs) for n in x.shape}
    size = next(n for n in LENGTHS if n not in used)
    return [x.with_shape(size, *x.shape[1:]) if x.shape[:1] == rows else x for x in types]


def _paired_sources(graph: Graph, other: Graph) -> dict[Value, Value] | None:
    """Inputs, parameters and constants of both graphs, in pairs, if they agree."""
    if list(graph.parameters) != list(other.parameters) or len(graph.constants) != len(other.constants):
        return None
    for a, b in zip(graph.constants.values(), other.constants.values(), strict=True):
        if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
            return None
    return dict(zip(_sources(graph), _sources(other), strict=True))


def _sources(graph: Graph) -> tuple[Value, ...]:
    return *graph.inputs, *graph.parameters.values(), *graph.constants


def _common(op: Primitive, twin: Primitive) -> Primitive | None:
    """The operator of both traces, with a free axis in its shape if that is what differs, or None."""
    if op == twin or type(op) is not type(twin) or op.name not in SHAPED:
        return op if op == twin else None
    shape, given = op.attributes()["shape"], twin.attributes()["shape"]
    if len(shape) != len(given) or FREE in (*shape, *given):
        return None
    free = _free(shape, given)
    if free.count(FREE) > 1:
        return None
    widened: Primitive = replace(op, shape=free)  # type: ignore[call-arg]
    return widened


def _free(shape: Shape, other: Shape) -> Shape:
    return tuple(n if n == m else FREE for n, m in zip(shape, other, strict=True))

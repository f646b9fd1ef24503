"""`verify` refuses every kind of broken graph, and the text of a graph fits on a screen."""

from dataclasses import replace

import numpy as np
import pytest

from runner import dtype as dt, ops
from runner.core.graph import Graph, verify
from runner.core.operators import Node
from runner.core.trace import trace
from runner.core.values import Parameter, Symbol, Tensor
from runner.errors import InternalError
from runner.types import TensorType

PAIR = TensorType(dt.float32, (2,))
ONE = TensorType(dt.float32, (1,))


def node(op, inputs, outputs, number=0):
    return Node(op, tuple(inputs), tuple(outputs), "Default", number, ())


class Parts:
    """A sound graph: y = tanh(x + c) * w, w <- y."""

    x, c, s, t, y, w = (Symbol(PAIR, name) for name in "xcstyw")
    parameter = Parameter(Tensor([1.0, 2.0]), "weight")
    add, tanh = node(ops.Add(), (x, c), (s,)), node(ops.Tanh(), (s,), (t,), 1)
    mul = node(ops.Mul(), (t, w), (y,), 2)
    constant = np.array([3.0, 4.0], np.float32)
    graph = Graph("net", (x,), {parameter: w}, {c: constant}, (add, tanh, mul), (y,), {parameter: y})


P = Parts


def test_a_sound_graph_passes_unchanged():
    assert verify(P.graph) is P.graph
    assert P.graph.results == (P.y, P.y)


BROKEN = {
    "a value is used before it is defined\n  graph  net\n  at     %s: Float32[2] in Default/Tanh-op1": replace(
        P.graph, nodes=(P.tanh, P.add, P.mul)
    ),
    "a value is used before it is defined\n  graph  net\n  at     %c: Float32[2] in Default/Add-op0": replace(
        P.graph, constants={}
    ),
    "a value is defined twice\n  graph  net\n  at     %s: Float32[2] in Default/Add-op0": replace(
        P.graph, nodes=(P.add, P.add, P.tanh, P.mul)
    ),
    "a value is defined twice\n  graph  net\n  at     %x: Float32[2]": replace(P.graph, inputs=(P.x, P.x)),
    "a value is defined twice\n  graph  net\n  at     %x: Float32[2] in Default/Neg-op3": replace(
        P.graph, nodes=(*P.graph.nodes, node(ops.Neg(), (P.y,), (P.x,), 3))
    ),
    "a node has the wrong type\n  graph  net\n  at     Default/Neg-op3": replace(
        P.graph, nodes=(*P.graph.nodes, node(ops.Neg(), (P.y,), (Symbol(ONE, "z"),), 3))
    ),
    "a constant has another type\n  graph  net\n  at     %c: Float32[2]": replace(
        P.graph, constants={P.c: np.zeros(2)}
    ),
    "a result is never defined\n  graph  net\n  at     %z: Float32[1]": replace(P.graph, outputs=(Symbol(ONE, "z"),)),
    "an update of a parameter that is not in the graph\n  graph  net\n  at     other": replace(
        P.graph, updates={Parameter(Tensor([1.0, 2.0]), "other"): P.y}
    ),
    "an update has another type than its parameter\n  graph  net\n  at     weight": replace(
        P.graph, inputs=(P.x, narrow := Symbol(ONE, "n")), updates={P.parameter: narrow}
    ),
}


@pytest.mark.parametrize(
    ("text", "graph"), BROKEN.items(), ids=lambda v: v.partition("\n")[0] if isinstance(v, str) else ""
)
def test_a_broken_graph_is_refused(text, graph):
    with pytest.raises(InternalError) as caught:
        verify(graph)
    assert str(caught.value) == f"InternalError: {text}"


def test_a_node_with_the_wrong_number_of_outputs_is_refused():
    missing = node(ops.Dropout(), (P.x, counter := Symbol(TensorType(dt.int64, ()), "k")), (P.y,))
    with pytest.raises(InternalError, match="a node has the wrong type"):
        verify(Graph("net", (P.x, counter), {}, {}, (missing,), (P.y,)))


def test_the_text_of_a_graph():
    weight = Parameter(Tensor([1.0, 2.0]), "weight")

    def step(x):
        return ops.ReduceSum()(ops.Tanh()(x + 3.0) * weight)

    graph = trace(step, [PAIR], "step")
    assert str(graph) == (
        "graph step(%input0: Float32[2], %weight: Float32[2])\n"
        "  %cst1: Float32[] = 3.0\n"
        "  %0: Float32[2] = Add()(%input0, %cst1)  # Default/Add-op0\n"
        "  %1: Float32[2] = Tanh()(%0)  # Default/Tanh-op1\n"
        "  %2: Float32[2] = Mul()(%1, %weight)  # Default/Mul-op2\n"
        "  %3: Float32[] = ReduceSum(keep_dims=False, axis=())(%2)  # Default/ReduceSum-op3\n"
        "  return %3"
    )


def test_the_text_of_a_graph_with_updates_and_large_constants():
    text = str(replace(P.graph, constants={P.c: np.zeros(5, np.float32)}))
    assert "  %c: Float32[2] = ...\n" in text
    assert text.endswith("  return %y, weight <- %y")

"""What follows a product or a convolution moves into it: counted in the ONNX model, and computed in float64."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from both_modes import relative
from random_networks import computed
from training_steps import lenet, resnet, results, training_step

from runner import nn, ops
from runner.compile.onnx.builder import OnnxBuilder, source_operators
from runner.compile.onnx.lower import lower
from runner.compile.passes import default_passes, optimize
from runner.core.graph import Graph
from runner.core.trace import trace
from runner.core.values import Tensor, Value
from runner.device import Device
from runner.types import TensorType

RNG = np.random.default_rng(5)
A, B, C = (RNG.standard_normal(shape, np.float32) for shape in ((4, 5), (5, 6), (4, 6)))
Function = Callable[..., Value | tuple[Value, ...]]


product = ops.MatMul()


def placed(function: Function, *arrays: np.ndarray) -> Graph:
    """The graph of a function, placed for the CPU."""
    return optimize(trace(function, [TensorType.of(a) for a in arrays], "net"), default_passes(Device()))


def nodes_of(graph: Graph) -> Sequence[onnx.NodeProto]:
    """The ONNX nodes of a graph."""
    names = [f"i{k}" for k in range(len(graph.inputs))], [f"o{k}" for k in range(len(graph.outputs))]
    return lower(graph, *names).graph.node


def kinds(graph: Graph) -> Counter[str]:
    """How many ONNX nodes of each kind a graph has."""
    return Counter(node.op_type for node in nodes_of(graph))


# Products


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("net", "exact"),
    [
        (lambda a, b, c: product(a, b) + c, lambda a, b, c: a @ b + c),
        (lambda a, b, c: c + product(a, b), lambda a, b, c: a @ b + c),
        (lambda a, b, c: c * 0.5 + product(a, b), lambda a, b, c: a @ b + 0.5 * c),
        (lambda a, b, c: product(a, b) + (-2.0) * c, lambda a, b, c: a @ b - 2 * c),
    ],
)
def test_an_addend_moves_into_a_product(net, exact, kind):
    arrays = tuple(x.astype(kind) for x in (A, B, C))
    graph = placed(net, *arrays)
    assert kinds(graph) == {"Gemm": 1}
    expected = exact(*(x.astype(np.float64) for x in arrays))
    assert relative(results(graph, *arrays)[0], expected) < 4 * np.finfo(kind).eps


LEFT = {
    "an addend that broadcasts over rows": (
        lambda a, b, c: product(a, b) + ops.ReduceSum()(c, 0),
        {"Gemm": 1, "Add": 1},
    ),
    "a column": (lambda a, b, c: product(a, b) + ops.ReduceSum(True)(c, 1), {"Gemm": 1, "Add": 1}),
    "a number": (lambda a, b, c: product(a, b) + 2.0 + ops.Exp()(c), {"Gemm": 1, "Add": 2, "Exp": 1}),
    "a product that is returned": (lambda a, b, c: (m := product(a, b), m + c), {"Gemm": 1, "Add": 1}),
    "a product that is read again": (lambda a, b, c: (m := product(a, b)) * (m + c), {"Gemm": 1, "Add": 1, "Mul": 1}),
    "a product that is scaled": (lambda a, b, c: product(a, b) * 3.0 + c, {"Gemm": 1, "Add": 1, "Mul": 1}),
    "a scaled addend that is returned": (
        lambda a, b, c: (s := c * 0.5, s + product(a, b)),
        {"Gemm": 1, "Mul": 1},
    ),
    "an addend that is scaled element by element": (
        lambda a, b, c: ops.Exp()(c) * c + product(a, b),
        {"Gemm": 1, "Mul": 1, "Exp": 1},
    ),
    "an addend that is scaled by several constants": (
        lambda a, b, c: c * Tensor(np.arange(1, 7, dtype=np.float32)) + product(a, b),
        {"Gemm": 1, "Mul": 1},
    ),
    "an addend times zero, which may be infinite": (lambda a, b, c: c * 0.0 + product(a, b), {"Gemm": 1, "Mul": 1}),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_stays_as_it_is(what):
    """Counted without reshapes and sums, and equal to the numpy kernels."""
    net, expected = LEFT[what]
    graph = placed(net, A, B, C)
    found = kinds(graph)
    assert {kind: found[kind] for kind in found if kind not in ("Reshape", "ReduceSum")} == expected
    for made, by_numpy in zip(results(graph, A, B, C), computed(graph, A, B, C), strict=True):
        assert relative(made, by_numpy) < 1e-6


def test_a_factor_that_a_gemm_would_round_stays():
    """Its beta is a float32, and 0.1 is another number there."""
    arrays = tuple(x.astype(np.float64) for x in (A, B, C))
    graph = placed(lambda a, b, c: c * 0.1 + product(a, b), *arrays)
    a, b, c = arrays
    assert relative(results(graph, *arrays)[0], a @ b + 0.1 * c) < 1e-15
    assert kinds(graph) == {"Mul": 1, "Gemm": 1}


def test_two_products_become_one_that_starts_from_the_other():
    graph = placed(lambda a, b, c: product(a, b) + product(a + 1.0, b) + c, A, B, C)
    assert kinds(graph) == {"Add": 2, "Gemm": 2}  # a + 1, and c, for which there is no room
    a, b, c = (x.astype(np.float64) for x in (A, B, C))
    assert relative(results(graph, A, B, C)[0], a @ b + (a + 1) @ b + c) < 1e-6


# Convolutions

IMAGES = RNG.standard_normal((8, 6, 5, 5), np.float32)
SCALE, SHIFT = RNG.standard_normal((2, 6), np.float32)


def norm(x: Value) -> Value:
    """Batch normalisation, which is placed as a convolution of each channel with one number."""
    return ops.BatchNorm(True, 1e-2)(x, SCALE, SHIFT, np.zeros(6, np.float32), np.ones(6, np.float32))[0]


relu = ops.ReLU()


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (lambda x: norm(relu(norm(x))), {"FusedConv": 1, "Conv": 1}),
        (lambda x: norm(relu(norm(x) + x)), {"FusedConv": 1, "Conv": 1}),
        (lambda x: norm(relu(x + norm(x))), {"FusedConv": 1, "Conv": 1}),
        (lambda x: norm(relu(m := norm(x)) + m), {"Conv": 2, "Relu": 1}),  # read twice
        (lambda x: (m := norm(x), norm(relu(m))), {"Conv": 2, "Relu": 1}),  # returned
        (lambda x: (m := norm(x) + x, norm(relu(m))), {"Conv": 2, "Relu": 1}),  # the sum is returned
        (lambda x: norm(ops.Tanh()(norm(x) + x)), {"Conv": 2}),  # another function
        (lambda x: norm(relu(norm(x) + ops.ReduceMean(True)(x, (2, 3)))), {"Conv": 2, "Relu": 1}),  # broadcasts
    ],
)
def test_sums_and_relu_move_into_a_convolution(net, expected):
    graph = placed(net, IMAGES)
    assert {kind: n for kind, n in kinds(graph).items() if kind in ("Conv", "FusedConv", "Relu")} == expected
    for made, by_numpy in zip(results(graph, IMAGES), computed(graph, IMAGES), strict=True):
        assert relative(made, by_numpy) < 1e-5


# Training steps


@pytest.mark.parametrize("decay", [0.0, 1e-3])
def test_updates_move_into_the_gradients_of_a_resnet(decay):
    """Every matrix and every filter of 3x3 or 1x1 is updated where its gradient's product is made; no ReLU is left."""
    network, arrays = resnet(8)
    step = training_step(network, lambda p: nn.Momentum(p, 0.01, 0.9, weight_decay=decay))
    nodes = nodes_of(placed(step.construct, *arrays))
    matrices = [p for p in network.trainable_params() if p.ndim > 1]
    grown = [n for n in nodes if n.op_type == "Gemm" and len(n.input) == 3]
    assert len(grown) == len(matrices) == 13
    betas = {round(a.f, 6) for n in grown for a in n.attribute if a.name == "beta"}
    assert betas == {decay or 0.9}
    assert Counter(n.op_type for n in nodes)["Relu"] == 0
    with_relu = [n for n in nodes if n.op_type == "FusedConv" and any(a.name == "activation" for a in n.attribute)]
    assert len(with_relu) == 9


def test_updates_move_into_the_gradients_of_lenet():
    """Those of the three Dense layers, at least."""
    network, arrays = lenet(8)
    nodes = nodes_of(placed(training_step(network).construct, *arrays))
    grown = {n.name.split("/Add")[0] for n in nodes if n.op_type == "Gemm" and len(n.input) == 3}
    assert len(grown) >= 3
    assert all("ApplyMomentum" in name for name in grown)


# What the nodes of the model stand for


def test_every_operator_is_named_by_a_node_of_the_model():
    for network, batch in (lenet(), resnet()):
        graph = placed(training_step(network).construct, *batch)
        named = [source_operators(node) for node in nodes_of(graph)]
        assert {name for names in named for name in names} == {node.name for node in graph.nodes}


def test_a_fused_node_names_all_operators_and_the_product_first():
    graph = placed(lambda a, b, c: c * 0.5 + product(a, b), A, B, C)
    (gemm,) = (node for node in nodes_of(graph) if node.op_type == "Gemm")
    numbers = {node.op.name: node.name for node in graph.nodes}
    assert source_operators(gemm) == (numbers["MatMul"], numbers["Mul"], numbers["Add"])


def test_a_node_that_two_operators_ask_for_names_both():
    builder = OnnxBuilder()
    for operator in ("Default/Neg-op0", "Default/Neg-op1", "Default/Neg-op1"):
        builder.operator = operator
        builder.node("Neg", ("x",))
    (node,) = builder.list
    assert source_operators(node) == ("Default/Neg-op0", "Default/Neg-op1")

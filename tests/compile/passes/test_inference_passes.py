"""Passes of inference: weights that are constants, and BatchNorm inside of the convolution before it."""

import numpy as np
import pytest

from runner import dtype as dt, nn, ops
from runner.compile.passes import INFERENCE, PASSES, freeze, merge, optimize
from runner.compile.passes.simplify import dce
from runner.compile.program import Program
from runner.core.graph import Graph
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor
from runner.device import Device
from runner.types import TensorType

X = TensorType(dt.float32, (2, 4, 6, 6))
RNG = np.random.default_rng(5)
IMAGE = RNG.normal(size=X.shape).astype(np.float32)
CPU = Device("CPU", threads=1)


class Block(nn.Cell):
    """A convolution and a normalisation with statistics of their own; `after` decides what comes between and behind."""

    def __init__(self, after=lambda self, y: self.norm(y), group: int = 1, has_bias: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, group=group, has_bias=has_bias, weight_init="he_normal")
        self.norm = nn.BatchNorm2d(8)
        self.after, self.group = after, group
        for name, low, high in (
            ("gamma", 0.5, 2),
            ("beta", -1, 1),
            ("moving_mean", -1, 1),
            ("moving_variance", 0.2, 3),
        ):
            getattr(self.norm, name).set_data(RNG.uniform(low, high, 8).astype(np.float32))
        self.set_train(False)

    def construct(self, x):
        return self.after(self, self.conv(x))


def merged(cell: nn.Cell) -> Graph:
    return optimize(trace(cell.construct, [X], "net"), (freeze, merge))


def kinds(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def in_doubles(cell: Block, x: np.ndarray) -> np.ndarray:
    """The definition, with sums over shifted images."""
    w, (rows, columns) = np.float64(cell.conv.weight.array), x.shape[2:]
    padded = np.pad(np.float64(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    per = x.shape[1] // cell.group
    y = np.zeros((len(x), 8, rows, columns))
    for k in range(8):
        first = k // (8 // cell.group) * per
        for i in range(3):
            for j in range(3):
                part = padded[:, first : first + per, i : i + rows, j : j + columns]
                y[:, k] += np.einsum("nchw,c->nhw", part, w[k, :, i, j])
    mean, variance, gamma, beta = (
        np.float64(getattr(cell.norm, name).array)[:, None, None]
        for name in ("moving_mean", "moving_variance", "gamma", "beta")
    )
    return (y - mean) / np.sqrt(variance + 1e-5) * gamma + beta


@pytest.mark.parametrize("group", [1, 2, 4])
def test_the_normalisation_goes_into_the_convolution(group):
    cell = Block(group=group)
    graph = merged(cell)
    assert kinds(graph) == ["Conv2D", "BiasAdd"]
    assert graph.parameters == {}
    made = Program(cell.construct, [X], CPU, "net", passes=INFERENCE)([IMAGE])[0]
    usual = Program(cell.construct, [X], CPU, "net")([IMAGE])[0]
    expected = in_doubles(cell, IMAGE)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(made, expected, rtol=0, atol=2e-6 * scale)
    np.testing.assert_allclose(made, usual, rtol=0, atol=2e-6 * scale)


def test_names_lead_to_the_layers_that_they_came_from():
    names = [node.name for node in merged(Block()).nodes]
    assert names == ["Default/conv-Conv2d/Conv2D-op0", "Default/norm-BatchNorm2d/BiasAdd-op1"]


def test_a_chain_of_blocks():
    cell = nn.SequentialCell(Block(), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    cell.set_train(False)
    assert kinds(merged(cell)) == ["Conv2D", "BiasAdd", "ReLU", "Conv2D", "BiasAdd"]


def reads_both(self, y):
    return self.norm(y) + y


def normalises_sums(self, y):
    return self.norm(y + y)


def gives_both(self, y):
    return self.norm(y), y


@pytest.mark.parametrize(
    "cell",
    [
        Block(reads_both),  # somebody else reads the convolution
        Block(gives_both),  # it is a result
        Block(normalises_sums),  # it stands between
        Block(has_bias=True),  # so does a bias
    ],
)
def test_what_is_left_alone(cell):
    before = trace(cell.construct, [X], "net")
    assert kinds(merged(cell)) == kinds(before)


def test_a_normalisation_with_statistics_of_the_batch_is_left_alone():
    cell = Block()
    cell.norm.use_batch_statistics = True
    assert kinds(merged(cell)) == ["Conv2D", "BatchNorm"]


def test_weights_that_are_not_known_are_left_alone():
    cell = Block()
    graph = trace(cell.construct, [X], "net")
    assert merge(graph).nodes == graph.nodes


def test_a_graph_that_changes_parameters_keeps_them():
    class Counts(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.count = Parameter(Tensor(np.zeros(6, np.float32)))

        def construct(self, x):
            self.assign(self.count, self.count + 1.0)
            return x * self.count

    graph = trace(Counts().construct, [X], "net")
    assert freeze(graph) is graph


def test_frozen_weights_are_those_of_the_compilation():
    cell = Block()
    program = Program(cell.construct, [X], CPU, "net", passes=INFERENCE)
    before = program([IMAGE])[0]
    cell.conv.weight.set_data(np.zeros_like(cell.conv.weight.array))
    np.testing.assert_array_equal(program([IMAGE])[0], before)
    assert list(program.session.inputs) == ["input0"]


def test_half_precision_is_rounded_once():
    op = ops.BatchNorm(False, 1e-5)
    conv = ops.Conv2D(1, 1)
    weight, known = np.full((1, 1, 1, 1), 3.0, np.float16), [np.full(1, v, np.float32) for v in (2.0, 1.0, 0.5, 0.25)]
    scaled, after, shift = op.fold_into(conv, weight, known)
    factor = 2.0 / np.sqrt(0.25 + 1e-5)
    assert (scaled.dtype, shift.dtype, after) == (np.float16, np.float16, ops.BiasAdd())
    assert scaled.item() == np.float16(3.0 * factor)
    assert shift.item() == np.float16(1.0 - 0.5 * factor)


def test_passes_that_follow_find_less_to_do():
    """Freezing makes arithmetic of weights alone a constant."""

    class Scaled(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Parameter(Tensor(np.full(6, 2.0, np.float32)))

        def construct(self, x):
            return x * (self.weight * self.weight)

    graph = trace(Scaled().construct, [X], "net")
    assert kinds(dce(optimize(graph, PASSES))) == ["Mul", "Mul"]
    assert kinds(optimize(graph, INFERENCE)) == ["Mul"]

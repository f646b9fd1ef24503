"""The layers of small networks: numbers in both modes against formulas in float64, names, and what they refuse."""

import itertools
import math

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import dtype as dt, nn
from runner.core.gradients import gradients
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@table("mode", MODES)
@table(
    ("layer", "expected"),
    [
        (nn.LogSoftmax(), lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
        (nn.LogSoftmax(0), lambda x: x - np.log(np.exp(x).sum(0, keepdims=True))),
        (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
        (nn.GELU(), gelu),
        (nn.ELU(), lambda x: np.where(x > 0, x, np.exp(x) - 1)),
        (nn.ELU(2), lambda x: np.where(x > 0, x, 2 * (np.exp(x) - 1))),
        (nn.HSwish(), lambda x: x * np.clip(x + 3, 0, 6) / 6),
        (nn.HSigmoid(), lambda x: np.clip(x + 3, 0, 6) / 6),
        (nn.LeakyReLU(), lambda x: np.where(x > 0, x, 0.2 * x)),
        (nn.LeakyReLU(3), lambda x: np.where(x > 0, x, 3 * x)),
        (nn.PReLU(), lambda x: np.where(x > 0, x, 0.25 * x)),
        (nn.PReLU(2, 0.5), lambda x: np.where(x > 0, x, 0.5 * x)),
        (nn.Dense(3, 3, weight_init=Tensor(np.eye(3, dtype=np.float32)), activation="gelu"), gelu),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Cell) else "",
)
def test_nonlinearities(layer, expected, mode):
    x = normal(4, 2, 3) * 4
    assert relative(step_of(layer.construct, mode)(x)[0], expected(x.astype(np.float64))) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_prelu_learns_a_slope_per_channel(mode):
    layer = nn.PReLU(3)
    x = normal(2, 3, 4)
    slope = step_of(lambda x: gradients(layer(x), [layer.w])[0], mode)(x)[0]
    assert [p.name for p in layer.trainable_params()] == ["a"]
    assert relative(slope, np.minimum(x.astype(np.float64), 0).sum((0, 2))) < 1e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "begin"), [((4,), -1), ((3, 4), 1), ([3, 4], -2)])
def test_layer_norm(shape, begin, mode):
    layer = nn.LayerNorm(shape, begin, begin, gamma_init="normal", beta_init="normal", epsilon=1e-3)
    x = normal(5, 3, 4) + 2
    axes = tuple(range(3 - len(shape), 3))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-3)
    expected = expected * layer.gamma.asnumpy() + layer.beta.asnumpy()
    assert relative(step_of(layer.construct, mode)(x)[0], expected) < 2e-6


def test_layer_norm_defaults_are_the_references():
    layer = nn.LayerNorm((6,))
    assert [(p.name, p.asnumpy().tolist()) for p in layer.get_parameters()] == [("gamma", [1] * 6), ("beta", [0] * 6)]
    op = layer.layer_norm
    assert (op.begin_norm_axis, op.begin_params_axis, op.epsilon) == (-1, -1, 1e-7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hot", [False, True])
def test_embedding_and_its_gradient(hot, mode):
    layer = nn.Embedding(6, 3, hot)
    ids = np.array([[1, 5, 1], [0, 1, 5]], np.int32)
    weights = normal(2, 3, 3)

    def step(ids, weights):
        y = layer(ids)
        return (y, *gradients(y * weights, [layer.embedding_table]))

    y, slope = step_of(step, mode)(ids, weights)
    expected = np.zeros((6, 3))
    for at in np.ndindex(2, 3):
        expected[ids[at]] += weights[at]
    assert np.array_equal(y, layer.embedding_table.asnumpy()[ids])
    assert relative(slope, expected) < 1e-6


def test_embedding_options():
    layer = nn.Embedding(5, 2, embedding_table="ones", dtype=dt.float64, padding_idx=3)
    assert layer.embedding_table.dtype is dt.float64
    assert layer.embedding_table.asnumpy().sum(1).tolist() == [2, 2, 2, 0, 2]
    assert [p.name for p in nn.SequentialCell(layer).get_parameters()] == ["0.embedding_table"]
    assert abs(nn.Embedding(200, 100).embedding_table.asnumpy().std() - 0.01) < 3e-4


# Transposed convolution


def transposed(x, weight, stride, dilation, group, before, size):
    """Every product of a transposed convolution, one at a time."""
    n, c, h, w = x.shape
    _, filters, kh, kw = weight.shape
    out = np.zeros((n, filters * group, *size))
    for b, i, row, column, k, u, v in itertools.product(*map(range, (n, c, h, w, filters, kh, kw))):
        at = row * stride[0] + u * dilation[0] - before[0], column * stride[1] + v * dilation[1] - before[1]
        if 0 <= at[0] < size[0] and 0 <= at[1] < size[1]:
            out[b, (i * group // c) * filters + k, *at] += float(x[b, i, row, column]) * float(weight[i, k, u, v])
    return out


@table("mode", MODES)
@table(
    ("options", "size", "before"),
    [
        ({}, (4, 3), (1, 1)),
        ({"stride": 2}, (8, 6), (0, 0)),
        ({"stride": (1, 3)}, (4, 9), (1, 0)),
        ({"pad_mode": "valid"}, (6, 5), (0, 0)),
        ({"pad_mode": "valid", "stride": 2, "has_bias": True}, (9, 7), (0, 0)),
        ({"pad_mode": "valid", "stride": 4}, (16, 12), (0, 0)),  # the stride is larger than the kernel
        ({"pad_mode": "pad", "padding": 1, "stride": 2}, (7, 5), (1, 1)),
        ({"pad_mode": "pad", "padding": (1, 0, 2, 0)}, (5, 3), (1, 2)),
        ({"dilation": 2, "pad_mode": "valid"}, (8, 7), (0, 0)),
        ({"group": 2, "stride": 2, "pad_mode": "valid"}, (9, 7), (0, 0)),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_conv2d_transpose(options, size, before, mode):
    layer = nn.Conv2dTranspose(4, 6, 3, bias_init="normal", **options)
    x = normal(2, 4, 4, 3)
    op = layer.conv2d_transpose
    expected = transposed(x, layer.weight.asnumpy(), op.stride, op.dilation, op.group, before, size)
    if layer.has_bias:
        expected += layer.bias.asnumpy().astype(np.float64)[:, None, None]
    assert relative(step_of(layer.construct, mode)(x)[0], expected) < 2e-6


# Containers


def test_cell_list():
    a, b, c = nn.Dense(2, 2), nn.ReLU(), nn.Dense(2, 1)
    cells = nn.CellList([a, b])
    assert cells.append(c) is cells
    assert [cells[0], cells[1], cells[-1]] == [a, b, c]
    assert list(cells) == [a, b, c]
    assert len(nn.CellList(a, b)) == 2
    assert len(nn.CellList()) == 0


class Tower(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.CellList(nn.Dense(2, 2, has_bias=False))
        for _ in range(2):
            self.layers.append(nn.Dense(2, 2, has_bias=False))
        self.layers.extend([nn.ReLU(), nn.Dense(2, 2, has_bias=False)])

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_parameters_in_a_list_are_named_by_the_way_that_leads_to_them():
    names = [f"layers.{k}.weight" for k in (0, 1, 2, 4)]
    assert [p.name for p in Tower().get_parameters()] == names
    assert [p.name for p in nn.SequentialCell(Tower()).get_parameters()] == [f"0.{name}" for name in names]


@pytest.mark.parametrize("mode", MODES)
def test_a_list_is_applied_by_its_owner(mode):
    net, x = Tower(), normal(3, 2)
    first, second, third, _, last = (getattr(c, "weight", None) for c in net.layers)
    hidden = x.astype(np.float64) @ first.asnumpy().T @ second.asnumpy().T @ third.asnumpy().T
    assert relative(step_of(net.construct, mode)(x)[0], np.maximum(hidden, 0) @ last.asnumpy().T) < 1e-6


# Refusals


@table(
    ("make", "error", "text"),
    [
        (
            lambda: nn.ELU(-1.0),
            ConfigError,
            "alpha must be a number of at least 0.0\n  layer  ELU\n  given  -1.0",
        ),
        (
            lambda: nn.LeakyReLU("much"),
            ConfigError,
            "alpha must be a number of at least 0.0\n  layer  LeakyReLU\n  given  'much'",
        ),
        (lambda: nn.PReLU(0), ConfigError, "channel must be a whole number of at least 1\n  layer  PReLU\n  given  0"),
        (
            lambda: nn.LayerNorm(4),
            ConfigError,
            "normalized_shape must be a tuple of positive ints\n  layer  LayerNorm\n  given  4",
        ),
        (
            lambda: nn.LayerNorm((4,), epsilon=0),
            ConfigError,
            "epsilon must be a number above 0.0\n  layer  LayerNorm\n  given  0",
        ),
        (
            lambda: nn.LayerNorm((4,))(Tensor(normal(2, 3))),
            ShapeError,
            "LayerNorm: gamma and beta do not match x\n  x           Float32[2, 3]\n  gamma       Float32[4]\n"
            "  beta        Float32[4]\n  expected    Float32[3]",
        ),
        (
            lambda: nn.Embedding(0, 3),
            ConfigError,
            "vocab_size must be a whole number of at least 1\n  layer  Embedding\n  given  0",
        ),
        (
            lambda: nn.Embedding(4, 3, padding_idx=4),
            ConfigError,
            "padding_idx must be a row of the table\n  layer  Embedding\n  given  4\n  rows   4",
        ),
        (
            lambda: nn.Conv2dTranspose(4, 3, 3, group=2),
            ConfigError,
            "group must divide out_channels\n  layer         Conv2dTranspose\n  out channels  3\n  group         2",
        ),
        (
            lambda: nn.Conv2dTranspose(2, 2, 3)(Tensor(normal(2, 4, 4))),
            ShapeError,
            "Conv2dTranspose needs floats (N, C, H, W)\n  x  Float32[2, 4, 4]",
        ),
        (
            lambda: nn.Conv2dTranspose(2, 2, 3, pad_mode="pad", padding=3)(Tensor(normal(1, 2, 4, 4))),
            ShapeError,
            "Conv2dTranspose: the padding leaves no result\n  x       Float32[1, 2, 4, 4]\n  result  (1, 2, 0, 0)",
        ),
        (lambda: nn.CellList(nn.ReLU(), 3), ConfigError, "CellList takes cells\n  given  3\n  at     1"),
        (lambda: nn.CellList().append("relu"), ConfigError, "CellList takes cells\n  given  'relu'\n  at     0"),
    ],
)
def test_arguments_that_make_no_sense(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value).startswith(f"{error.__name__}: {text}")

"""The operators of small networks against definitions in float64 that share nothing with runner."""

import itertools
import math

import numpy as np
import pytest
from contract import FLOAT32, computed, distance, ran
from operands import coarse, normal, positive

from runner import ops
from runner.core.gradients import gradients
from runner.core.interpreter import Eager
from runner.core.values import Parameter, Tensor


def both(op, *arrays):
    """The outputs of numpy, and those of onnxruntime."""
    return computed(op, arrays), ran(op, arrays)


def slopes(function, *arrays):
    """The derivative of the sum of what a function of tensors gives, for each of its float operands."""
    with Eager():
        parameters = [Parameter(Tensor(a), f"p{k}") for k, a in enumerate(arrays)]
        return [g.asnumpy() for g in gradients(function(*parameters), parameters)]


def elementwise(function, x):
    return np.array([function(v) for v in x.astype(np.float64).ravel().tolist()]).reshape(x.shape)


SCALARS = {
    "GeLU": lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    "Elu": lambda v: v if v > 0 else math.exp(v) - 1,
    "Softplus": lambda v: math.log(1 + math.exp(v)),
    "ReLU6": lambda v: min(max(v, 0), 6),
    "HSigmoid": lambda v: min(max((v + 3) / 6, 0), 1),
    "HSwish": lambda v: v * min(max((v + 3) / 6, 0), 1),
    "Sin": math.sin,
    "Cos": math.cos,
    "Floor": math.floor,
    "Rsqrt": lambda v: v**-0.5,
    "Reciprocal": lambda v: 1 / v,
    "OnesLike": lambda v: 1,
    "ZerosLike": lambda v: 0,
}


@pytest.mark.parametrize("name", SCALARS)
def test_functions_of_one_number(name):
    x = positive(3, 4) if name in ("Rsqrt", "Reciprocal") else normal(3, 4) * 4
    for made in both(getattr(ops, name)(), x):
        assert distance(made, (elementwise(SCALARS[name], x),)) < FLOAT32


def test_gelu_is_near_the_normal_distribution():
    x = np.linspace(-5, 5, 101).astype(np.float32)
    exact = elementwise(lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))), x)
    assert np.abs(ops.GeLU().kernel(x) - exact).max() < 5e-4  # what the approximation by a tanh costs


# What the autograd of PyTorch 2.13 gives in float64 at these points, kinks among them, for relu6, hardsigmoid,
# hardswish, elu, gelu(approximate="tanh") and log1p(exp(x)).
POINTS = np.array([-4.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 7.0], np.float32)
TORCH_SLOPES = {
    "ReLU6": [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
    "HSigmoid": [0.0, 0.0, 0.166666672, 0.166666672, 0.166666672, 0.0, 0.0, 0.0],
    "HSwish": [0.0, 0.0, 0.166666667, 0.5, 0.833333333, 1.0, 1.0, 1.0],
    "Elu": [0.018315639, 0.049787068, 0.367879441, 1.0, 1.0, 1.0, 1.0, 1.0],
    "Softplus": [0.01798621, 0.047425873, 0.268941421, 0.5, 0.731058579, 0.952574127, 0.997527377, 0.999088949],
    "GeLU": [-0.000335123, -0.011584167, -0.082964084, 0.5, 1.082964084, 1.011584167, 1.000000001, 1.0],
}


@pytest.mark.parametrize("name", TORCH_SLOPES)
def test_slopes_at_kinks_are_those_of_torch(name):
    (made,) = slopes(getattr(ops, name)(), POINTS)
    assert np.allclose(made, TORCH_SLOPES[name], rtol=1e-6, atol=3e-7)


def test_prelu():
    x, weight = normal(2, 3, 4), np.array([0.25, -1.0, 2.0], np.float32)
    expected = np.where(x > 0, 1, weight.astype(np.float64)[:, None]) * x
    for made in both(ops.PReLU(), x, weight):
        assert distance(made, (expected,)) < FLOAT32
    dx, dweight = slopes(ops.PReLU(), x, weight)
    assert np.array_equal(dx, np.where(x > 0, 1, weight[:, None]))
    assert np.allclose(dweight, np.minimum(x, 0).sum((0, 2)), rtol=1e-6)
    one = np.array([0.5], np.float32)
    assert np.allclose(slopes(ops.PReLU(), x, one)[1], [np.minimum(x, 0).sum()], rtol=1e-6)


@pytest.mark.parametrize(("norm", "params"), [(1, 1), (-1, -1), (1, 2), (2, 0)])
def test_layer_norm(norm, params):
    x = normal(2, 3, 4) * 3 + 5
    gamma, beta = positive(*x.shape[params:]), normal(*x.shape[params:])
    expected, means, variances = np.zeros(x.shape), np.zeros(x.shape), np.zeros(x.shape)
    for lead in np.ndindex(*x.shape[:norm]):
        sample = x[lead].astype(np.float64)
        mean = math.fsum(sample.ravel()) / sample.size
        variance = math.fsum((sample.ravel() - mean) ** 2) / sample.size
        expected[lead] = (sample - mean) / math.sqrt(variance + 0.01)
        means[lead], variances[lead] = mean, variance
    first = (slice(None),) * (norm % 3) + (slice(0, 1),) * (3 - norm % 3)
    for made in both(ops.LayerNorm(norm, params, 0.01), x, gamma, beta):
        assert distance(made, (expected * gamma + beta, means[first], variances[first])) < FLOAT32


def test_layer_norm_far_from_zero():
    """A mean a thousand times the deviation: the variance is formed of differences, not of squares."""
    x = (normal(4, 64) + 1000).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    ones, zeros = np.ones(64, np.float32), np.zeros(64, np.float32)
    for made in both(ops.LayerNorm(-1, -1, 1e-7), x, ones, zeros):
        assert distance(made[:1], (expected,)) < 1e-3


@pytest.mark.parametrize(("a", "b"), [*itertools.product((False, True), repeat=2)])
def test_stacks_of_matrices(a, b):
    x, y = normal(2, 3, *((5, 4) if a else (4, 5))), normal(2, 3, *((6, 5) if b else (5, 6)))
    expected = np.zeros((2, 3, 4, 6))
    for at in np.ndindex(2, 3):
        left, right = x[at].astype(np.float64), y[at].astype(np.float64)
        expected[at] = (left.T if a else left).dot(right.T if b else right)
    for made in both(ops.BatchMatMul(a, b), x, y):
        assert distance(made, (expected,)) < FLOAT32


def test_products_with_zeros_have_the_gradient_of_the_others():
    x = np.array([[2.0, 3.0, 4.0], [0.0, 3.0, 4.0], [0.0, 3.0, 0.0]], np.float32)
    for made in both(ops.ReduceProd(axis=1), x):
        assert made[0].tolist() == [24.0, 0.0, 0.0]
    assert slopes(ops.ReduceProd(axis=1), x)[0].tolist() == [[12, 8, 6], [12, 0, 0], [0, 0, 0]]


def test_the_first_minimum():
    x = np.array([[3.0, 1.0, 1.0], [0.0, 2.0, 0.0]], np.float32)
    for made in both(ops.Argmin(), x):
        assert (made[0].tolist(), made[0].dtype) == ([1, 0], np.int32)


def test_pieces():
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for made in both(ops.Split(1, 3), x):
        assert [a.tolist() for a in made] == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]
    for made in both(ops.Unstack(0), x):
        assert [a.tolist() for a in made] == x.tolist()
    for made in both(ops.Stack(1), x[0], x[1]):
        assert made[0].tolist() == [[k, k + 6] for k in range(6)]
    for made in both(ops.Tile((2, 1, 2)), x[:, :1]):
        assert made[0].tolist() == [[[0, 0], [6, 6]]] * 2
    for made in both(ops.Squeeze(1), x[:, :1]):
        assert made[0].tolist() == [0, 6]


def test_one_piece_of_many_can_be_used_alone():
    x = normal(4, 3)
    for k in (0, 1, 3):

        class One(ops.Split):
            def __call__(self, x, k=k):
                return super().__call__(x)[k]

        assert np.array_equal(ran(One(0, 4), (x,))[0], x[k : k + 1])


def test_a_single_piece_comes_in_a_tuple_too():
    x = Tensor(normal(2, 3))
    assert [len(op(x)) for op in (ops.Split(), ops.Unstack(1))] == [1, 3]
    assert np.array_equal(ops.Split()(x)[0].asnumpy(), x.asnumpy())
    assert ops.Unstack()(Tensor(normal(1, 3)))[0].shape == (3,)


@pytest.mark.parametrize(
    ("index", "begin", "end", "strides", "masks"),
    [
        (np.s_[1:4:2, 0:6:3], (1, 0), (4, 6), (2, 3), {}),
        (np.s_[-4:-1, 1:100:2], (-4, 1), (-1, 100), (1, 2), {}),
        (np.s_[0:5:4], (0,), (5,), (4,), {}),
        (np.s_[:3, 2::2], (2, 2), (3, 3), (1, 2), {"begin_mask": 1, "end_mask": 2}),
        (np.s_[-2, 1:3], (-2, 1), (0, 3), (1, 1), {"shrink_axis_mask": 1}),
    ],
)
def test_strided_blocks_are_those_of_numpy(index, begin, end, strides, masks):
    x = normal(5, 6)
    op = ops.StridedSlice(**masks, begin=begin, end=end, strides=strides)
    for made in both(op, x):
        assert np.array_equal(made[0], x[index])
    spread = np.zeros(x.shape, np.float32)
    dout = normal(*x[index].shape)
    spread[index] = dout
    for made in both(ops.StridedSliceGrad(**op.attributes(), x_shape=x.shape), dout):
        assert np.array_equal(made[0], spread)


def test_logic():
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    for made in both(ops.LogicalAnd(), x, y):
        assert made[0].tolist() == [False, False, False, True]
    for made in both(ops.LogicalOr(), x, y):
        assert made[0].tolist() == [False, True, True, True]
    for made in both(ops.LogicalNot(), x):
        assert made[0].tolist() == [True, True, False, False]


def test_clip_by_value():
    x = np.array([-2.0, -1.0, 0.5, 1.0, 3.0], np.float32)
    assert ops.clip_by_value(Tensor(x), -1.0, 1.0).asnumpy().tolist() == [-1, -1, 0.5, 1, 1]
    assert ops.clip_by_value(Tensor(x), Tensor(2.0), 1.0).asnumpy().tolist() == [2] * 5
    assert slopes(lambda v: ops.clip_by_value(v, -1.0, 1.0), x)[0].tolist() == [0, 1, 1, 1, 0]


def test_ones_and_zeros_keep_shape_and_type():
    x = (coarse(2, 3) > 0, np.array(7, np.int64), normal(2))
    for array in x:
        for kind, number in ((ops.OnesLike, 1), (ops.ZerosLike, 0)):
            for made in both(kind(), array):
                assert made[0].dtype == array.dtype
                assert np.array_equal(made[0], np.full(array.shape, number))

"""Kernels and lowerings against loops in float64: a mistake that both share would show here."""

import itertools

import numpy as np
import oracles
import pytest
from contract import FLOAT32, computed, distance, ran
from operands import coarse, distinct, distribution, normal, positive, whole
from samples import geometries
from tables import table

from runner import dtype as dt, ops
from runner.compile.onnx.lower import lower
from runner.core.interpreter import Eager
from runner.core.trace import trace
from runner.core.values import Tensor
from runner.types import TensorType


def both(op, *arrays):
    """The outputs of numpy, and those of onnxruntime."""
    return computed(op, arrays), ran(op, arrays)


@table(("x_shape", "op", "w_shape", "note"), [*geometries()], ids=lambda v: v if isinstance(v, str) else "")
def test_convolution(x_shape, op, w_shape, note):
    naive = oracles.Convolution(
        x_shape, op.out_channel, op.kernel_size, op.pad_mode, op.pad, op.stride, op.dilation, op.group
    )
    x, w, dout = normal(*x_shape), normal(*w_shape), normal(*naive.out_shape)
    y, dx, dw = naive.all_three(x, w, dout)
    back_input = ops.Conv2DBackpropInput(**op.common_attributes(), input_size=x_shape)
    back_filter = ops.Conv2DBackpropFilter(**op.common_attributes(), filter_size=w_shape)
    for made in both(op, x, w):
        assert distance(made, (y,)) < FLOAT32
    for made in both(back_input, dout, w):
        assert distance(made, (dx,)) < FLOAT32
    for made in both(back_filter, dout, x):
        assert distance(made, (dw,)) < FLOAT32
    # As in MindSpore, the shape may also be an operand.
    bare = op.common_attributes()
    assert np.array_equal(ops.Conv2DBackpropInput(**bare)(dout, w, x_shape).asnumpy(), back_input.kernel(dout, w))
    assert np.array_equal(ops.Conv2DBackpropFilter(**bare)(dout, x, w_shape).asnumpy(), back_filter.kernel(dout, x))


@table("mode", ["valid", "same"])
@table("values", [distinct, coarse])
@table(
    ("shape", "size", "stride"),
    [
        ((2, 3, 6, 8), (2, 2), (2, 2)),
        ((2, 2, 7, 9), (3, 2), (2, 3)),
        ((1, 2, 5, 5), (2, 2), (3, 3)),
        ((1, 3, 6, 5), (3, 3), (1, 1)),
    ],
)
def test_pooling(shape, size, stride, values, mode):
    x = values(*shape)
    most, mean = ops.MaxPool(size, stride, mode), ops.AvgPool(size, stride, mode)
    dout = normal(*most.kernel(x).shape)
    expected_most, expected_most_back, expected_mean, expected_mean_back = oracles.pool(x, size, stride, mode, dout)
    for made in both(most, x):
        assert np.array_equal(made[0], expected_most)
    for made in both(ops.MaxPoolGrad(size, stride, mode), x, expected_most.astype(np.float32), dout):
        assert distance(made, (expected_most_back,)) < FLOAT32
    for made in both(mean, x):
        assert distance(made, (expected_mean,)) < FLOAT32
    for made in both(ops.AvgPoolGrad(size, stride, mode, x_shape=shape), dout):
        assert distance(made, (expected_mean_back,)) < FLOAT32


@table("counted", [False, True])
@table("values", [distinct, coarse])
@table(
    ("shape", "size", "stride", "pads", "dilation", "ceil_mode"),
    [
        ((2, 3, 6, 8), (3, 3), (2, 2), [(1, 1), (1, 1)], (1, 1), False),
        ((2, 2, 7, 9), (3, 2), (2, 3), [(2, 0), (0, 1)], (1, 1), False),
        ((1, 2, 9, 8), (3, 2), (2, 1), [(1, 2), (1, 0)], (2, 3), False),
        ((1, 3, 6, 5), (3, 2), (2, 2), [(0, 0), (0, 0)], (1, 1), True),
        ((2, 2, 7, 8), (3, 2), (3, 3), [(1, 1), (0, 1)], (1, 1), True),
        ((1, 2, 2, 3), (3, 3), (2, 2), [(0, 0), (0, 0)], (1, 1), True),
        ((1, 2, 6, 5), (1, 2), (4, 2), [(0, 0), (0, 0)], (1, 1), True),
        ((1, 2, 6, 8), (2, 2), (4, 4), [(0, 0), (0, 0)], (3, 3), True),
        ((1, 2, 8, 9), (3, 3), (4, 2), [(2, 1), (1, 2)], (2, 2), True),
    ],
)
def test_padded_pooling(shape, size, stride, pads, dilation, ceil_mode, values, counted):
    x = values(*shape)
    edge = {"padding": (*pads[0], *pads[1]), "dilation": dilation, "ceil_mode": ceil_mode}
    most = ops.MaxPool(size, stride, "pad", **edge)
    mean = ops.AvgPool(size, stride, "pad", **edge, count_include_pad=counted)
    dout = normal(*most.kernel(x).shape)
    expected = oracles.padded_pool(x, size, stride, pads, dout, dilation, ceil_mode, counted)
    for made in both(most, x):
        assert np.array_equal(made[0], expected[0])
    for made in both(most.sibling(ops.MaxPoolGrad), x, expected[0].astype(np.float32), dout):
        assert distance(made, expected[1:2]) < FLOAT32
    for made in both(mean, x):
        assert distance(made, expected[2:3]) < FLOAT32
    for made in both(mean.sibling(ops.AvgPoolGrad, count_include_pad=counted, x_shape=shape), dout):
        assert distance(made, expected[3:]) < FLOAT32


def test_softmax_cross_entropy_of_distributions():
    logits, labels = normal(7, 5), distribution(7, 5)
    for made in both(ops.SoftmaxCrossEntropyWithLogits(), logits, labels):
        assert distance(made, oracles.cross_entropy(logits, labels)) < FLOAT32


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_softmax_cross_entropy_of_class_numbers(dtype):
    logits, labels = normal(7, 5), whole(7, low=0, high=5, dtype=dtype)
    losses, gradients = oracles.cross_entropy(logits, np.eye(5)[labels])
    for made in both(ops.SparseSoftmaxCrossEntropyWithLogits(), logits, labels):
        assert distance(made, (losses.mean(),)) < FLOAT32
    for made in both(ops.SparseSoftmaxCrossEntropyWithLogits(is_grad=True), logits, labels):
        assert distance(made, (gradients / 7,)) < FLOAT32


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov):
    w, v, g, rate, factor = normal(3, 2), normal(3, 2), normal(3, 2), np.float32(0.1), np.float32(0.9)
    expected = oracles.momentum(*(a.astype(np.float64) for a in (w, v, g, rate, factor)), nesterov)
    for made in both(ops.ApplyMomentum(nesterov), w, v, np.asarray(rate), g, np.asarray(factor)):
        assert distance(made, expected) < FLOAT32


@pytest.mark.parametrize("stat", [0.0, 1.0, 5.0])
@pytest.mark.parametrize(("dampening", "decay", "nesterov"), [(0.0, 0.0, False), (0.3, 0.1, False), (0.0, 0.1, True)])
def test_sgd(dampening, decay, nesterov, stat):
    w, a, g, rate, factor = normal(3, 2), normal(3, 2), normal(3, 2), np.float32(0.1), np.float32(0.9)
    wide = (x.astype(np.float64) for x in (w, a, g, rate, factor))
    expected = oracles.sgd(*wide, stat, dampening, decay, nesterov)
    operands = w, g, np.asarray(rate), a, np.asarray(factor), np.asarray(stat, np.float32)
    for made in both(ops.SGD(dampening, decay, nesterov), *operands):
        assert distance(made, tuple(map(np.asarray, expected))) < FLOAT32


@pytest.mark.parametrize("t", [1, 2, 100])
def test_adam(t):
    w, m, v, g = normal(3, 2), normal(3, 2), positive(3, 2), normal(3, 2)
    rate, b1, b2, eps = (np.float32(x) for x in (0.01, 0.9, 0.999, 1e-8))
    expected = oracles.adam(*(x.astype(np.float64) for x in (w, m, v, g, rate, b1, b2, eps)), t)
    powers = np.float32(float(b1) ** t), np.float32(float(b2) ** t)
    operands = w, m, v, *(np.asarray(x) for x in (*powers, rate, b1, b2, eps)), g
    # 1 - 0.999^t loses three digits in float32: the step is a hundredth of w, so this is 1e-5 of the result.
    for made in both(ops.Adam(), *operands):
        assert distance(made, expected) < 1e-5


@pytest.mark.parametrize(
    ("keep", "seed", "counter"), [(0.5, 1, 0), (0.9, 3, 7), (0.25, 2**31 - 1, 2**33 + 5), (1.0, 0, 0)]
)
def test_dropout(keep, seed, counter):
    x = normal(5, 6)
    mask = np.reshape(oracles.dropout_mask(30, keep, seed, counter), (5, 6))
    for made in both(ops.Dropout(keep, seed), x, np.array(counter, np.int64)):
        assert np.array_equal(made[1], mask.astype(np.float32))
        assert distance(made[:1], (np.where(mask, x.astype(np.float64) / keep, 0.0),)) < FLOAT32


INT64 = TensorType(dt.int64, ())


@pytest.mark.parametrize(
    ("make", "types"),
    [
        (lambda n: ops.Dropout(), lambda n: [TensorType(dt.float32, (n, n)), INT64]),
        (ops.UnsortedSegmentSum, lambda n: [TensorType(dt.float32, (2, n)), TensorType(dt.int64, (2,))]),
        (lambda n: ops.ZerosLike(), lambda n: [TensorType(dt.float32, (n, n))]),
    ],
    ids=["dropout", "sum", "zeros"],
)
def test_a_model_does_not_grow_with_its_tensors(make, types):
    sizes = []
    for n in (2, 1000):
        inputs = [f"x{k}" for k in range(len(types(n)))]
        graph = trace(make(n), types(n), "one")
        sizes.append(len(lower(graph, inputs, [f"y{k}" for k in range(len(graph.outputs))]).SerializeToString()))
    assert sizes[1] < sizes[0] + 100


def test_dropout_keeps_the_share_it_says_independently_of_step_and_seed():
    ones = np.ones(100_000, np.float32)
    masks = {
        (keep, seed, counter): ops.Dropout(keep, seed).kernel(ones, np.array(counter, np.int64))[1].astype(bool)
        for keep in (0.5, 0.9)
        for seed in (1, 2, 1_000_003)
        for counter in (0, 1, 1000)
    }
    for (keep, _, _), mask in masks.items():
        assert abs(mask.mean() - keep) < 5 * np.sqrt(keep * (1 - keep) / ones.size)
    half = [mask for (keep, _, _), mask in masks.items() if keep == 0.5]
    agreeing = [np.mean(a == b) for a, b in itertools.combinations(half, 2)]
    assert max(abs(share - 0.5) for share in agreeing) < 5 * 0.5 / np.sqrt(ones.size)


def exact_gradient(op, adjoint, *arrays):
    """What the rule gives for each operand."""
    with Eager():
        inputs = [Tensor(a) for a in arrays]
        made = op(*inputs)
        rules = op.grad(inputs, (made,), [Tensor(np.asarray(adjoint, np.float32))])
        return [(rule() if callable(rule) else rule).asnumpy().tolist() for rule in rules]


def test_where_elements_tie():
    three = np.array([2.0, 1.0, 2.0], np.float32)
    assert exact_gradient(ops.ReduceMax(), 6.0, three) == [[3.0, 0.0, 3.0]]
    assert exact_gradient(ops.ReduceMin(), 6.0, three) == [[0.0, 6.0, 0.0]]
    other = np.array([2.0, 3.0, 1.0], np.float32)
    assert exact_gradient(ops.Maximum(), [5, 6, 7], three, other) == [[5, 0, 7], [0, 6, 0]]
    assert exact_gradient(ops.Minimum(), [5, 6, 7], three, other) == [[5, 6, 0], [0, 0, 7]]
    zeros = np.array([-1.0, 0.0, 1.0], np.float32)
    assert exact_gradient(ops.ReLU(), [5, 6, 7], zeros) == [[0, 0, 7]]
    assert exact_gradient(ops.Abs(), [5, 6, 7], zeros) == [[-5, 0, 7]]


def test_the_first_maximum_of_a_window_gets_the_gradient():
    x = np.array([[[[1, 3, 3, 0], [3, 2, 0, 0]]]], np.float32)
    dout = np.array([[[[10, 20]]]], np.float32)
    op = ops.MaxPoolGrad(2, 2)
    for made in both(op, x, ops.MaxPool(2, 2).kernel(x), dout):
        assert made[0].tolist() == [[[[0, 10, 20, 0], [0, 0, 0, 0]]]]

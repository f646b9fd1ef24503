"""Operands and attributes that do not fit are refused by the type rule, before anything is computed."""

import numpy as np
import pytest
from tables import table

from runner import dtype as dt, ops
from runner.core.operators import infer
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType


def floats(*shape: int) -> TensorType:
    return TensorType(dt.float32, shape)


def ints(*shape: int) -> TensorType:
    return TensorType(dt.int32, shape)


def bools(*shape: int) -> TensorType:
    return TensorType(dt.bool_, shape)


CONV = ops.Conv2D(4, (3, 3))
BACK_INPUT = ops.Conv2DBackpropInput(4, (3, 3), input_size=(1, 2, 5, 5))
BACK_FILTER = ops.Conv2DBackpropFilter(4, (3, 3), filter_size=(4, 2, 3, 3))
ADAM_RATES = (floats(),) * 6

REFUSED = [
    (ops.Add(), (floats(2, 3), floats(4)), "shapes do not broadcast"),
    (ops.Add(), (floats(2), ints(2)), "operands must have the same element type"),
    (ops.Add(), (bools(2), bools(2)), "needs numbers"),
    (ops.Greater(), (bools(2), bools(2)), "needs numbers"),
    (ops.RealDiv(), (ints(2), ints(2)), "needs floats"),
    (ops.Exp(), (ints(2),), "needs floats"),
    (ops.Select(), (floats(2), floats(2), floats(2)), "the condition must be Bool"),
    (ops.Select(), (bools(2), floats(2), ints(2)), "both choices must have the same element type"),
    (ops.Softmax(2), (floats(2, 3),), "needs floats and an axis in range"),
    (ops.ReluGrad(), (floats(2), floats(3)), "dout and x must have one type"),
    (ops.Reshape((4, -1)), (floats(2, 3),), "the elements do not fill the shape"),
    (ops.Reshape((-1, -1)), (floats(2, 3),), "the elements do not fill the shape"),
    (ops.Reshape((-2, -3)), (floats(2, 3),), "the elements do not fill the shape"),
    (ops.Flatten(), (floats(),), "needs at least one axis"),
    (ops.ExpandDims(3), (floats(2, 3),), "axis out of range"),
    (ops.Transpose((0, 0)), (floats(2, 3),), "perm must name each axis once"),
    (ops.OneHot(depth=0), (ints(2),), "depth must be positive"),
    (ops.OneHot(3), (floats(2),), "class numbers must be Int32 or Int64"),
    (ops.Gather(2), (floats(2, 3), ints(2)), "axis out of range"),
    (ops.Gather(), (floats(2, 3), floats(2)), "indices must be Int32 or Int64"),
    (ops.UnsortedSegmentSum(0), (floats(2, 3), ints(2)), "num_segments must be positive"),
    (ops.UnsortedSegmentSum(2), (floats(2, 3), ints(3)), "leading axes differ"),
    (ops.UnsortedSegmentSum(2), (floats(2, 3), floats(2)), "segment numbers must be Int32 or Int64"),
    (ops.Concat(2), (floats(2, 3), floats(2, 3)), "axis out of range"),
    (ops.Concat(-3), (floats(2, 3), floats(2, 3)), "axis out of range"),
    (ops.Concat(), (floats(), floats()), "axis out of range"),
    (ops.Concat(), (floats(2, 3), floats(2, 4)), "other axes and element types must agree"),
    (ops.Concat(), (floats(2), ints(2)), "other axes and element types must agree"),
    (ops.Concat(), (), "needs at least one tensor"),
    (ops.Slice((1,), (3,)), (floats(3),), "the block is not inside of the tensor"),
    (ops.Pad(((1, -1),)), (floats(3),), "one pair of non-negative paddings per axis"),
    (ops.BroadcastTo((3,)), (floats(2),), "shapes do not broadcast"),
    (ops.BroadcastTo((1, 3)), (floats(2, 3),), "does not broadcast to the shape"),
    (ops.ReduceSum(axis=2), (floats(2, 3),), "axis out of range or named twice"),
    (ops.ReduceSum(axis=(1, -1)), (floats(2, 3),), "axis out of range or named twice"),
    (ops.ReduceMean(), (ints(3),), "needs floats"),
    (ops.Argmax(2), (floats(2, 3),), "axis out of range or named twice"),
    (ops.MatMul(), (floats(2, 3), floats(2, 3)), "inner axes differ"),
    (ops.MatMul(), (ints(2, 3), ints(3, 2)), "needs two matrices of floats, of one element type"),
    (ops.MatMul(), (floats(3), floats(3, 2)), "needs two matrices of floats, of one element type"),
    (ops.BiasAdd(), (floats(2, 3), floats(2)), "one bias per channel"),
    (ops.BiasAdd(), (floats(2, 3, 4, 1, 1, 1), floats(3)), "needs numbers of two to five axes and one element type"),
    (ops.BiasAdd(), (floats(2, 3, 4), ints(3)), "needs numbers of two to five axes and one element type"),
    (ops.BiasAddGrad(), (floats(3),), "needs numbers of two to five axes"),
    (CONV, (floats(1, 3, 5, 5), floats(4, 2, 3, 3)), "channels of x against w"),
    (CONV, (floats(1, 2, 5, 5), floats(4, 2, 3, 2)), "the shape of w does not match the attributes"),
    (CONV, (floats(1, 2, 2, 5), floats(4, 2, 3, 3)), "the window is larger than the image"),
    (CONV, (ints(1, 2, 5, 5), ints(4, 2, 3, 3)), "needs floats (N, C, H, W) and (K, C/group, KH, KW)"),
    (CONV, (floats(2, 5, 5), floats(4, 2, 3, 3)), "needs floats (N, C, H, W) and (K, C/group, KH, KW)"),
    (BACK_INPUT, (floats(1, 4, 5, 5), floats(4, 2, 3, 3)), "the type of dout does not match the attributes"),
    (BACK_INPUT, (floats(1, 4, 3, 3), floats(4, 1, 3, 3)), "channels of x against w"),
    (BACK_FILTER, (floats(1, 4, 5, 5), floats(1, 2, 5, 5)), "the type of dout does not match the attributes"),
    (
        ops.Conv2DBackpropInput(4, (3, 3)),
        (floats(1, 4, 3, 3), floats(4, 2, 3, 3)),
        "needs floats (N, C, H, W) and (K, C/group, KH, KW)",
    ),
    (ops.MaxPool(3), (floats(1, 1, 2, 3),), "the window is larger than the image"),
    (ops.MaxPool(), (floats(1, 2, 3),), "needs floats (N, C, H, W)"),
    (ops.MaxPool(2, 2, "pad", padding=2), (floats(1, 1, 4, 4),), "a window has no element of the image"),
    (ops.AvgPool(2, 1, "pad", padding=1, dilation=2), (floats(1, 1, 1, 4),), "a window has no element of the image"),
    (
        ops.MaxPoolGrad(2, 2),
        (floats(1, 1, 4, 4), floats(1, 1, 2, 2), floats(1, 1, 4, 4)),
        "out and dout must have the type of the pooled x",
    ),
    (
        ops.AvgPoolGrad(2, 2, x_shape=(1, 1, 4, 4)),
        (floats(1, 1, 4, 4),),
        "the shape of dout does not match the attributes",
    ),
    (ops.GeLU(), (ints(2),), "needs floats"),
    (ops.GeLUGrad(), (floats(2), floats(3)), "dout and x must have one type"),
    (ops.ReLU6Grad(), (floats(2), floats(3)), "dout and x must have one type"),
    (ops.PReLU(), (floats(2, 3), floats(2)), "needs one weight, or one per channel"),
    (ops.PReLU(), (floats(3), floats(1)), "needs floats (N, C, ...)"),
    (ops.LogicalAnd(), (bools(2), floats(2)), "both operands must be Bool"),
    (ops.LogicalOr(), (bools(2), bools(3)), "shapes do not broadcast"),
    (ops.LogicalNot(), (ints(2),), "the operand must be Bool"),
    (ops.LayerNorm(3), (floats(2, 3), floats(3), floats(3)), "axis out of range or named twice"),
    (ops.LayerNorm(), (floats(2, 3), floats(2), floats(2)), "gamma and beta do not match x"),
    (ops.LayerNorm(), (ints(2, 3), ints(3), ints(3)), "needs floats with at least one axis"),
    (
        ops.LayerNormGrad(),
        (floats(2, 3), floats(2, 3), floats(2), floats(2, 1), floats(3)),
        "dout, mean and variance must have LayerNorm's types",
    ),
    (ops.BatchMatMul(), (floats(2, 3), floats(3, 2)), "needs two stacks of matrices of floats, of one element type"),
    (ops.BatchMatMul(), (floats(2, 2, 3), floats(1, 3, 2)), "leading axes differ"),
    (ops.BatchMatMul(True), (floats(2, 2, 3), floats(2, 3, 2)), "inner axes differ"),
    (ops.Split(1, 2), (floats(2, 3),), "the axis does not split evenly"),
    (ops.Split(0, 0), (floats(2, 3),), "the axis does not split evenly"),
    (ops.Split(2), (floats(2, 3),), "axis out of range or named twice"),
    (ops.Unstack(2), (floats(2, 3),), "axis out of range or named twice"),
    (ops.Stack(3), (floats(2, 3),), "axis out of range"),
    (ops.Stack(), (floats(2, 3), floats(3, 2)), "all tensors must have one type"),
    (ops.Stack(), (), "needs at least one tensor"),
    (ops.Squeeze(0), (floats(2, 1),), "only axes of length 1 can be removed"),
    (ops.Tile((2,)), (floats(2, 3),), "needs a positive multiple for each axis"),
    (ops.Tile((2, 0)), (floats(2, 3),), "needs a positive multiple for each axis"),
    (ops.StridedSlice(begin=(0,), end=(2,), strides=(0,)), (floats(2),), "strides must be positive"),
    (ops.StridedSlice(begin=(2,), end=(4,), strides=(1,)), (floats(2),), "the slice is empty"),
    (
        ops.StridedSlice(begin=(0, 0), end=(1, 1), strides=(1, 1)),
        (floats(2),),
        "begin, end and strides must name the same leading axes",
    ),
    (
        ops.StridedSlice(begin=(0,), end=(1,), strides=()),
        (floats(2),),
        "begin, end and strides must name the same leading axes",
    ),
    (
        ops.StridedSliceGrad(begin=(0,), end=(2,), strides=(1,), x_shape=(3,)),
        (floats(3),),
        "the shape of dout does not match the attributes",
    ),
    (ops.Dropout(), (floats(3), ints()), "the counter must be an Int64 scalar"),
    (
        ops.SparseSoftmaxCrossEntropyWithLogits(),
        (floats(2, 3), floats(2)),
        "labels must be class numbers (N,) as Int32 or Int64",
    ),
    (
        ops.SparseSoftmaxCrossEntropyWithLogits(),
        (floats(2, 3), ints(3)),
        "labels must be class numbers (N,) as Int32 or Int64",
    ),
    (
        ops.SoftmaxCrossEntropyWithLogits(),
        (floats(2, 3), floats(2, 4)),
        "labels must be distributions in the type of the logits",
    ),
    (
        ops.ApplyMomentum(),
        (floats(3), floats(), floats(), floats(3), floats()),
        "gradient and state must have the variable's type",
    ),
    (
        ops.ApplyMomentum(),
        (floats(3), floats(3), floats(3), floats(3), floats()),
        "rates must be scalars of the variable's element type",
    ),
    (
        ops.SGD(),
        (floats(3), floats(2), floats(), floats(3), floats(), floats()),
        "gradient and state must have the variable's type",
    ),
    (
        ops.Adam(),
        (floats(3), floats(3), floats(), *ADAM_RATES, floats(3)),
        "gradient and state must have the variable's type",
    ),
]


@table(("op", "types", "sentence"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_operands_that_do_not_fit(op, types, sentence):
    with pytest.raises(ShapeError) as caught:
        infer(op, types)
    assert caught.value.what == sentence


@table(
    ("make", "text"),
    [
        (lambda: ops.Conv2D(3, (3, 3), group=2), "ShapeError: group must divide out_channel\n  group  2"),
        (lambda: ops.Conv2D(3, 0), "ShapeError: kernel_size must be a positive int, or two of them\n  given  0"),
        (lambda: ops.Conv2D(3, (3, 3), mode=0), "ShapeError: only cross-correlation (mode 1) exists\n  mode  0"),
        (
            lambda: ops.Conv2D(3, (3, 3), pad_mode="sane"),
            "ShapeError: unknown pad_mode\n  given    sane\n  allowed  same, valid, pad",
        ),
        (
            lambda: ops.Conv2D(3, (3, 3), pad=1),
            "ShapeError: pad needs pad_mode='pad'\n  pad       (1, 1, 1, 1)\n  pad mode  valid",
        ),
        (
            lambda: ops.Conv2D(3, (3, 3), pad_mode="pad", pad=(0, -1, 0, 0)),
            "ShapeError: pad must be an int of at least 0, or four of them\n  given  (0, -1, 0, 0)",
        ),
        (lambda: ops.MaxPool(2, -1), "ShapeError: strides must be a positive int, or two of them\n  given  -1"),
        (
            lambda: ops.AvgPool(2, 2, "sane"),
            "ShapeError: unknown pad_mode\n  given    sane\n  allowed  same, valid, pad",
        ),
        (
            lambda: ops.MaxPool(2, 2, "same", padding=1),
            "ShapeError: padding and ceil_mode need pad_mode='pad'\n"
            "  padding    (1, 1, 1, 1)\n  ceil mode  False\n  pad mode   same",
        ),
        (
            lambda: ops.StridedSlice(ellipsis_mask=5),
            "ShapeError: only one ellipsis is possible\n  ellipsis mask  5",
        ),
        (
            lambda: ops.Dropout(0.0),
            "ConfigError: keep_prob out of range\n  given    0.0\n  allowed  above 0, at most 1",
        ),
        (lambda: ops.Add()(1.0), "ShapeError: Add: wrong number of operands\n  given  1\n  takes  2 tensors"),
        (
            lambda: ops.Slice()(Tensor([1.0]), (0,), (1,), 4),
            "ShapeError: Slice: wrong number of operands\n  given  4\n  takes  1 tensors, begin, size",
        ),
    ],
)
def test_attributes_and_calls_that_make_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == text


def test_attributes_after_the_operands_as_the_reference_gives_them():
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert ops.Reshape()(x, [3, 2]).shape == (3, 2)
    assert ops.Transpose()(x, (1, 0)).asnumpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert ops.ReduceSum(keep_dims=True)(x, 1).asnumpy().tolist() == [[3], [12]]
    assert ops.ReduceMean()(x, [0, 1]).asnumpy() == 2.5
    assert ops.ExpandDims()(x, -1).shape == (2, 3, 1)
    assert ops.Cast()(x, dt.int32).dtype is dt.int32
    assert ops.OneHot()(Tensor([1]), 3, 5.0, 0.5).asnumpy().tolist() == [[0.5, 5.0, 0.5]]
    assert ops.Gather()(x, Tensor([2]), 1).asnumpy().tolist() == [[2], [5]]
    assert ops.Slice()(x, (0, 1), (2, 1)).asnumpy().tolist() == [[1], [4]]
    assert ops.BroadcastTo()(Tensor([1.0]), (2, 2)).shape == (2, 2)
    assert ops.StridedSlice()(x, (0, 0), (2, 3), (1, 2)).asnumpy().tolist() == [[0, 2], [3, 5]]
    assert ops.Tile()(Tensor([1.0]), (2, 2)).shape == (2, 2)
    assert ops.Stack(1)([x, x]).shape == (2, 2, 3)


def test_concat_takes_its_tensors_one_by_one_or_as_a_list():
    a, b = Tensor([1.0]), Tensor([2.0])
    for made in (ops.Concat()(a, b), ops.Concat()((a, b)), ops.Concat()([a, b])):
        assert made.asnumpy().tolist() == [1.0, 2.0]

"""One row per operator and option: what the contract in `test_contract.py` is checked on.

To add an operator: add a row. A registered operator without a row fails the tests.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from operands import Sample, coarse, distinct, distribution, normal, positive, row, rows_of, whole
from samples_functions import FUNCTION_FAMILIES
from samples_indexed import INDEXED_FAMILIES
from samples_networks import NETWORK_FAMILIES
from samples_tensor import TENSOR_FAMILIES

from runner import dtype as dt, ops
from runner.core.operators import Primitive

# Float operands that have no gradient. An operator that is not listed must have one for every float operand.
NO_GRADIENT: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"), (0, 1)),
    "CustomGradient": (0, 1),  # whatever its rule returns, which is nothing here
    **dict.fromkeys(("Argmax", "Argmin", "StopGradient"), (0,)),  # whole numbers
    "FloorDiv": (0, 1),
    **dict.fromkeys(("Sign", "Floor", "OnesLike", "ZerosLike", "FloatStatus"), (0,)),  # flat wherever they are smooth
    **dict.fromkeys(("Ceil", "Round", "Rint", "IsNan", "IsInf", "IsFinite"), (0,)),
    **dict.fromkeys(("TruncateDiv", "ApproximateEqual"), (0, 1)),
    "DynamicShape": (0,),  # its result does not depend on the numbers
    "ReluGrad": (1,),  # only the sign of `out` is read
    "ReLU6Grad": (1,),  # only where x lies is read
    "SoftmaxCrossEntropyWithLogits": (1,),  # as in MindSpore, labels are not learnt
    **dict.fromkeys(("BatchNorm", "SyncBatchNorm"), (3, 4)),  # moving statistics are not learnt
}
# Operators that appear only in gradients and updates: nothing differentiates them a second time.
NOT_DIFFERENTIABLE: set[Primitive | str] = {
    "ApplyMomentum",
    "SGD",
    "Adam",
    "BatchNormGrad",
    "SyncBatchNormGrad",
    "GeLUGrad",
    "LayerNormGrad",
    "MaxPoolGrad",
    "ScatterReduce",
    "UnsortedSegmentProd",
    ops.SparseSoftmaxCrossEntropyWithLogits(is_grad=True),
}
# Operators whose gradient is one of those above, or the output of an operator: they have no second derivative.
ONCE_DIFFERENTIABLE = {
    "BatchNorm",
    "SyncBatchNorm",
    "GeLU",
    "LayerNorm",
    "MaxPool",
    "SoftmaxCrossEntropyWithLogits",
    ops.SparseSoftmaxCrossEntropyWithLogits(),
}
# Operators with a field that has no text to read it back from: a function.
NO_TEXT = {"CustomGradient", "HookBackward", "InsertGradientOf"}


def unary() -> Iterator[Sample]:
    shapes = (2, 3), (), (2, 3, 4, 5)
    anywhere = (ops.ReLU, ops.Sigmoid, ops.Tanh, ops.Neg, ops.Exp, ops.Square, ops.Abs, ops.Sign)
    for kind, shape in itertools.product(anywhere, shapes):
        yield row(kind(), normal(*shape))
    for kind, shape in itertools.product((ops.Log, ops.Sqrt), shapes):
        yield row(kind(), positive(*shape))
    for kind in (ops.ReLU, ops.Abs, ops.Sign):
        yield row(kind(), coarse(3, 4), note="zeros", smooth=False)
    yield row(ops.Neg(), whole(3, 2), note="int32")
    yield row(ops.InsertGradientOf(lambda dout: dout), normal(2, 3, 4, 2))
    for kind in (ops.Sigmoid, ops.Tanh):
        yield row(kind(), np.array([-200.0, -20.0, 0.0, 20.0, 200.0], np.float32), note="saturated")
    yield row(ops.ReluGrad(), normal(2, 3, 4, 2), np.maximum(normal(2, 3, 4, 2), 0))
    for axis in (-1, 0, 1):
        yield row(ops.Softmax(axis), normal(3, 4, 2), note=f"axis{axis}")
        yield row(ops.LogSoftmax(axis), normal(3, 4, 2), note=f"axis{axis}")
    yield row(ops.Softmax(), normal(2, 3) + 1000, note="far")
    yield row(ops.LogSoftmax(), normal(2, 3) + 1000, note="far")


def reduced() -> Iterator[Sample]:
    for op in ("sum", "mean"):
        yield row(ops.AllReduce(op), normal(2, 3), note=op)
        yield row(ops.AllReduce(op), normal(2, 3), normal(), normal(4, 1, 2), note=f"{op}-bucket")


def binary() -> Iterator[Sample]:
    shapes = ((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((2, 3), ()), ((), ())
    for kind, (x, y) in itertools.product((ops.Add, ops.Sub, ops.Mul, ops.Maximum, ops.Minimum), shapes):
        yield row(kind(), normal(*x), normal(*y))
    for kind, (x, y) in itertools.product((ops.RealDiv, ops.Pow), shapes):
        yield row(kind(), positive(*x), positive(*y))
    for kind in (ops.Add, ops.Sub, ops.Mul, ops.Maximum, ops.Minimum):
        yield row(kind(), whole(2, 3), whole(3), note="int32")
        yield row(kind(), whole(2, 3, dtype=np.int64), whole(3, dtype=np.int64), note="int64")
    for kind in (ops.Maximum, ops.Minimum):
        yield row(kind(), coarse(4, 5), coarse(4, 5), note="ties", smooth=False)
    comparisons = ops.Equal, ops.NotEqual, ops.Greater, ops.GreaterEqual, ops.Less, ops.LessEqual
    for kind, (x, y) in itertools.product(comparisons, shapes):
        yield row(kind(), coarse(*x), coarse(*y))
    for kind in comparisons:
        yield row(kind(), whole(4, 3, low=0, high=2), whole(3, low=0, high=2), note="int32")
    for kind in (ops.Equal, ops.NotEqual):
        yield row(kind(), coarse(4, 3) > 0, coarse(3) > 0, note="bool")
    yield row(ops.Select(), normal(2, 3) > 0, normal(2, 3), normal(2, 3))
    yield row(ops.Select(), normal(3) > 0, normal(2, 1), normal(), note="broadcast")
    yield row(ops.Select(), normal(2, 3) > 0, whole(2, 3), whole(2, 3), note="int32")


def reductions() -> Iterator[Sample]:
    axes = (), None, 0, -1, (0, 2), (1, -1)
    for kind, keep, axis in itertools.product((ops.ReduceSum, ops.ReduceMean), (False, True), axes):
        yield row(kind(keep, axis), normal(2, 3, 4), note=f"keep{keep}-{axis}")
    for kind, keep, axis in itertools.product((ops.ReduceMax, ops.ReduceMin), (False, True), axes):
        yield row(kind(keep, axis), distinct(2, 3, 4), note=f"keep{keep}-{axis}")
    for kind in (ops.ReduceSum, ops.ReduceMax, ops.ReduceMin):
        yield row(kind(False, 1), whole(3, 4), note="int32")
    for kind in (ops.ReduceMax, ops.ReduceMin):
        yield row(kind(False, 1), coarse(3, 6), note="ties", smooth=False)
    for kind in (ops.ReduceSum, ops.ReduceMean, ops.ReduceMax, ops.ReduceMin):
        yield row(kind(), normal(), note="scalar")
    for shape in ((2, 3, 4, 6), (3, 5), (4,), ()):
        yield row(ops.FloatStatus(), np.asarray(normal(*shape) * np.float32(1e38)))
    for wrong in (np.inf, -np.inf):  # NaN, which equals nothing, has its test in tests/train/test_loss_scale.py
        yield row(ops.FloatStatus(), np.append(normal(3, 3), np.float32(wrong)), note=str(wrong), smooth=False)
    for axis, output in ((-1, dt.int32), (0, dt.int64), (1, dt.int32)):
        yield row(ops.Argmax(axis, output), distinct(3, 4, 2), note=f"axis{axis}")
    yield row(ops.Argmax(), coarse(4, 6), note="ties")
    yield row(ops.Argmax(0), whole(5, 2), note="int32")
    for x, shape in (((3,), (2, 3)), ((2, 1, 3), (2, 4, 3)), ((), (2, 2)), ((1, 3), (4, 3)), ((2, 3), (2, 3))):
        yield row(ops.BroadcastTo(shape), normal(*x))
    yield row(ops.BroadcastTo((2, 3)), whole(3), note="int32")


def arrays() -> Iterator[Sample]:
    for shape in ((6, 4), (-1,), (2, -1, 2), (2, 3, 4)):
        yield row(ops.Reshape(shape), normal(2, 3, 4), note=str(shape))
    yield row(ops.Reshape(()), normal(1, 1), note="to-scalar")
    yield row(ops.Flatten(), normal(2, 3, 4, 5))
    yield row(ops.Flatten(), normal(3))
    for axis in (0, 1, -1, 2):
        yield row(ops.ExpandDims(axis), normal(2, 3), note=f"axis{axis}")
    for shape in ((2, 3, 4), ()):
        yield row(ops.DynamicShape(), np.ones(shape, np.float32))
    for perm in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
        yield row(ops.Transpose(perm), normal(2, 3, 4), note=str(perm))
    yield row(ops.Cast(dt.float32), normal(3, 2), note="same")
    yield row(ops.Cast(dt.int32), normal(3, 2) * 5, note="float32-int32")
    yield row(ops.Cast(dt.float32), whole(3, 2), note="int32-float32")
    yield row(ops.Cast(dt.int64), whole(3, 2, low=0, dtype=np.uint8), note="uint8-int64")
    yield row(ops.Cast(dt.float32), normal(3, 2) > 0, note="bool-float32")
    yield row(ops.Cast(dt.bool_), coarse(3, 2), note="float32-bool")
    for dtype in (np.int32, np.int64):
        yield row(ops.OneHot(depth=4), whole(5, low=0, high=4, dtype=dtype), note=dtype.__name__)
    yield row(ops.OneHot(-1, 3, 2.0, -1.0), whole(2, 4, low=0, high=3), note="values")
    yield row(ops.OneHot(depth=3), np.array([-1, 0, 2, 3, -3], np.int32), note="outside")
    yield row(ops.OneHot(depth=3, dtype=dt.int32), whole(4, low=0, high=3), note="to-int32")
    for axis, dtype in itertools.product((0, 1, -1), (np.int32, np.int64)):
        indices = whole(2, 3, low=0, high=3, dtype=dtype)
        yield row(ops.Gather(axis), normal(3, 4, 5), indices, note=f"axis{axis}-{dtype.__name__}")
    yield row(ops.Gather(), normal(3, 2), np.array(1, np.int32), note="one")
    yield row(ops.UnsortedSegmentSum(4), normal(5, 3), whole(5, low=0, high=3), note="an-empty-segment")
    yield row(ops.UnsortedSegmentSum(3), normal(2, 4), whole(2, 4, low=0, high=3, dtype=np.int64), note="scalars")
    for axis in (0, 1, -1):
        shapes = [[2, 3, 2] for _ in range(3)]
        for number, shape in enumerate(shapes):
            shape[axis] = number + 1
        yield row(ops.Concat(axis), *(normal(*shape) for shape in shapes), note=f"axis{axis}")
    yield row(ops.Concat(), normal(2, 2), note="single")
    yield row(ops.Concat(), whole(2), whole(3), note="int32")
    yield row(ops.Slice((1, 0), (2, 2)), normal(4, 3))
    yield row(ops.Slice((0, 0, 2), (2, 3, 1)), normal(2, 3, 4))
    yield row(ops.Pad(((1, 0), (2, 3))), normal(2, 3))
    yield row(ops.Pad(((0, 0),)), normal(4))
    yield row(ops.Pad(((0, 2), (1, 0), (0, 0)), value=-1.5), normal(2, 3, 2), note="value")
    yield row(ops.Pad(((1, 0), (2, 3)), value=7), whole(2, 3), note="int32")


def matrices() -> Iterator[Sample]:
    for a, b in itertools.product((False, True), repeat=2):
        x, y = normal(*((4, 3) if a else (3, 4))), normal(*((5, 4) if b else (4, 5)))
        yield row(ops.MatMul(a, b), x, y, note=f"{'T' if a else 'N'}{'T' if b else 'N'}")
    for shape in ((3, 4), (2, 4, 3), (2, 4, 3, 5), (2, 4, 1, 3, 2)):
        yield row(ops.BiasAdd(), normal(*shape), normal(4))
        yield row(ops.BiasAddGrad(), normal(*shape))


def losses() -> Iterator[Sample]:
    for is_grad, dtype in itertools.product((False, True), (np.int32, np.int64)):
        op = ops.SparseSoftmaxCrossEntropyWithLogits(is_grad)
        yield row(op, normal(6, 4), whole(6, low=0, high=4, dtype=dtype), note=f"{is_grad}-{dtype.__name__}")
    yield row(ops.SparseSoftmaxCrossEntropyWithLogits(), normal(3, 4) * 100, whole(3, low=0, high=4), note="far")
    yield row(ops.SoftmaxCrossEntropyWithLogits(), normal(5, 4), distribution(5, 4))
    yield row(
        ops.SoftmaxCrossEntropyWithLogits(), normal(5, 4), np.eye(4, dtype=np.float32)[[0, 3, 1, 1, 2]], note="hot"
    )
    for keep, seed, counter in ((0.5, 1, 0), (0.9, 7, 12), (1.0, 0, 3), (0.3, 2**31 - 1, 2**40)):
        yield row(ops.Dropout(keep, seed), normal(6, 7), np.array(counter, np.int64), note=f"{keep}-{seed}-{counter}")


def updates() -> Iterator[Sample]:
    def scalar(value: float) -> np.ndarray:
        return np.array(value, np.float32)

    for shape, nesterov in itertools.product(((3, 4), ()), (False, True)):
        state = normal(*shape), normal(*shape)
        op = ops.ApplyMomentum(nesterov)
        yield row(op, *state, scalar(0.1), normal(*shape), scalar(0.9), note=f"{shape}-{nesterov}")
    options = (0.0, 0.0, False), (0.3, 0.0, False), (0.0, 0.1, False), (0.0, 0.1, True), (0.3, 0.1, False)
    for option, stat in itertools.product(options, (0.0, 1.0, 2.0)):
        operands = normal(3, 4), normal(3, 4), scalar(0.1), normal(3, 4), scalar(0.9), scalar(stat)
        yield row(ops.SGD(*option), *operands, note=f"{option}-{stat}")
    for steps in (1, 5):
        rates = scalar(0.9**steps), scalar(0.99**steps), scalar(0.01), scalar(0.9), scalar(0.99), scalar(1e-8)
        for nesterov in (False, True):
            op, note = ops.Adam(use_nesterov=nesterov), f"step{steps}-nesterov{nesterov}"
            yield row(op, normal(2, 3), normal(2, 3), positive(2, 3), *rates, normal(2, 3), note=note)


def pools() -> Iterator[Sample]:
    sizes = (
        ((6, 8), 2, 2),  # tiles
        ((6, 9), (2, 3), (2, 3)),  # tiles, not square
        ((7, 7), 2, 2),  # a row and a column are left over
        ((7, 6), 3, 2),  # overlaps
        ((5, 6), (3, 2), (1, 2)),
        ((5, 5), 2, 3),  # gaps
        ((4, 5), 1, 1),
        ((4, 4), 4, 4),  # the whole image
        ((1, 7), (1, 3), (1, 2)),
    )
    for ((h, w), size, stride), mode in itertools.product(sizes, ("valid", "same")):
        note = f"{h}x{w}-{size}-{stride}-{mode}".replace(" ", "")
        x = distinct(2, 3, h, w)
        most, mean = ops.MaxPool(size, stride, mode), ops.AvgPool(size, stride, mode)
        out = most.kernel(x)
        dout = normal(*out.shape)
        yield row(most, x, note=note)
        yield row(mean, normal(2, 3, h, w), note=note)
        yield row(ops.MaxPoolGrad(size, stride, mode), x, out, dout, note=note)
        yield row(ops.AvgPoolGrad(size, stride, mode, x_shape=x.shape), dout, note=note)
        tied = coarse(2, 3, h, w)
        yield row(most, tied, note=f"{note}-ties", smooth=False)
        yield row(ops.MaxPoolGrad(size, stride, mode), tied, most.kernel(tied), dout, note=f"{note}-ties")


def padded_pools() -> Iterator[Sample]:
    plain = {"dilation": (1, 1), "ceil_mode": False}
    dilated, incomplete = {**plain, "dilation": (2, 1)}, {**plain, "ceil_mode": True}
    windows = (
        ((6, 8), 3, 2, 1, plain),  # ResNet's
        ((5, 6), (3, 2), (2, 1), (2, 0, 0, 1), plain),
        ((4, 5), (3, 3), (4, 3), (1, 2, 0, 1), plain),  # padding that no window reaches
        ((7, 8), 2, 2, 1, dilated),
        ((6, 8), 3, 2, 0, incomplete),
        ((5, 7), (3, 2), (2, 3), (1, 1, 0, 1), incomplete),
        ((2, 3), 3, 2, 0, incomplete),  # smaller than a window
        ((6, 5), (1, 2), (4, 2), 0, incomplete),  # a window would begin after the image
        ((6, 8), 2, 4, 0, {"dilation": (3, 3), "ceil_mode": True}),  # padded further than the kernel
    )
    for (h, w), size, stride, padding, more in windows:
        note = f"{h}x{w}-{size}-{stride}-pad{padding}-{'-'.join(map(str, more.values()))}".replace(" ", "")
        x, tied = distinct(2, 3, h, w), coarse(2, 3, h, w)
        most = ops.MaxPool(size, stride, "pad", padding=padding, **more)
        back = ops.MaxPoolGrad(**most.common_attributes())
        dout = normal(*most.kernel(x).shape)
        yield row(most, x, note=note)
        yield row(most, tied, note=f"{note}-ties", smooth=False)
        yield row(back, x, most.kernel(x), dout, note=note)
        yield row(back, tied, most.kernel(tied), dout, note=f"{note}-ties")
        for counted in (False, True):
            mean = ops.AvgPool(**most.common_attributes(), count_include_pad=counted)
            back_mean = ops.AvgPoolGrad(**most.common_attributes(), count_include_pad=counted, x_shape=x.shape)
            yield row(mean, normal(2, 3, h, w), note=f"{note}-{counted}")
            yield row(back_mean, dout, note=f"{note}-{counted}")


Geometry = tuple[tuple[int, ...], ops.Conv2D, tuple[int, ...], str]  # shape of x, Conv2D, shape of w, note


def geometries() -> Iterator[Geometry]:
    strides = (1, 1), (2, 2), (3, 1)
    paddings = ("valid", (0, 0, 0, 0)), ("same", (0, 0, 0, 0)), ("pad", (2, 0, 1, 3))
    dilations = (1, 1), (2, 1), (2, 2)
    groups = 1, 2, 4  # 4 is depthwise with two filters for each channel
    for stride, (mode, pad), dilation, group in itertools.product(strides, paddings, dilations, groups):
        op = ops.Conv2D(8, (3, 2), 1, mode, pad, stride, dilation, group)
        note = f"s{stride}-{mode}-d{dilation}-g{group}".replace(" ", "")
        yield (2, 4, 7, 6), op, (8, 4 // group, 3, 2), note
    special = (
        ((2, 3, 5, 5), ops.Conv2D(4, (1, 1)), "1x1"),
        ((2, 3, 5, 6), ops.Conv2D(4, (1, 1), stride=(2, 2)), "1x1-stride2"),
        ((2, 3, 5, 4), ops.Conv2D(4, (5, 4)), "kernel-is-image"),
        ((2, 3, 4, 4), ops.Conv2D(2, (5, 5), pad_mode="pad", pad=(1, 1, 1, 1)), "kernel-larger-than-image"),
        ((2, 3, 5, 5), ops.Conv2D(2, (4, 4), pad_mode="same"), "even-kernel-same"),
        ((1, 1, 9, 9), ops.Conv2D(1, (3, 3), pad_mode="same", stride=(4, 4)), "stride-larger-than-kernel"),
        ((1, 2, 9, 8), ops.Conv2D(3, (2, 2), stride=(4, 4)), "rows-are-left-over"),
        ((1, 2, 8, 8), ops.Conv2D(2, (3, 3), pad_mode="pad", pad=(0, 1, 0, 1), stride=(2, 2)), "odd-padding"),
        ((3, 6, 4, 4), ops.Conv2D(6, (3, 3), pad_mode="same", group=6), "depthwise"),
        ((1, 1, 8, 8), ops.Conv2D(6, (5, 5)), "lenet-conv1"),
        ((2, 4, 7, 7), ops.Conv2D(4, (3, 3), pad_mode="pad", pad=(1, 1, 1, 1), stride=(2, 2)), "resnet-stride2"),
        ((2, 4, 7, 5), ops.Conv2D(6, (1, 1), stride=(2, 2)), "1x1-stride2-odd"),
        ((2, 4, 7, 5), ops.Conv2D(6, (1, 1), pad_mode="same", stride=(3, 2)), "1x1-stride3-same"),
        ((2, 4, 5, 5), ops.Conv2D(6, (1, 1), stride=(2, 2), group=2), "1x1-stride2-groups"),
        ((2, 4, 7, 5), ops.Conv2D(4, (3, 3), pad_mode="same", stride=(2, 2), group=4), "depthwise-stride2-odd"),
        ((2, 3, 8, 6), ops.Conv2D(3, (3, 3), pad_mode="same", stride=(2, 2), group=3), "depthwise-stride2-even"),
        ((1, 3, 9, 7), ops.Conv2D(3, (3, 3), pad_mode="same", dilation=(2, 2), group=3), "depthwise-dilation2"),
        ((2, 3, 7, 9), ops.Conv2D(6, (5, 3), pad_mode="pad", pad=(2, 1, 0, 2), stride=(3, 2), group=3), "multiplier2"),
        ((1, 2, 1, 7), ops.Conv2D(3, (1, 4), pad_mode="same", stride=(1, 2)), "one-row-even-kernel-same"),
    )
    for x, op, note in special:
        yield x, op, (op.out_channel, x[1] // op.group, *op.kernel_size), note


def many_channels() -> Iterator[Geometry]:
    """3x3 filters with as many channels as Winograd's transforms need, and tiles that reach beyond the results."""
    for shape, op, note in (
        ((1, 16, 8, 4), ops.Conv2D(20, (3, 3), pad_mode="same"), "winograd-same"),
        ((1, 16, 6, 10), ops.Conv2D(16, (3, 3)), "winograd-valid"),
        ((1, 20, 7, 10), ops.Conv2D(16, (3, 3), pad_mode="pad", pad=(0, 2, 1, 0)), "winograd-odd"),
    ):
        yield shape, op, (op.out_channel, shape[1], 3, 3), note


def convolutions(batch: int | None = None, cases: Callable[[], Iterator[Geometry]] = geometries) -> Iterator[Sample]:
    for shape, op, w_shape, note in cases():
        x_shape = (batch or shape[0], *shape[1:])
        x, w = normal(*x_shape), normal(*w_shape)
        dout = normal(x_shape[0], op.out_channel, *op.windows(x_shape).out)
        yield row(op, x, w, note=note)
        yield row(ops.Conv2DBackpropInput(**op.common_attributes(), input_size=x_shape), dout, w, note=note)
        yield row(ops.Conv2DBackpropFilter(**op.common_attributes(), filter_size=w_shape), dout, x, note=note)


@cache
def normalizations() -> tuple[Sample, ...]:
    rows = []
    for shape in ((8, 3), (3, 4, 5, 2), (2, 1, 3, 4), (1, 3), (1, 2, 1, 1)):  # the last two: one element per channel
        c = shape[1]
        for is_training, epsilon in itertools.product((False, True), (1e-5, 0.1)):
            note = f"{shape}-{is_training}-{epsilon}".replace(" ", "")
            operands = normal(*shape) * 2 + 3, positive(c), normal(c), normal(c), positive(c)
            op = ops.BatchNorm(is_training, epsilon, 0.3)
            rows.append(row(op, *operands, note=note))
            reserved = tuple(np.asarray(a) for a in op.kernel(*operands)[3:])
            gradient = ops.BatchNormGrad(is_training, epsilon)
            rows.append(row(gradient, normal(*shape), *operands[:2], *reserved, note=note))
    return tuple(rows)


def synchronized_normalizations() -> Iterator[Sample]:
    """In one process they compute what those above do, so of the same operands."""
    for sample in normalizations():
        synchronized = getattr(ops, f"Sync{sample.op.name}")
        yield row(synchronized(**sample.op.attributes()), *sample.arrays, note=sample.note)


def identities() -> Iterator[Sample]:
    x = np.arange(-3.0, 3.0, dtype=np.float32).reshape(2, 3) / 4
    yield row(ops.Identity(), x)
    yield row(ops.Identity(), x.astype(np.int32), note="int32")
    yield row(ops.HookBackward(lambda douts: None), x)
    yield row(ops.CustomGradient(1, lambda operands, results, douts: [None]), x[0], x)
    yield row(ops.StopGradient(), x, smooth=False)


FAMILIES = (
    *(unary, reduced, binary, reductions, arrays, matrices, losses, updates, pools, padded_pools, convolutions),
    normalizations,
    synchronized_normalizations,
    identities,
)
ALL_FAMILIES = (*FAMILIES, *NETWORK_FAMILIES, *TENSOR_FAMILIES, *FUNCTION_FAMILIES, *INDEXED_FAMILIES)
SAMPLES = [sample for family in ALL_FAMILIES for sample in rows_of(family)]
WIDE = [*convolutions(9), *convolutions(9, many_channels)]  # large enough for the forms batch last

"""Operators that select, order and scatter elements: against stock onnxruntime, and their gradients."""

import itertools

import numpy as np
import pytest
from both_modes import nodes_of
from one_node import RNG, Constant, check_gradients, check_outputs, node
from tables import table

from runner.errors import ConfigError


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def distinct(*shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    return (RNG.permutation(count) * 0.1 - count * 0.05).reshape(shape).astype(np.float32)


def whole(*shape: int, low: int = -3, high: int = 3, dtype: type = np.int64) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def ints(*numbers: object) -> np.ndarray:
    return np.array(numbers, np.int64)


def known(*numbers: object) -> Constant:
    return Constant(ints(*numbers))


def scalar(number: int) -> Constant:
    return Constant(np.array(number, np.int64))


GATHERS = [
    *(node("Gather", normal(3, 4, 5), whole(2, 3), axis=axis) for axis in (0, 1, -1)),
    node("Gather", normal(4, 2), whole(3, dtype=np.int32), opset=9),
    *(
        node("Gather", normal(3, 4, 5), scalar(k), axis=axis, note=f"known {k}")
        for k in (0, 2, -1)
        for axis in (0, 1, -1)
    ),
    node("Gather", normal(5, 3), known(1, 2, 3), note="a known range"),
    node("Gather", normal(5, 3), known(4, 2, 0), note="a known range downwards"),
    node("Gather", normal(5, 3), known(0, 1, 2, 3, 4), note="everything"),
    node("Gather", normal(5, 3), known([3, 0], [-1, 3]), note="known numbers"),
    node("Gather", normal(5, 3), known(2, 2), note="known twice"),
    node("Gather", normal(5, 3), np.array(2), note="a scalar"),
    *(node("GatherElements", normal(3, 4, 2), whole(3, 4, 2, high=2, low=-2), axis=axis) for axis in (0, 1, -1)),
    node("GatherElements", normal(3, 4), whole(2, 3), axis=0),
    node("GatherElements", normal(3, 4), Constant(whole(3, 6)), axis=1, note="known"),
    node("GatherND", normal(3, 4, 5), whole(2, 2)),
    node("GatherND", normal(3, 4, 5), whole(2, 3, 3)),
    node("GatherND", normal(3, 4), whole(5, 1), opset=11),
    node("GatherND", normal(2, 4, 3), whole(2, 5, 1), batch_dims=1),
    node("GatherND", normal(2, 3, 4, 3), whole(2, 3, 2), batch_dims=2),
    node("GatherND", normal(2, 4, 3), whole(2, 2), batch_dims=1, note="one row for each sample"),
    node("GatherND", normal(4, 3), known([0, 1], [-1, 2]), note="known"),
]
LAST = np.iinfo(np.int64).max
FIRST = np.iinfo(np.int64).min
SLICES = [
    node("Slice", normal(4, 5, 6), known(1, 2), known(3, 5), known(0, 2)),
    node("Slice", normal(4, 5), known(1), known(LAST)),
    node("Slice", normal(4, 5), known(-3, -4), known(-1, LAST), known(0, 1), known(1, 2)),
    node("Slice", normal(4, 5), known(0), known(-1), known(-1)),
    node("Slice", normal(4, 7), known(-1), known(FIRST), known(1), known(-1), note="reversed"),
    node("Slice", normal(4, 7), known(5), known(0), known(1), known(-2)),
    node("Slice", normal(4, 7), known(100), known(-100), known(1), known(-3)),
    node("Slice", normal(4, 7), known(-100), known(100), known(1), known(3)),
    node("Slice", normal(4, 7), known(0, 0), known(4, 7), note="everything"),
    node("Slice", normal(4, 7), known(-100), known(100), known(1), known(LAST), note="one column"),
    node("Slice", normal(4, 5), opset=9, starts=[1, -3], ends=[3, 1000], axes=[0, 1]),
    node("Slice", normal(4, 5), opset=9, starts=[1], ends=[3]),
]
SCATTERS = [
    *(
        node(
            "ScatterElements",
            normal(3, 4),
            ints([0, 1, -1, 0], [2, 2, 0, 1]),
            normal(2, 4),
            axis=0,
            reduction=reduction,
        )
        for reduction in ("none", "add", "mul", "max", "min")
    ),
    node("ScatterElements", normal(3, 4), ints([0, -1], [2, 3]), normal(2, 2), axis=1),
    node("ScatterElements", normal(5), ints(3, 0), normal(2), opset=11),
    node("ScatterElements", normal(2, 3, 4), ints([[1], [0]]), normal(1, 2, 1), axis=1),
    node("ScatterElements", normal(3, 2), ints([0, 0], [0, 1]), normal(2, 2), axis=0, reduction="add", note="twice"),
    node("Scatter", normal(3, 4), ints([0, 1, 2, 0]), normal(1, 4), axis=0, opset=9),
    *(
        node("ScatterND", normal(4, 3), ints([1], [-1]), normal(2, 3), reduction=reduction)
        for reduction in ("none", "add", "mul", "max", "min")
    ),
    node("ScatterND", normal(4, 3), ints([[0, 1], [3, -1]]), normal(1, 2), opset=11),
    node("ScatterND", normal(4, 3), ints([1], [1]), normal(2, 3), reduction="add", note="twice"),
    node("ScatterND", normal(4, 3), known([1], [2]), normal(2, 3), note="known"),
]
CROPS = [
    node("CenterCropPad", normal(5, 4), known(2, 7)),
    node("CenterCropPad", normal(5, 4, 3), known(8, 2), axes=[0, -1]),
    node("CenterCropPad", normal(5, 4), known(4, 4)),
]
ORDERS = [
    *(
        node("TopK", distinct(3, 4, 5), known(2), outputs=2, ints=(1,), axis=axis, largest=largest)
        for axis, largest in itertools.product((0, 1, -1), (0, 1))
    ),
    node("TopK", distinct(3, 6), known(6), outputs=2, ints=(1,), sorted=1),
    node("TopK", distinct(3, 6), outputs=2, ints=(1,), opset=9, k=3),
    node("TopK", distinct(3, 6), known(3), outputs=2, ints=(1,), opset=10, axis=0),
    *(
        node("CumSum", normal(3, 4), scalar(axis), exclusive=exclusive, reverse=reverse)
        for axis, exclusive, reverse in itertools.product((0, -1), (0, 1), (0, 1))
    ),
    node("CumSum", normal(3, 4), known(1), opset=11),
    *(node("Trilu", normal(2, 4, 5), scalar(k), upper=upper) for k in (-1, 0, 2, 9, LAST, FIRST) for upper in (0, 1)),
    node("Trilu", normal(4, 4)),
    node("ReverseSequence", normal(4, 3, 2), ints(2, 4, 1)),
    node("ReverseSequence", normal(3, 4, 2), ints(2, 4, 1), time_axis=1, batch_axis=0),
    node("Compress", normal(3, 4), Constant(np.array([True, False, True])), axis=0),
    node("Compress", normal(3, 4), Constant(np.array([False, True, True, False])), axis=-1),
    node("Compress", normal(3, 4), Constant(np.array([True, False, True, True, False, True]))),
]
FLAT = [
    *(
        node(name, whole(3, 4, 5).astype(np.float32), ints=(0,), axis=axis, keepdims=keep, select_last_index=last)
        for name, axis, keep, last in itertools.product(("ArgMax", "ArgMin"), (0, -1), (0, 1), (0, 1))
    ),
    node("ArgMax", normal(3, 4), ints=(0,)),
    node("ArgMax", normal(3, 4), ints=(0,), opset=9, axis=1),
    node("OneHot", whole(2, 3), known(4), Constant(np.array([0, 1], np.float32))),
    node("OneHot", whole(2, 3, high=9), scalar(4), Constant(np.array([-1, 2], np.float32)), axis=1),
    node("OneHot", whole(2, 3), scalar(3), Constant(np.array([0, 1], np.float32)), axis=0, opset=9),
    node("OneHot", whole(3), scalar(5), known(0, 7), ints=(0,), axis=-2),
]
KNOWN = [
    node("Gather", known(2, 3, 4), scalar(1), ints=(0,)),
    node("Gather", known(2, 3, 4), known(-1, 0), ints=(0,)),
    node("Slice", known(2, 3, 4, 5), known(1), known(3), known(0), ints=(0,)),
    node("Slice", known(2, 3, 4, 5), known(-1), known(FIRST), known(0), known(-1), ints=(0,)),
    node("Slice", known(2, 3, 4, 5), known(2), known(2), known(0), ints=(0,), note="nothing"),
    node("GatherElements", known(2, 3, 4), known(2, 0), ints=(0,)),
    node("GatherND", known([2, 3], [4, 5]), known([0, 1], [1, 1]), ints=(0,)),
    node("ScatterElements", known(2, 3, 4), known(1), known(9), ints=(0,)),
    node("ScatterND", known(2, 3, 4), known([1], [2]), known(9, 8), ints=(0,)),
    node("ScatterND", known(2, 3, 4), known([1], [1]), known(9, 8), ints=(0,), reduction="add"),
    node("ScatterND", Constant(np.zeros((3, 2), bool)), known([1], [2]), Constant(np.ones((2, 2), bool)), ints=(0,)),
    node("TopK", known(5, 7, 6), known(2), outputs=2, ints=(0, 1)),
    node("CumSum", known(1, 2, 3), scalar(0), ints=(0,)),
    node("Trilu", Constant(np.ones((3, 3), np.int64)), scalar(1), ints=(0,)),
    node("ArgMax", known(4, 9, 1), ints=(0,), axis=0),
    node("OneHot", known(1, -1), scalar(3), known(0, 1), ints=(0,)),
    node("Compress", known(4, 5, 6), Constant(np.array([False, True, True])), ints=(0,)),
    node("NonZero", known([0, 3], [1, 0]), ints=(0,)),
    node("NonZero", Constant(np.array([True, False, True])), ints=(0,)),
    *(node("Unique", known(5, 2, 5, 1, 2), outputs=4, ints=(0, 1, 2, 3), sorted=by) for by in (0, 1)),
    *(node("Unique", known([5, 2], [1, 1], [5, 2]), outputs=4, ints=(0, 1, 2, 3), sorted=by, axis=0) for by in (0, 1)),
]
GRIDS = [
    node(
        "GridSample",
        normal(2, 3, 4, 5),
        (RNG.uniform(-1.4, 1.4, (2, 3, 6, 2))).astype(np.float32),
        opset=16,
        mode=mode,
        padding_mode=padding,
        align_corners=corners,
    )
    for mode, padding, corners in itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (0, 1))
]
AFFINE = [
    node("AffineGrid", normal(2, 2, 3), known(2, 3, 4, 5), opset=20),
    node("AffineGrid", normal(2, 2, 3), known(2, 3, 4, 5), opset=20, align_corners=1),
    node("AffineGrid", normal(1, 3, 4), known(1, 2, 2, 3, 4), opset=20),
]
DIFFERENTIABLE = [
    one for one in [*GATHERS, *SLICES, *SCATTERS, *ORDERS, *CROPS, *GRIDS, *AFFINE] if "mul" not in str(one.attributes)
]


@table("one", [*GATHERS, *SLICES, *SCATTERS, *ORDERS, *CROPS, *FLAT, *KNOWN, *GRIDS, *AFFINE], ids=str)
def test_outputs(one, tmp_path):
    check_outputs(one, tmp_path)


@table("one", DIFFERENTIABLE, ids=str)
def test_gradients(one, tmp_path):
    check_gradients(one, tmp_path)


def test_a_known_place_is_a_slice(tmp_path):
    """`x[:, 0]` of a transformer: its gradient pads, and no scatter is needed."""
    one = node("Gather", normal(2, 5, 3), scalar(0), axis=1)
    made = [
        entry.op.name for entry in nodes_of(one.network(one.write(tmp_path)).network.construct, "graph", *one.given)
    ]
    assert made == ["StridedSlice", "Reshape"]


def refused(one, folder):
    with pytest.raises(ConfigError) as caught:
        one.network(one.write(folder)).run("pynative")
    return str(caught.value)


@table(
    ("one", "what"),
    [
        (node("Gather", normal(3, 4), scalar(3)), "an index is out of range"),
        (node("Gather", normal(3, 4), scalar(0), axis=2), "an axis is out of range"),
        (node("Slice", normal(3, 4), known(0), known(1), known(0), known(0)), "or a step is 0"),
        (node("Slice", normal(3, 4), known(0, 1), known(1)), "do not match"),
        (node("Slice", normal(3, 4), ints(0), ints(1)), "must be known when the network is imported"),
        (node("GatherND", normal(3, 4), whole(2, 1), batch_dims=1), "the operands have no such samples"),
        (node("TopK", normal(3, 4), known(5), outputs=2, ints=(1,)), "k is out of range"),
        (node("TopK", normal(3, 4), known(1, 2), outputs=2, ints=(1,)), "an input must be one number"),
        (node("CumSum", normal(3, 4), known()), "an input must be one number"),
        (node("AffineGrid", normal(2, 2, 3), known(2, 3, 2**40, 2**40), opset=20), "not enough memory"),
        (node("OneHot", whole(2, 3), scalar(2**40), known(0, 1), ints=(0,)), "not enough memory"),
        (node("Trilu", normal(3)), "needs two axes or more"),
        (node("ScatterElements", normal(3, 4), whole(2, 2), normal(2, 3)), "must have one shape"),
        (node("NonZero", whole(3, 4), ints=(0,)), "must be known when the network is imported"),
        (node("GridSample", normal(1, 1, 3, 3), normal(1, 2, 2, 2), opset=16, mode="bicubic"), "not supported"),
        (node("GridSample", normal(1, 1, 3, 3), normal(1, 2, 2, 3), opset=16), "needs images (N, C, H, W)"),
    ],
    ids=str,
)
def test_what_is_refused(one, what, tmp_path):
    assert what in refused(one, tmp_path)

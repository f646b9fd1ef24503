"""Rows of operators along an axis and of those with an operand of positions: orders, segments, scattering."""

import itertools
from collections.abc import Iterator

import numpy as np
from operands import Sample, coarse, distinct, normal, positive, row, whole

from runner import ops


def orders() -> Iterator[Sample]:
    for axis, descending in itertools.product((-1, 0, 1), (False, True)):
        yield row(ops.Sort(axis, descending), distinct(3, 4, 2), note=f"axis{axis}-{descending}")
        yield row(ops.Sort(axis, descending), coarse(4, 6), note=f"ties-axis{axis}-{descending}", smooth=False)
    for k in (1, 3, 5):
        yield row(ops.TopK(k=k), distinct(3, 5), note=f"k{k}")
        yield row(ops.TopK(True, k), coarse(2, 3, 7), note=f"ties-k{k}", smooth=False)
    for axis, largest in itertools.product((0, 1, -1), (False, True)):
        yield row(ops.TopK(True, 2, axis, largest), distinct(3, 4, 2), note=f"axis{axis}-{largest}")
        yield row(ops.TopK(True, 2, axis, largest), coarse(3, 4, 2), note=f"ties-{axis}-{largest}", smooth=False)
    for op in (ops.Sort(0, True), ops.Sort(0), ops.TopK(k=2)):
        yield row(op, whole(5), note="int32")
        yield row(op, whole(4, 3, dtype=np.int64), note="int64")


def along_an_axis() -> Iterator[Sample]:
    for axis in ((), 0, (0, 2), (-1,), (0, 1, 2)):
        yield row(ops.ReverseV2(axis), normal(2, 3, 4), note=str(axis))
    yield row(ops.ReverseV2(1), whole(2, 3), note="int32")
    for exclusive, reverse, axis in itertools.product((False, True), (False, True), (0, -1, 1)):
        op = ops.CumProd(exclusive, reverse, axis)
        yield row(op, positive(3, 5, 2), note=f"{exclusive}-{reverse}-{axis}")
    yield row(ops.CumProd(axis=0), whole(7), note="int32")
    for dim, dtype in itertools.product((0, 1, -1), (np.int32, np.int64)):
        index = whole(2, 3, 2, low=-2, high=2, dtype=dtype)
        yield row(ops.GatherD(dim), normal(2, 3, 2), index, note=f"dim{dim}-{dtype.__name__}")
        yield row(ops.GatherDGrad(dim, (2, 3, 2)), normal(2, 3, 2), index, note=f"dim{dim}-{dtype.__name__}")
    yield row(ops.GatherD(1), normal(4, 3), whole(2, 5, low=0, high=3), note="smaller")
    yield row(ops.GatherDGrad(1, (4, 3)), normal(2, 5), whole(2, 5, low=0, high=3), note="smaller")


def selections() -> Iterator[Sample]:
    for shape in ((-1, 4, 3), (5, -1, 4, -1), (-1, -1, -1)):
        yield row(ops.BroadcastTo(shape), normal(2, 1, 3), note=str(shape))
    yield row(ops.Softmax((1,)), normal(3, 4), note="a-tuple")
    yield row(ops.Pad([[1, 0], [0, 2]]), normal(3, 4), note="lists")
    yield row(ops.Squeeze([0, -1]), normal(1, 4, 1), note="a-list")
    yield row(ops.Select(), normal(2, 3) > 0, normal(2, 3) > 0, normal(3) > 0, note="bool")
    for axis in (0, 1, 2):
        yield row(ops.OneHot(axis, 3), whole(2, 4, low=0, high=3), note=f"axis{axis}")


def segments() -> Iterator[Sample]:
    for kind in (ops.UnsortedSegmentMax, ops.UnsortedSegmentMin, ops.UnsortedSegmentProd):
        numbers = np.array([0, 2, 2, 0, 1], np.int32)
        yield row(kind(3), distinct(5, 3), numbers)
        yield row(kind(4), distinct(5, 3), numbers, note="an-empty-segment", smooth=False)
        yield row(kind(3), distinct(2, 4), np.array([[0, 1, 2, 0], [1, 1, 2, 2]], np.int64), note="scalars")
        yield row(kind(2), coarse(6, 3), whole(6, low=0, high=2), note="ties", smooth=False)
        yield row(kind(3), whole(6, 2), whole(6, low=0, high=3), note="int32")


def scattering() -> Iterator[Sample]:
    for mode in ("add", "sub", "mul", "max", "min", "div"):
        op = ops.ScatterReduce(mode)
        indices = np.array([[0], [3], [0]], np.int32)
        yield row(op, positive(4, 3), indices, positive(3, 3), note=f"{mode}-rows")
        places = np.array([[[0, 1], [2, 0]]], np.int64)
        yield row(op, positive(4, 3), places, positive(1, 2), note=f"{mode}-elements")
    for mode in ("add", "sub", "max", "update"):
        yield row(ops.ScatterReduce(mode), whole(4, 2), np.array([[2], [1]], np.int32), whole(2, 2), note=f"{mode}-int")
    yield row(ops.ScatterReduce(), normal(5, 2), np.array([[4], [0]], np.int32), normal(2, 2), note="update")


def uniform_numbers() -> Iterator[Sample]:
    for shape, stream, counter in (((4, 3), 1, 0), ((), 7, 5), ((2, 0), 3, 1), ((5,), 2**32 - 1, 2**40)):
        yield row(ops.UniformNumbers(shape, stream), np.array(counter, np.int64), note=f"{shape}-{stream}-{counter}")


INDEXED_FAMILIES = orders, along_an_axis, selections, segments, scattering, uniform_numbers

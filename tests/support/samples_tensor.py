"""Rows of the contract for the operators that the syntax and the methods of tensors need."""

import itertools
from collections.abc import Iterator

import numpy as np
from operands import Sample, coarse, normal, positive, row, whole

from runner import ops


def divisions() -> Iterator[Sample]:
    shapes = ((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((2, 3), ()), ((), ())
    for kind, (x, y) in itertools.product((ops.FloorDiv, ops.FloorMod, ops.Mod), shapes):
        yield row(kind(), np.asarray(normal(*x) * 3), positive(*y))
    for kind in (ops.FloorDiv, ops.FloorMod, ops.Mod):
        yield row(kind(), normal(3, 4) * 3, -positive(3, 4), note="negative")
        yield row(kind(), whole(3, 4, low=-9, high=9), whole(4), note="int32")  # a divisor is 0
        yield row(kind(), whole(3, 4, low=-9, high=9, dtype=np.int64), whole(3, 1, dtype=np.int64), note="int64")
        yield row(kind(), np.array([6, -6, 0], np.float32), np.array([3, 3, -3], np.float32), note="0", smooth=False)


def reductions_of_bools() -> Iterator[Sample]:
    for kind, keep, axis in itertools.product((ops.ReduceAll, ops.ReduceAny), (False, True), ((), None, 0, -1, (0, 2))):
        yield row(kind(keep, axis), coarse(2, 3, 4) > 0, note=f"keep{keep}-{axis}")
    for kind in (ops.ReduceAll, ops.ReduceAny):
        yield row(kind(), np.array(True), note="scalar")


def positions() -> Iterator[Sample]:
    x = (3, 4, 2)
    for dtype in (np.int32, np.int64):
        rows = np.array([[2, 0], [0, 3], [1, 1]], dtype)
        yield row(ops.GatherNd(), normal(*x), rows, note=f"blocks-{dtype.__name__}")
        yield row(ops.ScatterNd(x), rows, normal(3, 2), note=f"blocks-{dtype.__name__}")
        yield row(ops.TensorScatterUpdate(), normal(*x), rows, normal(3, 2), note=f"blocks-{dtype.__name__}")
    elements = np.array([[[2, 0, 1], [0, 3, 0]], [[-1, -4, 0], [1, 2, -1]]], np.int32)
    yield row(ops.GatherNd(), normal(*x), elements, note="elements")
    yield row(ops.TensorScatterUpdate(), normal(*x), elements, normal(2, 2), note="elements")
    twice = np.array([[1], [1], [0]], np.int32)
    yield row(ops.GatherNd(), normal(3, 4), twice, note="twice")
    yield row(ops.ScatterNd((3, 4)), twice, normal(3, 4), note="twice")
    yield row(ops.GatherNd(), whole(3, 4), np.array([1, 2], np.int32), note="one")
    yield row(ops.TensorScatterUpdate(), whole(3), np.array([[1]], np.int32), whole(1), note="int32")


def sums() -> Iterator[Sample]:
    for exclusive, reverse, axis in itertools.product((False, True), (False, True), (0, 1, -1)):
        yield row(ops.CumSum(exclusive, reverse, axis), normal(2, 3, 4), note=f"{exclusive}-{reverse}-{axis}")
    for dtype in (np.int8, np.int32, np.int64):
        yield row(ops.CumSum(axis=1), whole(3, 4, dtype=dtype), note=dtype.__name__)


TENSOR_FAMILIES = divisions, reductions_of_bools, positions, sums

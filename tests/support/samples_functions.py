"""Rows of elementwise functions of one and two operands: trigonometry, rounding, quotients, bits."""

import itertools
from collections.abc import Iterator

import numpy as np
from operands import Sample, coarse, normal, positive, row, whole
from samples_networks import away_from

from runner import ops

SHAPES = (2, 3), (), (2, 3, 4, 5)
PAIRS = ((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((2, 3), ()), ((2, 3, 4, 6), (3, 1, 1)), ((), ())
INTEGERS = np.int32, np.int64, np.uint8, np.int8


def within(low: float, high: float, *shape: int) -> np.ndarray:
    """Floats in an interval: 0 is its middle."""
    return np.asarray(low + (high - low) * (np.tanh(normal(*shape)) + 1) / 2, np.float32)


def trigonometry() -> Iterator[Sample]:
    anywhere = ops.Atan, ops.Sinh, ops.Cosh, ops.Asinh, ops.Erf, ops.Erfc, ops.Expm1, ops.Mish, ops.FastGeLU
    for kind, shape in itertools.product(anywhere, SHAPES):
        yield row(kind(), normal(*shape))
    for shape in SHAPES:
        yield row(ops.Tan(), within(-1.2, 1.2, *shape))
        yield row(ops.Asin(), within(-0.9, 0.9, *shape))
        yield row(ops.ACos(), within(-0.9, 0.9, *shape))
        yield row(ops.Atanh(), within(-0.9, 0.9, *shape))
        yield row(ops.Acosh(), within(1.2, 4.0, *shape))
        yield row(ops.Log1p(), within(-0.8, 4.0, *shape))
        yield row(ops.SeLU(), away_from((0.0,), *shape))
        yield row(ops.Softsign(), away_from((0.0,), *shape))
    for kind in (ops.SeLU, ops.Softsign):
        yield row(kind(), np.zeros(3, np.float32), note="zeros", smooth=False)
    for x, y in PAIRS:
        yield row(ops.Atan2(), positive(*x), normal(*y), note=f"{x}-{y}")
    quadrants = np.array([[1, -1, 0, -0.0, 2, -2, 3]], np.float32)
    yield row(ops.Atan2(), quadrants.T.copy(), quadrants, note="quadrants", smooth=False)


def rounding() -> Iterator[Sample]:
    halves = np.array([-2.5, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5], np.float32)
    for kind in (ops.Ceil, ops.Round, ops.Rint):
        for shape in SHAPES:
            yield row(kind(), np.asarray(normal(*shape) * 3))
        yield row(kind(), halves, note="halves", smooth=False)
    for kind, shape in itertools.product((ops.IsNan, ops.IsInf, ops.IsFinite), SHAPES):
        yield row(kind(), normal(*shape))
    for kind, dtype in itertools.product((ops.IsNan, ops.IsInf, ops.IsFinite), (np.int8, np.int32, np.bool_)):
        yield row(kind(), whole(2, 3, low=0, high=2, dtype=dtype), note=dtype.__name__)
    for kind, dtype in itertools.product((ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor), INTEGERS):
        low = 0 if dtype is np.uint8 else -100
        yield row(kind(), whole(4, 3, low=low, high=100, dtype=dtype), whole(3, low=low, high=100, dtype=dtype))
    for dtype in INTEGERS:
        yield row(ops.Invert(), whole(4, 3, low=0, high=100, dtype=dtype), note=dtype.__name__)
    for kind, dtype in itertools.product((ops.Abs, ops.Sign, ops.Square), (np.int32, np.int64)):
        yield row(kind(), whole(4, 3, dtype=dtype), note=dtype.__name__)


def quotients() -> Iterator[Sample]:
    for kind, (x, y) in itertools.product((ops.Div, ops.DivNoNan, ops.Xdivy, ops.Xlogy, ops.MulNoNan), PAIRS):
        yield row(kind(), positive(*x), positive(*y), note=f"{x}-{y}")
    zeros = coarse(4, 5)
    for kind in (ops.Xdivy, ops.Xlogy):
        yield row(kind(), zeros, np.abs(zeros), note="zeros", smooth=False)
    for kind in (ops.DivNoNan, ops.MulNoNan):
        yield row(kind(), zeros, np.abs(coarse(4, 5)), note="zeros", smooth=False)
    for kind, dtype in itertools.product((ops.Div, ops.DivNoNan, ops.TruncateDiv, ops.TruncateMod), INTEGERS):
        low = 0 if dtype is np.uint8 else -9
        yield row(kind(), whole(5, 6, low=low, high=9, dtype=dtype), whole(6, low=low // 3, high=3, dtype=dtype))
    lowest = np.array([np.iinfo(np.int32).min] * 3, np.int32)
    for kind in (ops.Div, ops.TruncateDiv, ops.TruncateMod):
        yield row(kind(), lowest, np.array([-1, 0, 1], np.int32), note="lowest")
    for kind in (ops.TruncateDiv, ops.TruncateMod):
        for x, y in PAIRS:
            yield row(kind(), away_from((), *x), np.full(y, 1.7, np.float32), note=f"{x}-{y}")
        yield row(kind(), away_from((), 4, 5), np.full((4, 5), -1.7, np.float32), note="negative")
    for x, y in PAIRS:
        yield row(ops.SquaredDifference(), normal(*x), normal(*y), note=f"{x}-{y}")
        yield row(ops.ApproximateEqual(0.5), coarse(*x), coarse(*y), note=f"{x}-{y}")
    yield row(ops.SquaredDifference(), whole(4, 3), whole(3), note="int32")


FUNCTION_FAMILIES = trigonometry, rounding, quotients

"""Random counts: the Poisson distribution.

Small means by inversion: as many as there are cumulated probabilities up to a uniform number. Others by the transformed
rejection of Hoermann ("The transformed rejection method for generating Poisson random variables", 1993).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor, Value
from runner.ops.array import Cast, ExpandDims, Reshape, require
from runner.ops.compare import GreaterEqual, Less, LogicalAnd, LogicalNot, LogicalOr, Maximum, Minimum, Select
from runner.ops.composition import as_value
from runner.ops.cumulative_sum import CumSum
from runner.ops.elementwise import Abs, Exp, Log, Sqrt
from runner.ops.math import Floor
from runner.ops.random_numbers import Random, full_shape
from runner.ops.reduce import BroadcastTo, ReduceSum
from runner.ops.rows import Gather
from runner.types import Shape

__all__ = ["Poisson"]

SMALL = 10.0  # means below it are drawn by inversion
COUNTS = 48  # a count of that many or more, for a mean of 10, has a probability below 1e-16
ATTEMPTS = 12  # of a rejection that accepts 80% and more: one element of 2 * 10**8 has none, and is its mean
SMALL_LOGARITHMS = np.array([math.lgamma(k + 1) for k in range(10)])


@dataclass(frozen=True)
class Poisson(Random):
    """Int32 numbers of the Poisson distribution, in the shape that `shape` and the Float32 means broadcast to."""

    def compose(self, shape: Any, mean: Any) -> Value:
        rate = as_value(mean)
        require(rate.dtype.is_float, "means are floats", mean=rate.type)
        full = full_shape(shape, rate)
        wide = Cast(dt.float64)(rate)
        few = Less()(wide, SMALL)
        small = self._inverted(full, Minimum()(wide, SMALL))
        large = self._accepted(full, Maximum()(wide, SMALL))
        result: Value = Cast(dt.int32)(Select()(BroadcastTo(full)(few), small, large))
        return result

    def _inverted(self, shape: Shape, mean: Value) -> Value:
        """How many cumulated probabilities are at most a uniform number: Float64."""
        counts = np.arange(COUNTS, dtype=np.float64)
        logarithms = np.array([math.lgamma(k + 1) for k in range(COUNTS)])
        column = ExpandDims(-1)(mean)
        terms = Exp()(Log()(Maximum()(column, 1e-300)) * Tensor(counts) - column - Tensor(logarithms))
        lengths = (1,) * (len(shape) - mean.ndim)
        cumulated = Reshape((*lengths, *mean.shape, COUNTS))(CumSum()(terms, -1))
        draws = ExpandDims(-1)(Cast(dt.float64)(self.uniform(shape)))
        passed = GreaterEqual()(draws, cumulated)
        result: Value = ReduceSum(axis=-1)(Cast(dt.float64)(passed))
        return result

    def _accepted(self, shape: Shape, mean: Value) -> Value:
        """The first accepted count: Float64."""
        b = Sqrt()(mean) * 2.53 + 0.931
        a = b * 0.02483 - 0.059
        inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
        certain = 0.9277 - 3.6224 / (b - 2.0)  # below it, what is not in the tails is accepted at once
        log_mean = Log()(mean)
        result: Value = BroadcastTo(shape)(Floor()(mean))
        waits: Value = Tensor(np.ones(shape, bool))
        for _ in range(ATTEMPTS):
            u = Cast(dt.float64)(self.uniform(shape)) - 0.5
            v = 1.0 - Cast(dt.float64)(self.uniform(shape))
            us = Maximum()(0.5 - Abs()(u), 1e-9)
            count = Floor()((a * 2.0 / us + b) * u + mean + 0.43)
            safe = Maximum()(count, 0.0)
            left = Log()(v * inverse_alpha / (a / (us * us) + b))
            is_below = Less()(left, safe * log_mean - mean - _log_factorial(safe))
            is_tail = LogicalAnd()(Less()(us, 0.013), Less()(us, v))
            is_inner = LogicalAnd()(GreaterEqual()(us, 0.07), Less()(v, certain))
            accepts = LogicalOr()(is_inner, LogicalAnd()(is_below, LogicalNot()(is_tail)))
            fits = LogicalAnd()(accepts, GreaterEqual()(count, 0.0))
            result = Select()(LogicalAnd()(waits, fits), safe, result)
            waits = LogicalAnd()(waits, LogicalNot()(fits))
        return result


def _log_factorial(count: Value) -> Value:
    """The logarithm of the factorial of whole numbers, Float64: from a table, or by Stirling's series."""
    few = Gather(0)(Tensor(SMALL_LOGARITHMS), Cast(dt.int32)(Minimum()(count, 9.0)))
    k: Value = Maximum()(count, 9.0)
    series = (k + 0.5) * Log()(k) - k + 0.5 * math.log(2.0 * math.pi) + (1.0 / 12.0 - 1.0 / (360.0 * k * k)) / k
    result: Value = Select()(Less()(count, 9.5), few, series)
    return result

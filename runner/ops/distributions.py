"""Random distributions, composed of uniform numbers (`runner/ops/random.py`): of numbers, of counts, and of choices."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.operators import ComposedOperator
from runner.core.values import Operand, Tensor, Value
from runner.ops.activation import Softmax
from runner.ops.array import Cast, Concat, ExpandDims, Reshape, as_value, known, require, require_floats
from runner.ops.elementwise.arithmetic import Abs, Exp, Floor, Log, Pow, Sign, Sqrt
from runner.ops.elementwise.compare import (
    Greater,
    GreaterEqual,
    Less,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    Select,
)
from runner.ops.elementwise.functions import Cos
from runner.ops.indexing.gather import Gather, Sort
from runner.ops.matrices import MatMul
from runner.ops.random import STEP, uniform
from runner.ops.reduce import BroadcastTo, CumSum, ReduceSum
from runner.types import Shape, broadcast


@dataclass(frozen=True)
class Random(ComposedOperator):
    """Base: two seeds, which distinguish the operators of a network."""

    seed: int = 0
    seed2: int = 0

    def uniform(self, shape: Any) -> Value:
        """Float32 numbers from 0 up to, not including, 1."""
        return uniform(shape, self.seed, self.seed2)

    def normal(self, shape: Any) -> Value:
        """Float32 numbers of the normal distribution, up to 5.7 deviations from 0."""
        radius = Sqrt()(Log()(1.0 - self.uniform(shape)) * -2.0)
        return radius * Cos()(self.uniform(shape) * (2.0 * math.pi))


def full_shape(shape: Any, *parameters: Operand) -> Shape:
    """The shape that a shape and the parameters of a distribution broadcast to."""
    lengths = (shape,) if isinstance(shape, int) else tuple(int(known(n, "shape")) for n in shape)
    values = [as_value(parameter) for parameter in parameters]
    like = values[0].type
    return broadcast(like.with_shape(*lengths), *(like.with_shape(*value.shape) for value in values))


# Uniform, normal, Laplace and gamma numbers.


@dataclass(frozen=True)
class UniformReal(Random):
    """Float32 numbers of a shape, from 0 up to, not including, 1."""

    def compose(self, shape: Any) -> Value:
        return self.uniform(shape)


@dataclass(frozen=True)
class UniformInt(Random):
    """Int32 numbers of a shape, from minval up to, not including, maxval."""

    def compose(self, shape: Any, minval: Any, maxval: Any) -> Value:
        low, high = Cast(dt.float32)(as_value(minval)), Cast(dt.float32)(as_value(maxval))
        steps = Cast(dt.int32)(Floor()(self.uniform(shape) * (high - low)))
        return steps + Cast(dt.int32)(low)


@dataclass(frozen=True)
class StandardNormal(Random):
    """Float32 numbers of a shape from the normal distribution with mean 0 and deviation 1."""

    def compose(self, shape: Any) -> Value:
        return self.normal(shape)


@dataclass(frozen=True)
class StandardLaplace(Random):
    """Float32 numbers of a shape from the Laplace distribution with mean 0 and scale 1."""

    def compose(self, shape: Any) -> Value:
        centred = self.uniform(shape) - 0.5 + STEP / 2
        return -Sign()(centred) * Log()(1.0 - 2.0 * Abs()(centred))


ATTEMPTS = 12  # of a rejection that accepts 95% and more: one element of 4 * 10**15 has none


@dataclass(frozen=True)
class TruncatedNormal(Random):
    """Numbers of a shape from the normal distribution within two deviations."""

    dtype: dt.DType = dt.float32

    def compose(self, shape: Any) -> Value:
        numbers = [self.normal(shape) for _ in range(ATTEMPTS // 2)]
        result = numbers[0]
        for other in numbers[1:]:
            result = Select()(Less()(Abs()(result), 2.0), result, other)
        within: Value = Select()(Less()(Abs()(result), 2.0), result, Tensor(0.0, dt.float32))
        return Cast(self.dtype)(within) if self.dtype is not dt.float32 else within


@dataclass(frozen=True)
class Gamma(Random):
    """Float32 numbers of the gamma distribution with shape alpha and scale beta, in the shape that `shape`, alpha and
    beta broadcast to; their mean is alpha * beta."""

    def compose(self, shape: Any, alpha: Any, beta: Any) -> Value:
        shape_of, scale = as_value(alpha), as_value(beta)
        require_floats(alpha=shape_of, beta=scale)
        full = full_shape(shape, shape_of, scale)
        # Below 1, a number of alpha + 1 times a uniform one to the power 1 / alpha.
        is_small = Less()(shape_of, 1.0)
        third = Select()(is_small, shape_of + 1.0, shape_of) - 1.0 / 3.0
        accepted = self._accepted(full, third)
        power = Pow()(1.0 - self.uniform(full), 1.0 / shape_of)
        return Select()(is_small, accepted * power, accepted) * scale

    def _accepted(self, shape: Shape, third: Value) -> Value:
        """By the method of Marsaglia and Tsang: third * (1 + x / sqrt(9 third)) ** 3 of the first accepted x."""
        result: Value = BroadcastTo(shape)(third)
        waits: Value = Tensor(np.ones(shape, bool))
        for _ in range(ATTEMPTS // 2):
            x = self.normal(shape)
            base = 1.0 + x / Sqrt()(third * 9.0)
            cube = base * base * base
            safe = Select()(Greater()(cube, 0.0), cube, Tensor(1.0, dt.float32))
            bound = 0.5 * x * x + third * (1.0 - safe + Log()(safe))
            accepts = Less()(Log()(1.0 - self.uniform(shape)), bound)
            fits = Select()(Greater()(cube, 0.0), accepts, Tensor(np.zeros((), bool)))
            result = Select()(waits, Select()(fits, third * safe, result), result)
            waits = Select()(fits, Tensor(np.zeros((), bool)), waits)
        return result


# Random counts: the Poisson distribution.
#
# Small means by inversion: as many as there are cumulated probabilities up to a uniform number. Others by the
# transformed rejection of Hoermann ("The transformed rejection method for generating Poisson random variables", 1993).

SMALL = 10.0  # means below it are drawn by inversion
COUNTS = 48  # a count of that many or more, for a mean of 10, has a probability below 1e-16
POISSON_ATTEMPTS = 12  # of a rejection that accepts 80% and more: one element of 2 * 10**8 has none, and is its mean
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
        return Cast(dt.int32)(Select()(BroadcastTo(full)(few), small, large))

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
        return ReduceSum(axis=-1)(Cast(dt.float64)(passed))

    def _accepted(self, shape: Shape, mean: Value) -> Value:
        """The first accepted count: Float64."""
        b = Sqrt()(mean) * 2.53 + 0.931
        a = b * 0.02483 - 0.059
        inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
        certain = 0.9277 - 3.6224 / (b - 2.0)  # below it, what is not in the tails is accepted at once
        log_mean = Log()(mean)
        result: Value = BroadcastTo(shape)(Floor()(mean))
        waits: Value = Tensor(np.ones(shape, bool))
        for _ in range(POISSON_ATTEMPTS):
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
    return Select()(Less()(count, 9.5), few, series)


# Random choices: classes and permutations.


def choices(probabilities: Value, count: int, *seeds: int) -> Value:
    """`count` class numbers (Int32) for each row of probabilities with any sum: (..., C) to (..., count)."""
    classes = probabilities.shape[-1]
    rows = Reshape((-1, classes))(probabilities)
    # Element k is the sum of the classes up to k.
    sums = MatMul()(rows, Tensor(np.triu(np.ones((classes, classes), rows.dtype.numpy))))
    number = len(rows)
    draws = ExpandDims(2)(uniform((number, count), *seeds)) * Reshape((number, 1, 1))(ReduceSum(axis=1)(rows))
    passed = GreaterEqual()(draws, Reshape((number, 1, classes))(sums))
    # The last class also for a number that rounding has put above the sum.
    inner = Tensor(np.arange(classes) < classes - 1)
    chosen = ReduceSum(axis=2)(Cast(dt.int32)(passed) * Cast(dt.int32)(inner))
    return Reshape((*probabilities.shape[:-1], count))(chosen)


@dataclass(frozen=True)
class Multinomial(Random):
    """`num_samples` class numbers (Int32) for each row of probabilities, with replacement: (C,) or (N, C) of floats."""

    def compose(self, inputs: Any, num_samples: int) -> Value:
        x = as_value(inputs)
        require_floats(inputs=x)
        require(x.ndim in (1, 2) and num_samples >= 1, "needs (C,) or (N, C)", inputs=x.type, num_samples=num_samples)
        return choices(Cast(dt.float32)(x), num_samples, self.seed, self.seed2)


@dataclass(frozen=True)
class RandomCategorical(ComposedOperator):
    """`num_sample` class numbers for each row of logits (N, C): operands logits, num_sample, seed."""

    dtype: dt.DType = dt.int64

    def compose(self, logits: Value, num_sample: int, seed: int = 0) -> Value:
        require(logits.ndim == 2 and logits.dtype.is_float, "needs logits (N, C)", logits=logits.type)
        made = choices(Softmax()(Cast(dt.float32)(logits)), int(known(num_sample, "num_sample")), int(seed))
        return Cast(self.dtype)(made)


@dataclass(frozen=True)
class Randperm(ComposedOperator):
    """A random order of 0 to n - 1, then `pad` up to `max_length`: (max_length,). n must be known."""

    max_length: int = 1
    pad: int = -1
    dtype: dt.DType = dt.int32

    def compose(self, n: Any) -> Value:
        count = int(np.ravel(known(n, "n"))[0])
        require(0 <= count <= self.max_length, "n must be 0 to max_length", n=count, max_length=self.max_length)
        rest = Tensor(np.full(self.max_length - count, self.pad, self.dtype.numpy))
        if not count:
            return rest
        order = Cast(self.dtype)(Sort()(uniform((count,)))[1])
        return Concat()(order, rest) if rest.size else order

"""Random tensors: one operator that draws uniform numbers, and the distributions that are composed of it.

The numbers are a hash of the seeds of the operator and of a counter, which follows from the global seed, the number of
the step and that of the draw within it (`runner/ops/random_counter.py`). So both modes and a resumed run draw the same
numbers. They are not those of the reference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Primitive, primitive
from runner.core.values import Operand, Tensor, Value
from runner.ops.array import Cast, require
from runner.ops.compare import Greater, Less, Select
from runner.ops.composition import ComposedOperator, as_value, require_floats
from runner.ops.creation import known
from runner.ops.elementwise import Abs, Log, Pow, Sign, Sqrt
from runner.ops.math import Cos, Floor
from runner.ops.random_bits import lower_random_bits, random_bits
from runner.ops.random_counter import use_counter
from runner.ops.reduce import BroadcastTo
from runner.types import Shape, TensorType, broadcast

__all__ = [
    "Gamma",
    "StandardLaplace",
    "StandardNormal",
    "TruncatedNormal",
    "UniformInt",
    "UniformNumbers",
    "UniformReal",
]

STEP = 2.0**-24  # between the numbers: a float of 24 bits
ATTEMPTS = 12  # of a rejection that accepts 95% and more: one element of 4 * 10**15 has none


def uniform(shape: Any, *seeds: int) -> Value:
    """Float32 numbers from 0 up to, not including, 1."""
    lengths = (shape,) if isinstance(shape, int) else tuple(int(known(n, "shape")) for n in shape)
    stream, counter = use_counter(*seeds)
    result: Value = UniformNumbers(lengths, stream)(counter)
    return result


@primitive
class UniformNumbers(Primitive):
    """Numbers of `shape`, multiples of 2**-24 from 0 up to, not including, 1: a hash of stream, counter and place."""

    computes: ClassVar = False
    is_flat: ClassVar = True

    shape: Shape = ()
    stream: int = 0
    dtype: dt.DType = dt.float32

    def infer(self, counter: TensorType) -> TensorType:
        is_scalar = counter.dtype is dt.int64 and counter.shape == ()
        require(is_scalar, "the counter must be an Int64 scalar", counter=counter)
        require(all(n >= 0 for n in self.shape), "lengths of axes are not negative", shape=self.shape)
        return TensorType(self.dtype, self.shape)

    def kernel(self, counter: np.ndarray) -> np.ndarray:
        bits = random_bits(self.stream, counter, math.prod(self.shape))
        numbers: np.ndarray = (bits >> 8).astype(self.dtype.numpy) * self.dtype.numpy.type(STEP)
        return numbers.reshape(self.shape)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].size

    def lower(self, b: Builder, counter: str) -> str:
        bits = lower_random_bits(b, self.stream, counter, math.prod(self.shape))
        high = b.node("Cast", (b.node("Div", (bits, b.const(1 << 8))),), to=self.dtype)
        return b.reshape(b.node("Mul", (high, b.const(np.array(STEP, self.dtype.numpy)))), self.shape)


def full_shape(shape: Any, *parameters: Operand) -> Shape:
    """The shape that a shape and the parameters of a distribution broadcast to."""
    lengths = (shape,) if isinstance(shape, int) else tuple(int(known(n, "shape")) for n in shape)
    values = [as_value(parameter) for parameter in parameters]
    like = values[0].type
    return broadcast(like.with_shape(*lengths), *(like.with_shape(*value.shape) for value in values))


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
        result: Value = radius * Cos()(self.uniform(shape) * (2.0 * math.pi))
        return result


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
        result: Value = steps + Cast(dt.int32)(low)
        return result


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
        result: Value = -Sign()(centred) * Log()(1.0 - 2.0 * Abs()(centred))
        return result


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
        result: Value = Select()(is_small, accepted * power, accepted) * scale
        return result

    def _accepted(self, shape: Shape, third: Value) -> Value:
        """By the method of Marsaglia and Tsang: third * (1 + x / sqrt(9 third)) ** 3 of the first accepted x."""
        result: Value = BroadcastTo(shape)(third)
        waits = Tensor(np.ones(shape, bool))
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

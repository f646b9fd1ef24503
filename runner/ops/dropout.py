"""Dropout of elements, with a mask computed from seeds and a counter, the same in both modes; and of whole channels."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import ComposedOperator, Gradient, Primitive, primitive
from runner.core.values import Value
from runner.errors import ConfigError
from runner.ops.array import Cast, require
from runner.ops.elementwise.compare import Less
from runner.ops.random import MASK, lower_random_bits, random_bits, stream_of, uniform, use_counter
from runner.ops.reduce import BroadcastTo
from runner.types import TensorType


@primitive
class Dropout(Primitive):
    """x / keep_prob where a random number is below `keep_prob`, else 0; and the 0/1 mask.

    The random numbers are a hash of the seeds, `counter` (an Int64 scalar) and element number, so that a step can be
    repeated in either mode and on any device. Without a counter, as in the reference, `Dropout(keep_prob)(x)` uses that
    of all random operators (`runner/ops/random.py`).
    """

    keep_prob: float = 0.5
    Seed0: int = 0
    Seed1: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.keep_prob <= 1.0:
            raise ConfigError("keep_prob out of range", given=self.keep_prob, allowed="above 0, at most 1")

    def __call__(self, *operands: Any) -> Value:
        if len(operands) != 1:
            return super().__call__(*operands)
        stream, counter = use_counter(self.Seed0, self.Seed1)
        return dataclasses.replace(self, Seed0=stream, Seed1=0)(operands[0], counter)

    def infer(self, x: TensorType, counter: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype.is_float, "needs floats", x=x)
        require(
            counter.dtype is dt.int64 and counter.shape == (), "the counter must be an Int64 scalar", counter=counter
        )
        return x, x

    def kernel(self, x: np.ndarray, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        numbers = random_bits(self._stream, counter, x.size)
        mask = (numbers < self._limit).astype(x.dtype).reshape(x.shape)
        return x * mask * np.asarray(1.0 / self.keep_prob, x.dtype), mask

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return douts[0] * outputs[1] * (1.0 / self.keep_prob), None

    def lower(self, b: Builder, x: str, counter: str) -> tuple[str, str]:
        numbers = lower_random_bits(b, self._stream, counter, b.type(x).size)
        kept = b.node("Less", (numbers, b.const(self._limit)))
        mask = b.reshape(b.node("Cast", (kept,), to=b.type(x).dtype), b.type(x).shape)
        return b.node("Mul", (b.node("Mul", (x, mask)), b.const(1.0 / self.keep_prob, like=x))), mask

    @property
    def _stream(self) -> int:
        return stream_of(self.Seed0, self.Seed1) if self.Seed1 else stream_of(self.Seed0)

    @property
    def _limit(self) -> int:
        return round(self.keep_prob * (MASK + 1))


@dataclass(frozen=True)
class ChannelDropout(ComposedOperator):
    """Base: whole channels of x kept with probability `keep_prob` and divided by it, else 0; and the Bool mask of the
    kept elements."""

    axes: ClassVar[int]  # of x

    keep_prob: float = 0.5

    def __post_init__(self) -> None:
        allowed = "0 to 1"
        require(0.0 <= self.keep_prob <= 1.0, "keep_prob out of range", given=self.keep_prob, allowed=allowed)

    def compose(self, x: Value) -> tuple[Value, Value]:
        require(x.ndim == self.axes and x.dtype.is_float, f"needs floats with {self.axes} axes", x=x.type)
        kept = Less()(uniform((*x.shape[:2], *(1,) * (self.axes - 2))), self.keep_prob)
        output: Value = x * Cast(x.dtype)(kept) / (self.keep_prob or 1.0)
        return output, BroadcastTo(x.shape)(kept)


@dataclass(frozen=True)
class Dropout2D(ChannelDropout):
    """Whole channels of x (N, C, H, W) kept with probability `keep_prob` and divided by it, else 0; and the Bool mask
    of the kept elements."""

    axes: ClassVar[int] = 4


@dataclass(frozen=True)
class Dropout3D(ChannelDropout):
    """Whole channels of x (N, C, D, H, W) kept with probability `keep_prob` and divided by it, else 0; and the Bool
    mask of the kept elements."""

    axes: ClassVar[int] = 5

"""Dropout with a mask computed from a seed and a counter, the same in both modes."""

from collections.abc import Sequence

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.primitive import Gradient, Primitive, primitive
from runner.core.value import Value
from runner.errors import ConfigError
from runner.ops.array import require
from runner.types import TensorType

__all__ = ["Dropout"]

# An integer hash in arithmetic of both numpy and ONNX: every product is below 2**63.
MULTIPLIER = 0x45D9F3B
MASK = 0xFFFFFFFF
HALF = 1 << 16


@primitive
class Dropout(Primitive):
    """x / keep_prob where a random number is below `keep_prob`, else 0; and the 0/1 mask.

    The random numbers are a hash of `seed`, `counter` (an Int64 scalar) and element number, so that a step can be
    repeated in either mode and on any device.
    """

    keep_prob: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.keep_prob <= 1.0:
            raise ConfigError("keep_prob out of range", given=self.keep_prob, allowed="above 0, at most 1")

    def infer(self, x: TensorType, counter: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype.is_float, "needs floats", x=x)
        require(
            counter.dtype is dt.int64 and counter.shape == (), "the counter must be an Int64 scalar", counter=counter
        )
        return x, x

    def kernel(self, x: np.ndarray, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start = _hash(np.asarray((counter + self._stream) & MASK))
        numbers = _hash(np.arange(x.size, dtype=np.int64) ^ start)
        mask = (numbers < self._limit).astype(x.dtype).reshape(x.shape)
        return x * mask * np.asarray(1.0 / self.keep_prob, x.dtype), mask

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return douts[0] * outputs[1] * (1.0 / self.keep_prob), None

    def lower(self, b: Builder, x: str, counter: str) -> tuple[str, str]:
        shape = b.type(x).shape
        counted = b.node("BitwiseAnd", (b.node("Add", (counter, b.const(self._stream))), b.const(MASK)))
        # A Range, because a constant would make the model as large as its activations.
        elements = b.node("Range", [b.const(np.asarray(n, np.int64)) for n in (0, b.type(x).size, 1)])
        numbers = _lower_hash(b, b.node("BitwiseXor", (elements, _lower_hash(b, counted))))
        kept = b.node("Less", (numbers, b.const(self._limit)))
        mask = b.reshape(b.node("Cast", (kept,), to=b.type(x).dtype), shape)
        return b.node("Mul", (b.node("Mul", (x, mask)), b.const(1.0 / self.keep_prob, like=x))), mask

    @property
    def _stream(self) -> int:
        # Hashed, because layers have consecutive seeds: one would draw at step 1 what the next one drew at step 0.
        return int(_hash(np.asarray(self.seed & MASK, np.int64)))

    @property
    def _limit(self) -> int:
        return round(self.keep_prob * (MASK + 1))


def _hash(x: np.ndarray) -> np.ndarray:
    for _ in range(2):
        x = ((x ^ (x >> 16)) * MULTIPLIER) & MASK
    return np.asarray(x ^ (x >> 16))


def _lower_hash(b: Builder, x: str) -> str:
    for _ in range(2):
        mixed = b.node("BitwiseXor", (x, b.node("Div", (x, b.const(HALF)))))
        x = b.node("BitwiseAnd", (b.node("Mul", (mixed, b.const(MULTIPLIER))), b.const(MASK)))
    return b.node("BitwiseXor", (x, b.node("Div", (x, b.const(HALF)))))

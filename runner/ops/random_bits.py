"""Random numbers as a hash of a seed, a counter and the number of an element: the same in both modes and everywhere.

In arithmetic of both numpy and ONNX: every product is below 2**63.
"""

import numpy as np

from runner.core.lowering import Builder

__all__: list[str] = []

MULTIPLIER = 0x45D9F3B
MASK = 0xFFFFFFFF
HALF = 1 << 16


def stream_of(*seeds: int) -> int:
    """A number for a sequence of seeds, 0 to 2**32 - 1; for one seed, its hash.

    Hashed, because layers have consecutive seeds: one would draw at step 1 what the next one drew at step 0.
    """
    stream = 0
    for seed in seeds:
        stream = int(_hash(np.asarray((stream + seed) & MASK, np.int64)))
    return stream


def random_bits(stream: int, counter: np.ndarray, size: int) -> np.ndarray:
    """`size` numbers from 0 to 2**32 - 1, as Int64; `counter` is an Int64 scalar."""
    start = _hash(np.asarray((counter + stream) & MASK))
    return _hash(np.arange(size, dtype=np.int64) ^ start)


def lower_random_bits(b: Builder, stream: int, counter: str, size: int) -> str:
    """`random_bits` in ONNX."""
    counted = b.node("BitwiseAnd", (b.node("Add", (counter, b.const(stream))), b.const(MASK)))
    # A Range, because a constant would make the model as large as its activations.
    elements = b.node("Range", [b.const(np.asarray(n, np.int64)) for n in (0, size, 1)])
    return _lower_hash(b, b.node("BitwiseXor", (elements, _lower_hash(b, counted))))


def _hash(x: np.ndarray) -> np.ndarray:
    for _ in range(2):
        x = ((x ^ (x >> 16)) * MULTIPLIER) & MASK
    return np.asarray(x ^ (x >> 16))


def _lower_hash(b: Builder, x: str) -> str:
    for _ in range(2):
        mixed = b.node("BitwiseXor", (x, b.node("Div", (x, b.const(HALF)))))
        x = b.node("BitwiseAnd", (b.node("Mul", (mixed, b.const(MULTIPLIER))), b.const(MASK)))
    return b.node("BitwiseXor", (x, b.node("Div", (x, b.const(HALF)))))

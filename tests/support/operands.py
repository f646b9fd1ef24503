"""Operands for the rows of the contract: random, positive, whole, tied, and the row itself."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from runner.core.operators import Primitive

RNG = np.random.default_rng(20210401)


@dataclass(frozen=True)
class Sample:
    """An operator with operands. `smooth` is false where two elements tie, so that differences mean nothing."""

    op: Primitive
    arrays: tuple[np.ndarray, ...]
    note: str = ""
    smooth: bool = True

    @property
    def name(self) -> str:
        """What the row is called in test reports."""
        shapes = "-".join("x".join(map(str, a.shape)) or "scalar" for a in self.arrays)
        return f"{self.op.name}-{self.note or shapes}"


def rows_of(family: Callable[[], Iterator[Sample]]) -> list[Sample]:
    """The rows of a family, whose numbers depend on its name and not on the rows of other families."""
    RNG.bit_generator.state = np.random.default_rng(zlib.crc32(family.__name__.encode())).bit_generator.state
    return list(family())


def row(op: Primitive, *arrays: np.ndarray, note: str = "", smooth: bool = True) -> Sample:
    return Sample(op, arrays, note, smooth)


def normal(*shape: int) -> np.ndarray:
    return np.asarray(RNG.normal(size=shape), np.float32)


def positive(*shape: int) -> np.ndarray:
    return np.asarray(RNG.uniform(0.5, 2.0, shape), np.float32)


def whole(*shape: int, low: int = -4, high: int = 5, dtype: type = np.int32) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def distinct(*shape: int) -> np.ndarray:
    """Floats that differ by at least 0.01, so that no maximum is in doubt."""
    count = int(np.prod(shape))
    return (RNG.permutation(count) * 0.01 - count * 0.005).reshape(shape).astype(np.float32)


def coarse(*shape: int) -> np.ndarray:
    """Floats of which many are equal."""
    return whole(*shape, low=-1, high=2).astype(np.float32)


def distribution(*shape: int) -> np.ndarray:
    made = positive(*shape)
    return made / made.sum(-1, keepdims=True)

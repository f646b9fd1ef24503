"""What transforms of values are, random ones and others, and the one that most chains end in: `x * scale + shift`."""

from abc import ABC, abstractmethod
from copy import copy
from typing import Self

import numpy as np

from runner import dtype as dt
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.types import TensorType


class Transform(ABC):
    """A function of the values of one column, the same for every row and every time: a row can be fetched at any time.

    Subclass it for own transforms, and `RandomTransform` for random ones: `__call__` receives [B, ...] samples and must
    neither change nor keep them.
    """

    @abstractmethod
    def infer(self, sample: TensorType) -> TensorType:
        """The type of one sample after the transform. Raises ConfigError for samples that it cannot take."""

    @abstractmethod
    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """The transformed samples, [B, ...]."""

    def at(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The transformed samples of these visits, [B, ...]; only random transforms look at them."""
        return self(batch)

    def moved_before(self, other: "Transform") -> "Transform | None":
        """What does after this transform what `other` does before it; None where there is no such transform."""
        return None

    def channels_first(self) -> "Transform | None":
        """The same for samples whose channel axis went from the last place to the first of three, if there is such."""
        return None


class RandomTransform(Transform):
    """A transform whose result also depends on random numbers, which belong to the visit and not to the moment.

    Subclass it for own ones: `at` takes its numbers from `visits.random(self.place, ...)`. What a sample gets depends
    on the run's seed, the pass over the data, the sample's row, and the transform's place among the random ones of its
    column: not on batches, workers, sinks, or on where a run was resumed.
    """

    place = 0

    def placed(self, place: int) -> Self:
        """This transform as number `place` of the random ones in its column."""
        made = copy(self)
        made.place = place
        return made

    @abstractmethod
    def at(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The transformed samples of these visits, [B, ...]."""

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """The samples as if they were the first rows of a source, in the first pass over it."""
        return self.at(batch, Visits.of(np.arange(len(batch)), len(batch)))


class Affine(Transform):
    """`x * scale + shift` in float32; both are scalars, or hold one number per channel and broadcast against a sample.

    The numbers are kept in float64 too, so that joining steps rounds once.
    """

    def __init__(self, scale: np.ndarray, shift: np.ndarray) -> None:
        self._exact = (np.asarray(scale, np.float64), np.asarray(shift, np.float64))
        self.scale = self._exact[0].astype(np.float32)
        self.shift = self._exact[1].astype(np.float32)
        self._shifts = bool(self.shift.any())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale.tolist()}, shift={self.shift.tolist()})"

    def infer(self, sample: TensorType) -> TensorType:
        """The same shape in Float32; per-channel numbers must be as many as the sample has channels."""
        try:
            fits = np.broadcast_shapes(sample.shape, self.scale.shape) == sample.shape
        except ValueError:
            fits = False
        if not fits:
            raise ConfigError("not one number per channel", transform=self, sample=sample)
        return sample.with_dtype(dt.float32)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Float32 samples, in new memory."""
        result: np.ndarray = np.multiply(batch, self.scale, dtype=np.float32)
        if self._shifts:
            result += self.shift
        return result

    def then(self, other: "Affine") -> "Affine":
        """This step and another after it, as one."""
        (scale, shift), (scale2, shift2) = self._exact, other._exact
        return Affine(scale * scale2, shift * scale2 + shift2)

    def channels_first(self) -> "Affine":
        """The same numbers for samples whose channel axis went from the last place to the first of three."""
        scale, shift = (a[..., None, None] if a.ndim == 1 else a for a in self._exact)
        return Affine(scale, shift)

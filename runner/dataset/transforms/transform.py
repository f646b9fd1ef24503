"""Base classes of transforms, deterministic and random, and the transforms of values that runner itself uses.

These are `Affine` (`x * scale + shift`), `TypeCast` and `OneHot`; they work on whole columns, and in operators.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from enum import Enum
from typing import Any, Self

import numpy as np

from runner import dtype as dt
from runner.dataset.visits import Draws, Visits, draws_for_calls, draws_of_call
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import whole_number
from runner.validation.rules import KeywordNames


class Transform(KeywordNames, ABC):
    """A pure function of the values of one column.

    Base class of custom transforms (`RandomTransform` for random ones): `__call__` receives [B, ...] samples and must
    neither modify nor keep them.
    """

    @abstractmethod
    def infer(self, sample: TensorType) -> TensorType:
        """The type of one transformed sample. Raises ConfigError for unsupported samples."""

    @abstractmethod
    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """The transformed samples, [B, ...]."""

    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The transformed samples of these visits, [B, ...]; only random transforms use `visits`."""
        return self(batch)

    def moved_before(self, other: "Transform") -> "Transform | None":
        """The equivalent of `other` to apply after this transform instead of before it; None when there is none."""
        return None

    def channels_first(self) -> "Transform | None":
        """The same transform for [C, H, W] instead of [H, W, C] samples; None when there is none."""
        return None

    def lower(self, batch: Any, ops: Any) -> Any:
        """The transformed batch of a traced one, [B, ...], with the numbers of `__call__`.

        It is written in the operators of `ops`, the module `runner.ops`. Sinks transform with it on the device, and it
        is a part of `model/predict.onnx`.
        """
        raise NotImplementedError

    @property
    def has_operators(self) -> bool:
        """Whether `lower` is written, and not for an inherited `__call__` that a subclass has replaced."""
        order = type(self).__mro__
        lowers, calls = (
            next(k for k, kind in enumerate(order) if name in vars(kind)) for name in ("lower", "__call__")
        )
        return lowers <= calls and type(self).lower is not Transform.lower

    @property
    def free_axes(self) -> tuple[str, ...]:
        """Names of the leading axes of a sample that `lower` computes with at any length."""
        return ()

    def attributes(self) -> dict[str, Any]:
        """What determines the result, as values of JSON; the metadata of exported networks have it."""
        return {}


class RandomTransform(Transform):
    """A transform whose result also depends on random numbers, which are derived from the visit.

    Base class of custom random transforms: `apply` takes its numbers from `visits.random(self.position, ...)`. They
    depend on the run's seed, the pass over the data, the sample's row, and the transform's position among the random
    ones of its column: not on batches, workers or sinks, nor on where a run was resumed.
    """

    position = 0

    def at_position(self, position: int) -> Self:
        """A copy of this transform that is number `position` among the random ones of its column."""
        copied = copy(self)
        copied.position = position
        return copied

    @abstractmethod
    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The transformed samples of these visits, [B, ...]."""

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """The transformed samples, as the first rows of a source in the first pass."""
        return self.apply(batch, Visits.of(np.arange(len(batch)), len(batch)))


class Affine(Transform):
    """`x * scale + shift` in float32; both are scalars, or have one number per channel and broadcast against a sample.

    The numbers are kept in float64 too, so that fused steps round only once.
    """

    def __init__(self, scale: np.ndarray, shift: np.ndarray) -> None:
        self._exact = (np.asarray(scale, np.float64), np.asarray(shift, np.float64))
        self.scale = self._exact[0].astype(np.float32)
        self.shift = self._exact[1].astype(np.float32)
        self._shifts = bool(self.shift.any())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale.tolist()}, shift={self.shift.tolist()})"

    def infer(self, sample: TensorType) -> TensorType:
        """The same shape in Float32. Raises ConfigError unless there is one number per channel, or one for all."""
        try:
            fits = np.broadcast_shapes(sample.shape, self.scale.shape) == sample.shape
        except ValueError:
            fits = False
        if not fits:
            raise ConfigError("the number of values differs from the number of channels", transform=self, sample=sample)
        return sample.with_dtype(dt.float32)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Float32 samples, in new memory."""
        result: np.ndarray = np.multiply(batch, self.scale, dtype=np.float32)
        if self._shifts:
            result += self.shift
        return result

    def lower(self, batch: Any, ops: Any) -> Any:
        """A product and a sum, each rounded to Float32, as in numpy."""
        result = ops.Cast(dt.float32)(batch) * self.scale
        return result + self.shift if self._shifts else result

    def attributes(self) -> dict[str, Any]:
        """`scale` and `shift`: one number, or one per channel."""
        return {"scale": self._exact[0].ravel().tolist(), "shift": self._exact[1].ravel().tolist()}

    def then(self, other: "Affine") -> "Affine":
        """This transform followed by another, as one."""
        (scale, shift), (scale2, shift2) = self._exact, other._exact
        return Affine(scale * scale2, shift * scale2 + shift2)

    def channels_first(self) -> "Affine":
        """The same numbers for [C, H, W] samples."""
        scale, shift = (a[..., None, None] if a.ndim == 1 else a for a in self._exact)
        return Affine(scale, shift)


# Base classes of transforms that are written for one sample, which may be an array or an image of Pillow.


class SampleTransform(Transform):
    """A transform of one sample at a time, on the host; called directly, it takes one sample.

    It has no operators: in a sink, batches are prepared on the host, and `predict.onnx` is refused with its name.
    """

    position = 0

    @abstractmethod
    def one(self, value: Any, draws: Draws) -> Any:
        """One transformed sample; random transforms use `draws`. Must not modify `value`."""

    def __call__(self, value: Any) -> Any:
        return self.one(value, draws_of_call())

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.attributes().items())
        return f"{type(self).__name__}({arguments})"

    def infer(self, sample: TensorType) -> TensorType:
        """The type of the result for zeros of this type. Raises ConfigError for unsupported samples."""
        made = self.one(np.zeros(sample.shape, sample.dtype.numpy), Draws(0))
        return TensorType.of(np.asarray(made))

    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The transformed samples, [B, ...]. Raises ConfigError when their shapes differ."""
        draws = Draws.of_samples(visits, self.position)
        made = [np.asarray(self.one(sample, own)) for sample, own in zip(batch, draws, strict=True)]
        shapes = sorted({array.shape for array in made})
        if len(shapes) > 1:
            repair = "Resize((height, width)), CenterCrop or PadEnd give all samples one shape"
            rows = {"transform": self, "shapes": ", ".join(map(str, shapes[:4])), "repair": repair}
            raise ConfigError("the samples of a batch have different shapes", **rows)
        return np.stack(made)

    def attributes(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in vars(self).items() if name[0] != "_" and name != "position"}


class RandomSampleTransform(SampleTransform, RandomTransform):
    """A random `SampleTransform`: the numbers of a sample depend on seed, position, pass and row alone."""


def transform_one(operation: Callable[..., Any], values: tuple[Any, ...], draws: Draws) -> Any:
    """The result of any transform, or of any other callable, for one sample (a tuple: several columns).

    All random numbers come from `draws`, also those of random transforms that a callable of the user calls.
    """
    if isinstance(operation, SampleTransform) and len(values) == 1:
        return operation.one(values[0], draws)
    if isinstance(operation, Transform) and len(values) == 1:
        return operation.apply(np.asarray(values[0])[np.newaxis], draws.visit())[0]
    with draws_for_calls(draws):
        return operation(*values)


def require_transforms(transforms: Any, argument: str = "transforms") -> list[Callable[..., Any]]:
    """The transforms as a list. Raises ConfigError unless they are a list or tuple of at least one callable."""
    if not isinstance(transforms, Sequence) or not transforms or not all(map(callable, transforms)):
        allowed = "a list of at least one transform; transforms are callable"
        raise ConfigError("not transforms", argument=argument, value=transforms, allowed=allowed)
    return list(transforms)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist() if value.size <= 64 else f"an array of shape {list(value.shape)}"
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


# Element types and one-hot encoding.


class TypeCast(Transform):
    """Convert values to another element type: a `runner.dtype`, or anything that names one.

    >>> TypeCast("int32")(np.array([7], np.uint8)).dtype
    dtype('int32')
    """

    def __init__(self, data_type: dt.DType | np.dtype | type | str) -> None:
        self.data_type = dt.of(data_type)

    def __repr__(self) -> str:
        return f"TypeCast({self.data_type})"

    def infer(self, sample: TensorType) -> TensorType:
        return sample.with_dtype(self.data_type)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """The batch itself when it already has the type."""
        return np.asarray(batch).astype(self.data_type.numpy, copy=False)

    def lower(self, batch: Any, ops: Any) -> Any:
        return ops.Cast(self.data_type)(batch)

    def attributes(self) -> dict[str, Any]:
        return {"data_type": self.data_type.numpy.name}


class OneHot(Transform):
    """One-hot encoding of labels; keeps the element type, as MindSpore does.

    >>> OneHot(3)(np.array([2, 0], np.int32)).tolist()
    [[0, 0, 1], [1, 0, 0]]
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = whole_number("num_classes", num_classes, 1)

    def __repr__(self) -> str:
        return f"OneHot({self.num_classes})"

    def infer(self, sample: TensorType) -> TensorType:
        """[num_classes] for one integer, of shape [] or [1]; [n, num_classes] for [n] integers."""
        if sample.dtype.numpy.kind not in "iu" or sample.ndim > 1 or sample.size == 0:
            raise ConfigError("OneHot takes one integer per sample, or integers of one axis", sample=sample)
        return sample.with_shape(*self._labels(sample.shape), self.num_classes)

    def _labels(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the labels without axes of length 1."""
        return tuple(length for length in shape if length != 1)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """[B, num_classes] or [B, n, num_classes]; [num_classes] for one label.

        Raises ConfigError for one outside 0 to num_classes - 1.
        """
        batch = np.asarray(batch)
        rows = batch.shape[:1] + self._labels(batch.shape[1:])
        labels = batch.reshape(*rows, 1)
        if labels.size and not 0 <= labels.min() <= labels.max() < self.num_classes:
            wrong = labels[(labels < 0) | (labels >= self.num_classes)][0]
            raise ConfigError(
                "a label is out of range", argument="num_classes", value=wrong, allowed=f"0 to {self.num_classes - 1}"
            )
        ones: np.ndarray = labels == np.arange(self.num_classes)
        return ones.astype(batch.dtype)

    def lower(self, batch: Any, ops: Any) -> Any:
        """As `__call__`; a label that is out of range gives zeros."""
        rows = batch.shape[0], *self._labels(batch.shape[1:])
        return ops.OneHot(depth=self.num_classes, dtype=batch.dtype)(ops.Reshape(rows)(batch))

    def attributes(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes}

"""Transforms of the values of one sample, of any shape, and transforms of transforms: chains and random choices."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.samples import TEXT, as_value
from runner.dataset.transforms.transform import (
    RandomSampleTransform,
    SampleTransform,
    require_transforms,
    transform_one,
)
from runner.dataset.visits import Draws, draws_of_call
from runner.errors import ConfigError, known_names
from runner.types import TensorType
from runner.validation.arguments import finite_number, whole_number

MAX_LENGTH = 1 << 24  # of a padded axis


class Relational(IntEnum):
    """A comparison. Source: `mindspore.dataset.transforms.c_transforms.Relational` r1.2."""

    EQ = 0
    NE = 1
    GT = 2
    GE = 3
    LT = 4
    LE = 5


COMPARISONS = {
    Relational.EQ: np.equal,
    Relational.NE: np.not_equal,
    Relational.GT: np.greater,
    Relational.GE: np.greater_equal,
    Relational.LT: np.less,
    Relational.LE: np.less_equal,
}


class Fill(SampleTransform):
    """Every element replaced by `fill_value`, in the sample's element type; text by text.

    >>> Fill(3)(np.array([1, 2], np.int32)).tolist()
    [3, 3]
    """

    def __init__(self, fill_value: float | bool | str | bytes) -> None:
        self.fill_value = constant_of("fill_value", fill_value)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        array = as_value(value)
        filling = like(array, self.fill_value, self)
        return np.full(array.shape, filling, filling.dtype)


class Mask(SampleTransform):
    """Whether each element satisfies a comparison with `constant` in its own element type, as `dtype`.

    >>> Mask(Relational.GE, 2)(np.array([1, 2, 3])).tolist()
    [False, True, True]
    """

    def __init__(self, operator: Relational, constant: float | bool | str | bytes, dtype: Any = dt.bool_) -> None:
        if not isinstance(operator, Relational):
            rows = known_names(operator, [f"Relational.{name}" for name in Relational.__members__])
            raise ConfigError("not a comparison", argument="operator", value=operator, **rows)
        self.operator = operator
        self.constant = constant_of("constant", constant)
        self.dtype = dt.of(dtype)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        array = as_value(value)
        made: np.ndarray = COMPARISONS[self.operator](array, like(array, self.constant, self))
        return made.astype(self.dtype.numpy)


class PadEnd(SampleTransform):
    """Values added at the end of each axis, or taken from it, up to the lengths in `pad_shape`; None keeps a length.

    >>> PadEnd([4], 10)(np.array([1, 2, 3])).tolist()
    [1, 2, 3, 10]
    """

    def __init__(self, pad_shape: Sequence[int | None], pad_value: float | bool | str | bytes | None = None) -> None:
        if not isinstance(pad_shape, Sequence) or isinstance(pad_shape, str):
            allowed = "a list with a length, or None, for each axis"
            raise ConfigError("not a shape", argument="pad_shape", value=pad_shape, allowed=allowed)
        self.pad_shape = [n if n is None else whole_number("pad_shape", n, 0, MAX_LENGTH) for n in pad_shape]
        self.pad_value = None if pad_value is None else constant_of("pad_value", pad_value)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[*pad_shape]. Raises ConfigError for another number of axes."""
        array = as_value(value)
        if array.ndim != len(self.pad_shape):
            rows = {"argument": "pad_shape", "value": self.pad_shape, "sample": TensorType.of(array)}
            raise ConfigError("pad_shape and the sample have different numbers of axes", **rows)
        shape = [old if new is None else new for old, new in zip(array.shape, self.pad_shape, strict=True)]
        kept = tuple(slice(min(old, new)) for old, new in zip(array.shape, shape, strict=True))
        usual = b"" if array.dtype.kind in TEXT else 0
        padding = like(array, usual if self.pad_value is None else self.pad_value, self)
        result = np.full(shape, padding, np.promote_types(padding.dtype, array.dtype))
        result[kept] = array[kept]
        return result


class Concatenate(SampleTransform):
    """The arrays `prepend` before and `append` after each sample, which has one axis; of several columns one sample.

    >>> Concatenate(0, np.array([0]), np.array([9]))(np.array([1, 2])).tolist()
    [0, 1, 2, 9]
    """

    def __init__(self, axis: int = 0, prepend: Any = None, append: Any = None) -> None:
        if isinstance(axis, bool) or axis not in (0, -1):
            raise ConfigError("samples of one axis", argument="axis", value=axis, allowed="0 or -1")
        self.axis = axis
        self.prepend, self.append = _part("prepend", prepend), _part("append", append)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        return self(value)

    def __call__(self, *values: Any) -> np.ndarray:
        """The samples of all columns, one after the other. Raises ConfigError when text meets numbers."""
        arrays = [as_value(value) for value in values]
        parts = [part for part in (self.prepend, *arrays, self.append) if part is not None]
        if any(array.ndim != 1 for array in arrays):
            found = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
            raise ConfigError("Concatenate takes samples of one axis", found=found)
        if len({part.dtype.kind in TEXT for part in parts}) > 1:
            found = ", ".join(str(part.dtype) for part in parts)
            raise ConfigError("Concatenate takes numbers, or text", found=found)
        is_text = parts[0].dtype.kind in TEXT
        return np.concatenate(parts if is_text else [part.astype(arrays[0].dtype) for part in parts])


class Slice(SampleTransform):
    """A part of each sample: for each axis an int, a list of ints, a `slice`, None (all), or one `...`.

    An int keeps its axis, with length 1; lists of several axes are independent.

    >>> Slice(0, [0, -1])(np.array([[1, 2, 3], [4, 5, 6]])).tolist()
    [[1, 3]]
    """

    def __init__(self, *slices: Any) -> None:
        allowed = "an int, a list of ints, a slice, None, or ..."
        for part in slices:
            numbers = part if isinstance(part, list | tuple) else [part]
            whole = bool(numbers) and all(isinstance(k, int | np.integer) and not isinstance(k, bool) for k in numbers)
            if not (whole or part is None or part is Ellipsis or isinstance(part, slice)):
                raise ConfigError("not a slice", argument="slices", value=part, allowed=allowed)
        if not slices or sum(part is Ellipsis for part in slices) > 1:
            raise ConfigError("not slices", argument="slices", value=slices, allowed=f"for each axis {allowed} (once)")
        self.slices = slices

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """As many axes as the sample. Raises ConfigError for positions outside of it."""
        array = as_value(value)
        for axis, part in enumerate(self._parts(array)):
            try:
                array = array[(slice(None),) * axis + (part,)]
            except IndexError:
                rows = {"argument": "slices", "value": part, "axis": axis, "sample": TensorType.of(np.asarray(value))}
                raise ConfigError("a position is outside of the sample", **rows) from None
        return array

    def _parts(self, array: np.ndarray) -> list[Any]:
        """A slice or a list for each leading axis."""
        parts: list[Any] = [part for part in self.slices if part is not Ellipsis]
        if len(parts) > array.ndim:
            rows = {"argument": "slices", "value": self.slices, "sample": TensorType.of(array)}
            raise ConfigError("more slices than axes", **rows)
        if Ellipsis in self.slices:
            place = self.slices.index(Ellipsis)
            parts[place:place] = [slice(None)] * (array.ndim - len(parts))
        return [
            slice(None) if part is None else [part] if isinstance(part, int | np.integer) else part for part in parts
        ]


class Duplicate:
    """The sample twice, for two output columns."""

    def __repr__(self) -> str:
        return "Duplicate()"

    def __call__(self, value: Any) -> tuple[np.ndarray, np.ndarray]:
        """The sample, and a copy."""
        array = np.asarray(value)
        return array, array.copy()


class Unique:
    """The different elements of a sample, flattened, for three output columns."""

    def __repr__(self) -> str:
        return "Unique()"

    def __call__(self, value: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The elements in the order of their first places; the number of each element's value; how often each occurs.

        Numbers and counts are Int32.

        >>> [part.tolist() for part in Unique()(np.array([3, 1, 3]))]
        [[3, 1], [0, 1, 0], [2, 1]]
        """
        values, first, numbers, counts = np.unique(
            np.ravel(value), return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first, kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return values[order], place[numbers.ravel()], counts[order].astype(np.int32)


def constant_of(argument: str, value: Any) -> int | float | bool | bytes:
    """A Python number, or text as bytes. Raises ConfigError for anything else."""
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    return scalar_of(argument, value)


def like(array: np.ndarray, constant: int | float | bool | bytes, transform: SampleTransform) -> np.ndarray:
    """The constant in the element type of an array. Raises ConfigError when only one of them is text."""
    if isinstance(constant, bytes) != (array.dtype.kind in TEXT):
        rows = {"constant": repr(constant), "sample": f"{array.dtype}{list(array.shape)}"}
        raise ConfigError(f"{type(transform).__name__} takes numbers, or text", **rows)
    return np.asarray(constant) if isinstance(constant, bytes) else np.asarray(constant).astype(array.dtype)


def scalar_of(argument: str, value: Any) -> int | float | bool:
    """A Python number. Raises ConfigError for anything else."""
    number = value.item() if np.ndim(value) == 0 and hasattr(value, "item") else value
    if not isinstance(number, int | float | bool):
        raise ConfigError("not a number", argument=argument, value=repr(value), allowed="a number")
    return number


def _part(argument: str, value: Any) -> np.ndarray | None:
    if value is None:
        return None
    array = as_value(value)
    if array.ndim != 1 or array.dtype.kind not in f"biuf{TEXT}":
        raise ConfigError("not an array of one axis", argument=argument, value=value, allowed="an array of one axis")
    return array


# One-hot encoding with label smoothing.


class OneHotOp(SampleTransform):
    """One-hot encoding of labels in Float64: `1 - smoothing_rate` for the class, plus `smoothing_rate / num_classes`.

    >>> OneHotOp(4, smoothing_rate=0.2)(np.array(1)).tolist()
    [[0.05, 0.8500000000000001, 0.05, 0.05]]
    """

    def __init__(self, num_classes: int, smoothing_rate: float = 0.0) -> None:
        self.num_classes = whole_number("num_classes", num_classes, 1)
        self.smoothing_rate = finite_number("smoothing_rate", smoothing_rate)
        if not 0.0 <= self.smoothing_rate <= 1.0:
            raise ConfigError("not a share", argument="smoothing_rate", value=smoothing_rate, allowed="0 to 1")

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[..., num_classes] for integers [...], [1, num_classes] for one. Raises ConfigError for other labels."""
        labels = np.atleast_1d(value)
        if labels.dtype.kind not in "iu":
            raise ConfigError("OneHotOp takes integers", sample=TensorType.of(labels))
        if labels.size and not 0 <= labels.min() <= labels.max() < self.num_classes:
            wrong = labels[(labels < 0) | (labels >= self.num_classes)][0]
            allowed = f"0 to {self.num_classes - 1}"
            raise ConfigError("a label is out of range", argument="num_classes", value=wrong, allowed=allowed)
        ones: np.ndarray = labels[..., np.newaxis] == np.arange(self.num_classes)
        return (1 - self.smoothing_rate) * ones + self.smoothing_rate / self.num_classes


# Transforms of transforms. Members may be any callables.
#
# All random numbers of a sample come from its own sequence, in the order of the calls.

Operation = Callable[..., Any]


class TransformGroup(RandomSampleTransform):
    """Transforms that are applied in sequence or by chance."""

    def __init__(self, transforms: Sequence[Operation]) -> None:
        self.transforms = require_transforms(transforms)


class Compose(TransformGroup):
    """The transforms one after the other; one that returns a tuple gives the next one several operands.

    >>> Compose([abs, lambda number: number + 1])(-3)
    4
    """

    def one(self, value: Any, draws: Draws) -> Any:
        return self.all_of((value,), draws)

    def __call__(self, *values: Any) -> Any:
        """The result of the last transform; a tuple stands for several columns."""
        return self.all_of(values, draws_of_call())

    def all_of(self, values: tuple[Any, ...], draws: Draws) -> Any:
        """The result for these values of one sample, one for each column."""
        for operation in self.transforms:
            made = transform_one(operation, values, draws)
            values = made if isinstance(made, tuple) else (made,)
        return values[0] if len(values) == 1 else values


class RandomApply(TransformGroup):
    """All of the transforms with probability `prob`, otherwise none."""

    def __init__(self, transforms: Sequence[Operation], prob: float = 0.5) -> None:
        super().__init__(transforms)
        self.prob = finite_number("prob", prob)
        if not 0.0 <= self.prob <= 1.0:
            raise ConfigError("not a probability", argument="prob", value=prob, allowed="0 to 1")

    def one(self, value: Any, draws: Draws) -> Any:
        return in_turn(self.transforms, value, draws) if draws.chance(self.prob) else value


class RandomChoice(TransformGroup):
    """One of the transforms, each equally likely."""

    def one(self, value: Any, draws: Draws) -> Any:
        return transform_one(draws.choice(self.transforms), (value,), draws)


class RandomOrder(TransformGroup):
    """All of the transforms, in a random order."""

    def one(self, value: Any, draws: Draws) -> Any:
        return in_turn(draws.order(self.transforms), value, draws)


def in_turn(operations: Sequence[Operation], value: Any, draws: Draws) -> Any:
    """The sample after all of these."""
    for operation in operations:
        value = transform_one(operation, (value,), draws)
    return value

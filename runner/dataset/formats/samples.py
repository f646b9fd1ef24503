"""Samples of Python code, read once into an array for each column."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.element_types import TEXT, as_value, target_type
from runner.errors import ConfigError
from runner.host.machine import require_memory
from runner.types import TensorType

FIRST_BYTES = 1 << 20  # of an array for samples whose number is not known; it grows by a quarter
SOURCES = "an object with __getitem__ and __len__, an iterable, or a function that returns an iterable"


Values = np.ndarray | list[np.ndarray]  # samples of one shape [N, ...], or of several


def read_samples(source: object, names: Sequence[str], most: int | None) -> dict[str, Values]:
    """The columns of at most `most` samples, in their own types. Raises ConfigError as `GeneratorDataset`."""
    samples, count = _samples(source)
    capacity = count if count is None or most is None else min(count, most)
    buffers: list[_Buffer | _Texts] = []
    for number, sample in enumerate(islice(samples, most)):
        values = _values(sample, names, number)
        buffers = buffers or [_buffer(name, value, capacity) for name, value in zip(names, values, strict=True)]
        for buffer, value in zip(buffers, values, strict=True):
            buffer.add(value)
    if not buffers:
        raise ConfigError("a source without samples", argument="source", value=repr(source))
    return {buffer.name: buffer.filled() for buffer in buffers}


class _Buffer:
    """The values of one column. The first one determines element type and number of axes."""

    def __init__(self, name: str, first: object, capacity: int | None) -> None:
        self.name, self.count = name, 0
        array = _array(name, 0, first)
        self.type = TensorType(dt.of(target_type(name, array)), array.shape)
        self.dtype = array.dtype.newbyteorder("=")
        self.bytes = array.size * self.dtype.itemsize
        capacity = max(1, FIRST_BYTES // max(1, self.bytes)) if capacity is None else capacity
        self._require(capacity)
        self.rows = np.empty((capacity, *array.shape), self.dtype)
        self.different: list[np.ndarray] | None = None  # all values, once one has another shape

    def add(self, value: object) -> None:
        """Add the value of the next sample."""
        array = _array(self.name, self.count, value)
        found = TensorType(dt.of(target_type(self.name, array)), array.shape)
        if found.dtype != self.type.dtype or len(found.shape) != len(self.type.shape):
            rows = {"column": self.name, "sample": self.count, "found": found, "first_sample": self.type}
            repair = "samples of one shape and type: crop, pad or convert them"
            raise ConfigError("the samples of a column differ in shape or element type", **rows, repair=repair)
        if self.different is None and found.shape != self.type.shape:
            self.different = [row.copy() for row in self.rows[: self.count]]
        if self.different is not None:
            self.different.append(array.astype(self.dtype))
        else:
            self._add_row(array)
        self.count += 1

    def _add_row(self, array: np.ndarray) -> None:
        if self.count == len(self.rows):
            self._require(more := self.count // 4 + 1)
            self.rows.resize((self.count + more, *self.type.shape), refcheck=False)  # in place: not a second copy
        self.rows[self.count] = array

    def filled(self) -> Values:
        """The values so far."""
        if self.different is not None:
            return self.different
        self.rows.resize((self.count, *self.type.shape), refcheck=False)
        return self.rows

    def _require(self, rows: int) -> None:
        repair = "num_samples, or arrays in files that are mapped into memory: NumpySlicesDataset"
        require_memory(rows * self.bytes, column=self.name, sample=self.count, value=self.type, repair=repair)


class _Texts:
    """The texts of one column, of any lengths."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._texts: list[np.ndarray] = []

    def add(self, value: object) -> None:
        """Add the value of the next sample. Raises ConfigError for a number."""
        text = _array(self.name, len(self._texts), value)
        if text.dtype.kind not in TEXT:
            rows = {"column": self.name, "sample": len(self._texts), "found": text.dtype, "first_sample": "text"}
            raise ConfigError("the samples of a column differ in shape or element type", **rows)
        self._texts.append(text)

    def filled(self) -> Values:
        """The texts so far."""
        return self._texts


def _buffer(name: str, first: object, capacity: int | None) -> "_Buffer | _Texts":
    is_text = _array(name, 0, first).dtype.kind in TEXT
    return _Texts(name) if is_text else _Buffer(name, first, capacity)


def _array(column: str, sample: int, value: object) -> np.ndarray:
    try:
        return as_value(value)
    except ValueError as reason:
        rows = {"column": column, "sample": sample, "found": reason}
        raise ConfigError("the value of a sample is not an array", **rows) from None


def _samples(source: object) -> tuple[Iterator[Any], int | None]:
    """The samples one by one, and their number if it is known."""
    is_called = callable(source) and not hasattr(source, "__getitem__")
    given: Any = source() if is_called else source  # type: ignore[operator]
    if not isinstance(given, Mapping | str | bytes):
        if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
            return (given[k] for k in range(len(given))), len(given)
        if isinstance(given, Iterable):
            return iter(given), None
    found = type(given).__name__ + (", returned by the function" if is_called else "")
    repair = "NumpySlicesDataset, which takes a dict of arrays" if isinstance(given, Mapping) else None
    rows = {"argument": "source", "found": found, "allowed": SOURCES, "repair": repair}
    raise ConfigError("not a source of samples", **rows)


def _values(sample: object, names: Sequence[str], number: int) -> list[object]:
    """The values of a sample, one for each column."""
    values = list(sample) if isinstance(sample, tuple) else [sample]
    if len(values) != len(names):
        found = f"a tuple of {len(values)}" if isinstance(sample, tuple) else type(sample).__name__
        rows = {"sample": number, "found": found, "allowed": f"a tuple of {len(names)}: {', '.join(names)}"}
        raise ConfigError("a sample needs a value for each column", **rows)
    return values

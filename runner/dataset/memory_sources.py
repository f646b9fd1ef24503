"""Datasets of a script's own values: arrays, samples of Python code, and samples to fill up shards. Source: r1.2."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.formats.samples import Values, read_samples
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.selection import RowSelection, listed_column
from runner.errors import ConfigError
from runner.validation.arguments import as_list, flag

__all__ = ["GeneratorDataset", "NumpySlicesDataset", "PaddedDataset"]


class NumpySlicesDataset(Dataset):
    """Rows of arrays in memory: one array or list (`column_0`), a tuple of them (`column_0`, ...) or a dict by name.

    Networks get Float64 arrays as Float32 and Int64 arrays as Int32; iterators return the values in their own types.
    Other arrays are not copied. Raises ConfigError for arrays of
    different lengths, for numbers that do not fit, and for text and objects, with the name of the column.

    >>> NumpySlicesDataset({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}).batch(2).column_types()
    [TensorType(dtype=Float32, shape=(2, 2)), TensorType(dtype=Int32, shape=(2,))]
    """

    def __init__(
        self,
        data: object,
        column_names: str | Sequence[str] | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        arrays = _named_arrays(data, column_names)
        lengths = {name: len(values) if values.ndim else 0 for name, values in arrays.items()}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise ConfigError(
                "columns must have the same number of rows, at least one", argument="data", value=f"rows: {lengths}"
            )
        super().__init__(*selection.apply(arrays))


class GeneratorDataset(Dataset):
    """Samples of Python code: tuples with a value for each of `column_names`, or the values of the only column.

    `source` has `__getitem__` and `__len__`; or it is an iterable of samples, or a function that returns one, such as a
    generator. It is read once, in the constructor, so that every epoch and every resumed run has the same samples, with
    the types of `NumpySlicesDataset`; `num_samples` is the number of samples that are read, also of an iterable without
    end. Samples may differ in shape until they are batched. `column_types` are checked; `python_multiprocessing` has no
    effect. Raises ConfigError, with the number of the sample and its column, for one whose element type or number of
    axes differs from those of the first, and when there is not enough memory for the samples.

    >>> GeneratorDataset(lambda: (([k, k], k) for k in range(6)), ["x", "y"]).column_types()
    [TensorType(dtype=Int32, shape=(2,)), TensorType(dtype=Int32, shape=())]
    """

    def __init__(
        self,
        source: object,
        column_names: str | Sequence[str] | None = None,
        column_types: Sequence[Any] | None = None,
        schema: None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        python_multiprocessing: bool = True,
    ) -> None:
        refuse(schema=schema)
        flag({}, python_multiprocessing=python_multiprocessing)
        if column_names is None:
            raise ConfigError(
                "columns need names", argument="column_names", value=None, allowed="a name for each column"
            )
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        names = [str(name) for name in as_list(column_names)]
        check_names(names, max(1, len(names)))
        values = read_samples(source, names, selection.num_samples)
        if column_types is not None:
            _require_types(values, column_types)
        columns = {name: listed_column(name, own) if isinstance(own, list) else own for name, own in values.items()}
        super().__init__(*selection.apply(columns))


def _require_types(values: Mapping[str, Values], column_types: Sequence[Any]) -> None:
    """Raise ConfigError unless the columns have these element types; None is any."""
    types = [None if kind is None else dt.of(kind) for kind in column_types]
    found = [dt.of(own[0].dtype) for own in values.values()]
    if len(types) != len(found) or any(kind not in (None, own) for kind, own in zip(types, found, strict=True)):
        names = {"found": ", ".join(map(str, found)), "columns": ", ".join(values)}
        repair = "source values of these types, such as np.float32(...)"
        raise ConfigError("samples have other types than column_types", expected=types, **names, repair=repair)


def _named_arrays(data: object, column_names: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    values = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, tuple) else [data]
    named = [str(name) for name in data] if isinstance(data, Mapping) else [f"column_{k}" for k in range(len(values))]
    names = named if column_names is None else [str(name) for name in as_list(column_names)]
    check_names(names, len(values))
    return {name: _array(name, value) for name, value in zip(names, values, strict=True)}


def check_names(names: Sequence[str], columns: int) -> None:
    """Raise ConfigError unless there is a different name for each of `columns` columns."""
    if len(names) != columns or len(set(names)) != columns or "" in names:
        rows = {"argument": "column_names", "value": names, "allowed": f"{columns} different names"}
        raise ConfigError("column_names must have one different name per column", **rows)


def _array(name: str, value: object) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as reason:
        raise ConfigError("not an array", argument="data", column=name, found=reason) from None


class PaddedDataset(Dataset):
    """Samples that fill up the last shard of another dataset: `real + PaddedDataset([{"image": ..., "label": ...}])`.

    `padded_samples` are dicts of arrays with the same columns. Raises ConfigError for anything else.
    """

    def __init__(self, padded_samples: Sequence[Mapping[str, Any]]) -> None:
        if not isinstance(padded_samples, list | tuple) or not padded_samples:
            allowed = "a list of dicts of arrays"
            raise ConfigError("not samples", argument="padded_samples", value=padded_samples, allowed=allowed)
        names = list(padded_samples[0])
        if any(list(sample) != names for sample in padded_samples):
            raise ConfigError("samples with different columns", argument="padded_samples", columns=", ".join(names))
        selection = RowSelection(None, None, None, None, None)
        columns = {name: listed_column(name, [np.asarray(one[name]) for one in padded_samples]) for name in names}
        super().__init__(*selection.apply(columns))

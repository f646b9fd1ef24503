"""Datasets of the reference that read files of records: MindRecord and TFRecord. Source: r1.2.

The package `mindspore` reads them (`runner/dataset/formats/mindrecord.py`).
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from runner.dataset.formats.mindrecord import Record, mind_records, tf_records
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.samples.items import columns_of
from runner.dataset.samples.samples import ListedSamples
from runner.dataset.schema import Schema
from runner.dataset.selection import RowSelection
from runner.dataset.text_sources import Shuffle, matching_files, shuffles
from runner.errors import ConfigError
from runner.validation.arguments import as_list, flag, whole_number

__all__ = ["MindDataset", "TFRecordDataset"]


class MindDataset(Dataset):
    """The rows of MindRecord files: a column for each field, in the order of their names or of `columns_list`.

    A name stands for all files that were written with it, a list for its files only. Numbers have the types of the
    file's schema, text is bytes, a field of bytes is UInt8 [length]. The rows are read once, in the constructor, in
    random order unless `shuffle` is False. `num_padded` rows that are `padded_sample` follow the last one, so that
    shards have equal numbers of rows. Needs the extra `mindrecord`. Raises ConfigError without it and for unknown
    columns, DataError for missing or damaged files.
    """

    def __init__(
        self,
        dataset_file: str | Sequence[str],
        columns_list: Sequence[str] | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        sampler: Any = None,
        padded_sample: Mapping[str, Any] | None = None,
        num_padded: int | None = None,
        num_samples: int | None = None,
    ) -> None:
        is_shuffled = True if shuffle is None and sampler is None else shuffle
        selection = RowSelection(None, num_parallel_workers, is_shuffled, num_shards, shard_id, sampler)
        if (padded_sample is None) != (num_padded is None) or (padded_sample is not None and num_shards is None):
            allowed = "padded_sample, num_padded and num_shards with each other"
            raise ConfigError("rows that fill up shards are not complete", argument="num_padded", allowed=allowed)
        rows = mind_records(dataset_file, _names(columns_list))
        if padded_sample is not None:
            rows += [_padding(padded_sample, rows[0])] * whole_number("num_padded", num_padded, 0)
        super().__init__(*selection.apply(_columns(rows)))
        if num_samples is not None:
            self._order = self.take(whole_number("num_samples", num_samples, 1))._order


class TFRecordDataset(Dataset):
    """The examples of TFRecord files: a column for each feature, Int64, Float32 or, for bytes, UInt8 [length].

    `dataset_files` are paths or patterns. `schema`, a `Schema` or the path of a JSON file, gives types and shapes;
    without it they are those of the values. The examples are read once, in the constructor. Every shard has its share
    of the rows, equal with `shard_equal_rows`; Shuffle.FILES is the order of the names here. Needs the extra
    `mindrecord`. Raises ConfigError without it, DataError for missing and damaged files.
    """

    def __init__(
        self,
        dataset_files: str | Sequence[str],
        schema: str | PathLike[str] | Schema | None = None,
        columns_list: Sequence[str] | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        shard_equal_rows: bool = False,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        flag({}, shard_equal_rows=shard_equal_rows)
        selection = RowSelection(num_samples, num_parallel_workers, shuffles(shuffle), num_shards, shard_id)
        known = schema if isinstance(schema, Schema) or schema is None else Schema(schema)
        limit = selection.num_samples or (Schema.get_num_rows(known) if known is not None else 0)
        text = None if known is None else known.to_json()
        rows = tf_records(matching_files(dataset_files), text, _names(columns_list))
        if selection.num_shards == 1 and limit:
            rows = rows[:limit]
        super().__init__(*selection.apply(_columns(rows)))
        if selection.num_shards > 1 and limit:
            self._order = self.take(limit)._order


def _names(columns_list: Sequence[str] | None) -> list[str] | None:
    return [str(name) for name in as_list(columns_list)] if columns_list else None


def _columns(rows: Sequence[Record]) -> dict[str, Any]:
    names = list(rows[0])
    columns = columns_of(ListedSamples(names, [tuple(row[name] for name in names) for row in rows]))
    return {column.name: column for column in columns}


def _padding(given: Mapping[str, Any], first: Record) -> Record:
    """A sample with the columns of the file, in their types."""
    if set(given) != set(first):
        raise ConfigError(
            "padded_sample needs a value for each column", value=sorted(given), columns=", ".join(sorted(first))
        )
    return {name: _like(given[name], first[name]) for name in first}


def _like(value: Any, usual: np.ndarray) -> np.ndarray:
    if usual.dtype.kind == "S":
        return np.array(value if isinstance(value, bytes) else str(value).encode())
    if isinstance(value, bytes):
        return np.frombuffer(value, np.uint8).copy()
    return np.asarray(value).astype(usual.dtype)

"""Datasets of the reference that read files of records: MindRecord and TFRecord. Source: r1.2.

`Schema` describes the columns of TFRecord files. The package `mindspore` (the extra `mindrecord`) reads both kinds;
it is imported when a file is read or written (`library`), and never by a run that uses neither: that takes seconds.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.operations import columns_of
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.samplers import RowSelection
from runner.dataset.samples import ListedSamples
from runner.errors import ConfigError, DataError, RunnerError, known_names
from runner.host.json import config_bytes, decoded, parse_config
from runner.host.machine import require_memory
from runner.mindspore.dataset.text import Shuffle, matching_files, shuffles
from runner.validation.arguments import as_list, flag, whole_number

TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string"),
)
_KEYS = "datasetType", "numRows", "columns"


class Schema:
    """Columns with their types, of a JSON file or added one by one.

    Raises DataError for a file that cannot be read, and ConfigError for one that is no schema.

    >>> schema = Schema()
    >>> schema.add_column("x", dt.float32, [2])
    >>> json.loads(schema.to_json())
    {'columns': [{'name': 'x', 'rank': 1, 'shape': [2], 'type': 'float32'}]}
    """

    def __init__(self, schema_file: str | PathLike[str] | None = None) -> None:
        self.schema_file = "" if schema_file is None else str(schema_file)
        self._about: dict[str, Any] = {}
        self.columns: list[dict[str, Any]] = []
        if self.schema_file:
            path = Path(self.schema_file)
            if not path.is_file():
                raise DataError("a schema is missing", file=path, expected="a JSON file with columns")
            self.from_json(parse_config(decoded(config_bytes(path)), str(path)))

    def add_column(self, name: str, de_type: Any, shape: Sequence[int] | None = None) -> None:
        """A further column. `de_type` is an element type or its name, or "string"; -1 in `shape` is any length.

        Without `shape`, values have one axis of any length. Raises ConfigError for an unknown type.
        """
        self.columns.append(_column(name, {"type": de_type, **({} if shape is None else {"shape": shape})}))

    def parse_columns(self, columns: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Further columns: dicts with `name`, `type` and perhaps `shape`, or a dict of such dicts by name.

        Raises ConfigError for one without name or type.
        """
        if isinstance(columns, Mapping):
            self.columns += [_column(str(name), given) for name, given in columns.items()]
            return
        for given in columns:
            if not isinstance(given, Mapping) or "name" not in given:
                raise ConfigError("a column without a name", argument="columns", value=given)
            self.columns.append(_column(str(given["name"]), given))

    def to_json(self) -> str:
        """The schema as JSON text."""
        return json.dumps({"columns": self.columns or None, **self._about}, indent=2, sort_keys=True)

    def from_json(self, json_obj: Mapping[str, Any]) -> None:
        """Replace the schema by one that JSON gave. Raises ConfigError for unknown keys and without columns."""
        if not isinstance(json_obj, Mapping) or "columns" not in json_obj:
            raise ConfigError("not a schema", value=json_obj, allowed='a dict with "columns"')
        for name in json_obj:
            if name not in _KEYS:
                raise ConfigError("an unknown key of a schema", value=name, **known_names(str(name), list(_KEYS)))
        self._about = {name: json_obj[name] for name in _KEYS[:2] if name in json_obj}
        self.columns = []
        self.parse_columns(json_obj["columns"])

    @staticmethod
    def get_num_rows(schema: Any) -> int:
        """The number of rows that a schema, or the file of one, gives; 0 without one."""
        known = schema if isinstance(schema, Schema) else Schema(schema)
        return whole_number("numRows", known._about.get("numRows", 0), 0)

    def __str__(self) -> str:
        return self.to_json()


def _column(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or "type" not in given:
        raise ConfigError("a column without a type", column=name, value=given, allowed=", ".join(TYPES))
    kind = given["type"]
    text = str(kind).lower() if kind is dt.string or isinstance(kind, str) else str(dt.of(kind)).lower()
    if text not in TYPES:
        raise ConfigError("not a type of a column", column=name, value=kind, **known_names(text, list(TYPES)))
    if "shape" not in given:
        return {"name": name, "rank": whole_number("rank", given.get("rank", 1), 0), "type": text}
    shape = [whole_number("shape", length, -1) for length in as_list(given["shape"])]
    return {"name": name, "rank": len(shape), "shape": shape, "type": text}


# The package `mindspore`.

INSTALL = 'pip install "runner-ml[mindrecord]"'
_QUIET = {"GLOG_v": "4"}  # no lines of its own: what fails raises, and its warnings are about its own speed
_FRAMES = "-", "Exception thrown", "Syntax error", "mindspore/"  # how the library's errors begin and end
Record = dict[str, np.ndarray]


@cache
def library() -> SimpleNamespace:
    """`records`, the module `mindspore.mindrecord`, and `datasets`, `mindspore.dataset`. Raises ConfigError without."""
    try:
        with _environment():
            from mindspore import dataset, mindrecord
    except ImportError as reason:
        rows = {"package": "mindspore", "reason": reason, "repair": INSTALL}
        raise ConfigError("MindRecord and TFRecord files need the package mindspore", **rows) from None
    return SimpleNamespace(records=mindrecord, datasets=dataset)


@contextmanager
def _environment() -> Iterator[None]:
    """Import quietly, and leave the environment of this process, and of those that it starts, unchanged."""
    before = dict(os.environ)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def errors_of_library(what: str, **rows: object) -> Iterator[None]:
    """Turn what the library raises into a DataError with these rows and what its text says."""
    try:
        yield
    except RunnerError:
        raise
    except Exception as reason:  # MindSpore raises RuntimeError, ValueError, TypeError and classes of its own
        lines = [line.strip().removeprefix("[ERROR] ") for line in str(reason).splitlines()]
        useful = [line for line in lines if line and not line.startswith(_FRAMES)][:3]
        raise DataError(what, **rows, found="\n".join(useful) or type(reason).__name__) from None


def mind_records(given: str | Sequence[str], columns: Sequence[str] | None) -> list[Record]:
    """All rows of MindRecord files, in their order; one name stands for all files that were written with it.

    Numbers are arrays of shape () in the type of the schema, text is bytes (S), bytes are UInt8 [length]. Raises
    DataError for files that are missing or damaged, ConfigError for columns that they do not have.
    """
    paths = [Path(given)] if isinstance(given, str | os.PathLike) else [Path(one) for one in given]
    _require_files(paths, "a MindRecord file and the file NAME.db beside it", ".db")
    what = "MindRecord files cannot be read"
    with errors_of_library(what, file=", ".join(map(str, paths))):
        names = str(paths[0]) if isinstance(given, str | os.PathLike) else [str(path) for path in paths]
        reader = library().records.FileReader(names)
        schema: dict[str, Any] = reader.schema()
        chosen = sorted(schema) if columns is None else list(columns)
        for name in chosen:
            if name not in schema:
                allowed = ", ".join(sorted(schema))
                raise ConfigError("no such column", argument="columns_list", value=name, allowed=allowed)
        rows = [{name: field_value(row[name], schema[name]["type"]) for name in chosen} for row in reader.get_next()]
        reader.close()
    if not rows:
        raise DataError("MindRecord files without rows", file=", ".join(map(str, paths)))
    return rows


def field_value(value: Any, kind: str) -> np.ndarray:
    """A value of a field whose type in the schema is `kind`, as an array."""
    if isinstance(value, bytes) and kind == "bytes":
        return np.frombuffer(value, np.uint8).copy()
    if kind == "string":
        return np.array(str(value).encode())
    return np.array(value, dt.of(kind).numpy)


def tf_records(paths: Sequence[Path], schema: str | None, columns: Sequence[str] | None) -> list[Record]:
    """All examples of TFRecord files, file after file, as MindSpore reads them with this schema (JSON text).

    Raises DataError for files that are missing or damaged, and when they do not fit the schema.
    """
    _require_files(paths, "a TFRecord file")
    rows: list[Record] = []
    for path in paths:
        with errors_of_library("a TFRecord file cannot be read", file=path):
            datasets = library().datasets
            known = datasets.Schema() if schema is not None else None
            if known is not None:
                known.cpp_schema.from_string(schema)
            found = datasets.TFRecordDataset([str(path)], known, columns, num_parallel_workers=1, shuffle=False)
            for row in found.create_dict_iterator(num_epochs=1, output_numpy=True):
                rows.append({name: np.array(row[name]) for name in columns or row})
    if not rows:
        raise DataError("TFRecord files without examples", file=", ".join(map(str, paths)))
    return rows


def _require_files(paths: Sequence[Path], expected: str, *suffixes: str) -> None:
    total = 0
    for path in paths:
        for one in (path, *(Path(f"{path}{suffix}") for suffix in suffixes)):
            if not one.is_file():
                raise DataError("a data file is missing", file=one, expected=expected)
        total += path.stat().st_size
    require_memory(total, files=len(paths), repair="num_shards with fewer files for each process")


# The datasets.


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

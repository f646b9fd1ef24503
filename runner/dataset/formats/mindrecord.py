"""The package `mindspore` (the extra `mindrecord`), which reads and writes MindRecord and reads TFRecord files.

It is imported when a file is read or written, and never by a run that uses neither: that takes seconds.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError, DataError, RunnerError
from runner.host.machine import require_memory

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

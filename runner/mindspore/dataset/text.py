"""Datasets of the reference that read text files, line by line: text and CSV. Source: r1.2."""

import csv
import glob
import io
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import numpy as np

from runner.dataset.column import Column, listed_column
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.readers.csv_types import by_default
from runner.dataset.samplers import RowSelection
from runner.errors import ConfigError, DataError
from runner.host import files
from runner.validation.arguments import as_list

MAX_FILE_BYTES = 1 << 32


class Shuffle(StrEnum):
    """How lines of several files are shuffled: GLOBAL mixes all lines, FILES changes the order of files only."""

    GLOBAL = "global"
    FILES = "file"


class TextFileDataset(Dataset):
    """The lines of text files (UTF-8), without empty ones: column `text`, bytes.

    `dataset_files` are paths or patterns such as `data/*.txt`. Shuffle.FILES is the order of the names here. Raises
    DataError for a missing file and one that is not UTF-8.
    """

    def __init__(
        self,
        dataset_files: str | Sequence[str],
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffles(shuffle), num_shards, shard_id)
        lines = [line for path in matching_files(dataset_files) for line in _text(path).split("\n")]
        texts = [np.array(line.removesuffix("\r").encode()) for line in lines if line.strip()][: selection.num_samples]
        if not texts:
            raise DataError("text files without lines", files=dataset_files)
        super().__init__(*selection.apply({"text": listed_column("text", texts)}))


class CSVDataset(Dataset):
    """The rows of CSV files: a column for each field.

    `column_names` None: the first line of each file has them. The type of a column is that of its value in
    `column_defaults` (int: Int32, float: Float32, str: text), which stands for empty fields; without defaults all are
    text. Raises DataError for another number of fields and for what is no number, with file and line.
    """

    def __init__(
        self,
        dataset_files: str | Sequence[str],
        field_delim: str | None = ",",
        column_defaults: Sequence[int | float | str] | None = None,
        column_names: Sequence[str] | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffles(shuffle), num_shards, shard_id)
        field_delim = "," if field_delim is None else field_delim
        if not isinstance(field_delim, str) or len(field_delim) != 1:
            raise ConfigError("not a delimiter", argument="field_delim", value=field_delim, allowed="one character")
        names = None if column_names is None else [str(name) for name in as_list(column_names)]
        rows: list[tuple[Path, int, list[str]]] = []
        for path in matching_files(dataset_files):
            names = _read_rows(path, field_delim, names, column_names is None, rows)
        if not rows or names is None:
            raise DataError("CSV files without rows", files=dataset_files)
        rows = rows[: selection.num_samples]
        defaults = [""] * len(names) if column_defaults is None else list(column_defaults)
        if len(defaults) != len(names):
            about = {"argument": "column_defaults", "value": defaults, "columns": ", ".join(names)}
            raise ConfigError("column_defaults needs a value for each column", **about)
        columns = {name: _field(name, k, defaults[k], rows) for k, name in enumerate(names)}
        super().__init__(*selection.apply(columns))


def _read_rows(
    path: Path, delimiter: str, names: list[str] | None, has_header: bool, rows: list[tuple[Path, int, list[str]]]
) -> list[str] | None:
    """Add the rows of a file, and return the names of the columns."""
    reader = csv.reader(io.StringIO(_text(path), newline=""), delimiter=delimiter)
    for fields in reader:
        if has_header and reader.line_num == 1:
            if names is not None and names != fields:
                raise DataError("files with different columns", file=path, found=fields, expected=names)
            names = fields
        elif fields:
            if names is not None and len(fields) != len(names):
                found = f"{len(fields)} fields in line {reader.line_num}"
                raise DataError("a row with another number of fields", file=path, found=found, expected=len(names))
            rows.append((path, reader.line_num, fields))
    return names


def _field(name: str, place: int, default: int | float | str, rows: Sequence[tuple[Path, int, list[str]]]) -> Column:
    as_default = by_default(default)
    values = []
    for path, line, fields in rows:
        try:
            values.append(as_default(fields[place]))
        except (ValueError, OverflowError):
            about = {"column": name, "found": f"{fields[place]!r} in line {line}"}
            raise DataError("not a number", file=path, **about, expected=type(default).__name__) from None
    if isinstance(default, str):
        return listed_column(name, [np.array(value) for value in values])
    return Column(name, np.array(values))


def shuffles(shuffle: object) -> bool:
    """Whether all rows are mixed. Raises ConfigError for anything but a bool and a Shuffle."""
    if not isinstance(shuffle, bool | Shuffle):
        raise ConfigError("not a way to shuffle", argument="shuffle", value=shuffle, allowed="a bool or a Shuffle")
    return shuffle is True or shuffle is Shuffle.GLOBAL


def matching_files(dataset_files: str | Sequence[str]) -> list[Path]:
    """The files, in the order of their names. Raises DataError for a path or pattern without a file."""
    paths = []
    for given in as_list(dataset_files):
        found = sorted(glob.glob(str(given)))
        if not found:
            raise DataError("a data file is missing", file=given)
        paths += [Path(path) for path in found]
    return paths


def _text(path: Path) -> str:
    try:
        return files.read_bytes(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError as reason:
        raise DataError("not UTF-8 text", file=path, found=reason) from None

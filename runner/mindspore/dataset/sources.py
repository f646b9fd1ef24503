"""Datasets of r1.2 that only its scripts use, by what they read.

Image files: CIFAR-100, folders of classes, and files that list images with their annotations, Manifest and CelebA. Text
files, line by line: text and CSV. Files of records: MindRecord and TFRecord. Source: `mindspore.dataset` r1.2.
"""

import csv
import glob
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.column import Column, labels_column, listed_column
from runner.dataset.operations import columns_of
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.readers import image_file, mnist_cifar
from runner.dataset.readers.csv_types import by_default
from runner.dataset.readers.mnist_cifar import missing, stored_as
from runner.dataset.samplers import RowSelection
from runner.dataset.samples import ListedSamples, Sample, SampleColumn, Samples
from runner.errors import ConfigError, DataError, RunnerError, known_names
from runner.host import files
from runner.host.json import config_bytes, decoded, parse_config, parse_data
from runner.host.machine import require_memory
from runner.validation.arguments import as_list, flag, one_of, whole_number

Folder = str | PathLike[str]
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class Cifar100Dataset(Dataset):
    """CIFAR-100: `image` uint8 [32, 32, 3], `coarse_label` (20 classes) and `fine_label` (100), of types as for MNIST.

    Reads `train.bin` and `test.bin`, plain or `.gz`. `usage` is "train", "test" or "all"; None is all existing files.
    Raises DataError when a file is missing or damaged.
    """

    def __init__(
        self,
        dataset_dir: Folder,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        one_of({}, ("train", "test", "all"), usage="all" if usage is None else usage)
        folder = Path(dataset_dir).expanduser()
        splits = [usage] if usage in mnist_cifar.FILES_100 else list(mnist_cifar.FILES_100)
        found = {split: stored_as(folder, mnist_cifar.FILES_100[split]) for split in splits}
        paths = [path for path in found.values() if path is not None]
        if not paths or (usage is not None and len(paths) < len(splits)):
            repair = "unpack cifar-100-binary.tar.gz and name its folder"
            raise missing(folder, " and ".join(mnist_cifar.FILES_100[split] for split in splits), repair)
        records = np.concatenate([mnist_cifar.read_records_100(path) for path in paths])[: selection.num_samples]
        images = records[:, 2:].reshape(-1, 3, mnist_cifar.SIDE, mnist_cifar.SIDE).transpose(0, 2, 3, 1)
        labels = {name: labels_column(name, records[:, place]) for place, name in enumerate(mnist_cifar.CLASSES_100)}
        super().__init__(*selection.apply({"image": images, **labels}))


class FileImages(Samples):
    """Files of images: their bytes, uint8 [length], or decoded, uint8 [H, W, 3]."""

    def __init__(self, paths: Sequence[Path], is_decoded: bool) -> None:
        super().__init__(["image"], len(paths))
        self._paths, self._is_decoded = paths, is_decoded

    def at(self, visit: int) -> Sample:
        """Raises DataError for a file that cannot be read, and when decoding one that is no image."""
        path = self._paths[visit % self.count]
        if self._is_decoded:
            return (image_file.decode(path, None, 3),)
        return (np.frombuffer(files.read_bytes(path, image_file.MAX_FILE_BYTES), np.uint8).copy(),)


class ImageFolderDataset(Dataset):
    """Images in a folder for each class: `image`, the bytes of a file (or decoded, [H, W, 3]), and `label` int32.

    Files are read when a batch needs them. Classes are numbered in the order of their names, or by `class_indexing`,
    which then also selects them. `extensions` of files are by default those of images. In the order of MindSpore,
    so for `shuffle=None` at random. Raises DataError for a missing folder and one without images.
    """

    def __init__(
        self,
        dataset_dir: Folder,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        extensions: Sequence[str] | None = None,
        class_indexing: Mapping[str, int] | None = None,
        decode: bool = False,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        flag({}, decode=decode)
        is_shuffled = True if shuffle is None and sampler is None else shuffle
        selection = RowSelection(None, num_parallel_workers, is_shuffled, num_shards, shard_id, sampler)
        folder = Path(dataset_dir).expanduser()
        indexing = _class_numbers(folder, class_indexing)
        suffixes = EXTENSIONS if extensions is None else tuple(extension.lower() for extension in extensions)
        paths, labels = [], []
        for name, number in sorted(indexing.items()):
            own = sorted(path for path in _entries(folder / name) if path.suffix.lower() in suffixes and path.is_file())
            paths += own
            labels += [number] * len(own)
        if not paths:
            raise DataError("a folder without images", folder=folder, expected=f"CLASS/NAME with {', '.join(suffixes)}")
        image = Column("image", SampleColumn(FileImages(paths, decode), 0))
        super().__init__(*selection.apply({"image": image, "label": Column("label", np.array(labels, np.int32))}))
        if num_samples is not None:
            self._order = self.take(whole_number("num_samples", num_samples, 1))._order
        self.row_names = [str(path) for path in paths]
        self._indexing, self.num_classes = indexing, len(indexing)


def _class_numbers(folder: Path, class_indexing: Mapping[str, int] | None) -> dict[str, int]:
    if class_indexing is None or class_indexing == {}:
        names = sorted(path.name for path in _entries(folder) if path.is_dir())
        return {name: number for number, name in enumerate(names)}
    if not isinstance(class_indexing, Mapping) or not all(isinstance(name, str) for name in class_indexing):
        raise ConfigError(
            "not numbers of classes", argument="class_indexing", value=class_indexing, allowed="{name: 0}"
        )
    limits = -(2**31), 2**31 - 1
    numbers = {name: whole_number("class_indexing", number, *limits) for name, number in class_indexing.items()}
    for name in numbers:
        if not (folder / name).is_dir():
            raise DataError("a folder of a class is missing", folder=folder / name, argument="class_indexing")
    return numbers


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        raise missing(folder, "CLASS/NAME", "name a folder with one folder for each class") from None
    except OSError as reason:
        raise DataError("cannot read a data folder", folder=folder, found=reason.strerror) from reason


# Image files that are listed in a file with their annotations.

MAX_FILE_BYTES = 1 << 30
PARTITIONS = {"train": 0, "valid": 1, "test": 2}


class ManifestDataset(Dataset):
    """The images of a manifest, a JSON object in each line: `image`, the bytes of a file (or decoded, [H, W, 3]), and
    `label`, the number of its class, or of each of its classes [n].

    Rows of `usage` ("train", "eval" or "inference"). Classes are numbered in the order of their names, or by
    `class_indexing`, which then also selects the rows. In the order of MindSpore, so for `shuffle=None` at random.
    Raises DataError for a missing file, and for a line that is no such object.
    """

    def __init__(
        self,
        dataset_file: str | Path,
        usage: str = "train",
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        class_indexing: Mapping[str, int] | None = None,
        decode: bool = False,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        flag({}, decode=decode)
        one_of({}, ("train", "eval", "inference"), usage=usage)
        selection = RowSelection(
            num_samples, num_parallel_workers, _is_shuffled(shuffle, sampler), num_shards, shard_id, sampler
        )
        rows = _manifest_rows(Path(dataset_file), usage)
        names = sorted({name for _, classes in rows for name in classes})
        numbers = {name: number for number, name in enumerate(names)}
        if class_indexing:
            numbers = {name: whole_number("class_indexing", number, 0) for name, number in class_indexing.items()}
        kept = [(path, [numbers[name] for name in own if name in numbers]) for path, own in rows]
        kept = [(path, own) for path, own in kept if own or usage == "inference"]
        if not kept:
            raise DataError("a manifest without images", file=dataset_file, usage=usage, classes=", ".join(numbers))
        labels = [np.array(own[0] if len(own) == 1 else own, np.uint64) for _, own in kept]
        super().__init__(*_applied(selection, [path for path, _ in kept], decode, {"label": _label(labels)}))
        self._indexing, self.num_classes = numbers, len(numbers)


class CelebADataset(Dataset):
    """The images of CelebA: `image`, the bytes of a file (or decoded, [H, W, 3]), and `attr`, its attributes, 0 or 1.

    The folder has the images, `list_attr_celeba.txt` and, for a `usage` other than "all", `list_eval_partition.txt`.
    In the order of MindSpore, so for `shuffle=None` at random. Raises DataError for a file that is missing or has
    another form.
    """

    def __init__(
        self,
        dataset_dir: str | Path,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        usage: str = "all",
        sampler: Any = None,
        decode: bool = False,
        extensions: Sequence[str] | None = None,
        num_samples: int | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        flag({}, decode=decode)
        one_of({}, ("all", *PARTITIONS), usage=usage)
        selection = RowSelection(
            num_samples, num_parallel_workers, _is_shuffled(shuffle, sampler), num_shards, shard_id, sampler
        )
        folder = Path(dataset_dir).expanduser()
        rows = _attributes(folder / "list_attr_celeba.txt")
        if usage != "all":
            part = _partition(folder / "list_eval_partition.txt", PARTITIONS[usage])
            rows = [row for row in rows if row[0] in part]
        if extensions:
            rows = [row for row in rows if Path(row[0]).suffix in extensions]
        if not rows:
            raise DataError("no images are left", folder=folder, usage=usage, extensions=extensions)
        attributes = labels_column("attr", (np.array([own for _, own in rows]) + 1) // 2)
        super().__init__(*_applied(selection, [folder / name for name, _ in rows], decode, {"attr": attributes}))


def _is_shuffled(shuffle: bool | None, sampler: Any) -> bool | None:
    return True if shuffle is None and sampler is None else shuffle


def _applied(selection: RowSelection, paths: list[Path], decode: bool, others: Mapping[str, Column]) -> Any:
    images = Column("image", SampleColumn(FileImages(paths, decode), 0))
    columns, order, workers = selection.apply({"image": images, **others})
    limited = Dataset(columns, order, workers).take(selection.limit or -1)
    return columns, limited._order, workers


def _label(labels: list[np.ndarray]) -> Column:
    if any(label.ndim for label in labels):
        return listed_column("label", labels)
    numbers = np.array(labels)
    return Column("label", numbers.astype(np.int32), original=numbers)


def _manifest_rows(path: Path, usage: str) -> list[tuple[Path, list[str]]]:
    rows = []
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = parse_data(line.encode())
            if str(entry["usage"]).lower() == usage:
                names = [str(one["name"]) for one in entry.get("annotation", []) if "name" in one]
                rows.append((Path(entry["source"].removeprefix("file://")), names))
        except (ValueError, TypeError, KeyError, AttributeError) as reason:
            expected = '{"source": path, "usage": "train", "annotation": [{"name": class}]}'
            found = reason.rows.get("reason", reason.what) if isinstance(reason, DataError) else reason
            about = {"file": path, "line": number, "found": found, "expected": expected}
            raise DataError("not a line of a manifest", **about) from None
    return rows


def _attributes(path: Path) -> list[tuple[str, list[int]]]:
    lines = _lines(path)
    width = len(lines[1].split()) if len(lines) > 1 else 0
    rows = []
    for number, line in enumerate(lines[2:], 3):
        name, *values = line.split()
        if len(values) != width or not {"1", "-1"}.issuperset(values):
            about = {"found": f"{len(values)} values", "expected": f"{width}, 1 or -1"}
            raise DataError("not a line of attributes", file=path, line=number, **about)
        rows.append((name, [int(value) for value in values]))
    return rows


def _partition(path: Path, number: int) -> set[str]:
    rows = [line.split() for line in _lines(path)]
    return {row[0] for row in rows if len(row) == 2 and row[1] == str(number)}


def _lines(path: Path) -> list[str]:
    try:
        text = files.read_bytes(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError as reason:
        raise DataError("not UTF-8 text", file=path, found=reason) from None
    return [line for line in text.splitlines() if line.strip()]


# Datasets of MindSpore that read text files, line by line: text and CSV. Source: r1.2.

MAX_TEXT_BYTES = 1 << 32


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
        return files.read_bytes(path, MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError as reason:
        raise DataError("not UTF-8 text", file=path, found=reason) from None


# Datasets of MindSpore that read files of records: MindRecord and TFRecord. Source: r1.2.
#
# `Schema` describes the columns of TFRecord files. The package `mindspore` (the extra `mindrecord`) reads both kinds;
# it is imported when a file is read or written (`library`), and never by a run that uses neither: that takes seconds.

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

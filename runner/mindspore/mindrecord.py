"""`mindspore.mindrecord` r1.2: MindRecord files written, read and searched, and converters of other files into them.

The package `mindspore` writes and reads the files, and checks fields against the schema. Since its release 2 some calls
return nothing; here they return what they did in r1.2. Converters write images of CIFAR and MNIST as JPEG files, as in
MindSpore, which uses OpenCV for it; here Pillow writes them.
"""

import csv
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

from runner.dataset.readers import mnist_cifar
from runner.dataset.readers.csv_types import by_all
from runner.dataset.readers.mnist_cifar import missing, stored_as
from runner.dataset.vision.image import jpeg
from runner.errors import ConfigError, DataError, StorageError, known_names
from runner.host import files
from runner.mindspore.dataset.sources import errors_of_library, library
from runner.mindspore.pickles import BATCHES_10, BATCHES_100, LABELS_10, LABELS_100, Labels, read_batches
from runner.validation.arguments import whole_number

__all__ = [
    "FAILED",
    "SUCCESS",
    "Cifar10ToMR",
    "Cifar100ToMR",
    "CsvToMR",
    "FileReader",
    "FileWriter",
    "ImageNetToMR",
    "MSRStatus",
    "MindPage",
    "MnistToMR",
    "TFRecordToMR",
]

MAX_SHARDS = 1000


class MSRStatus(IntEnum):
    """The result of a call."""

    SUCCESS = 0
    FAILED = 1


SUCCESS, FAILED = MSRStatus.SUCCESS, MSRStatus.FAILED


class FileWriter:
    """Writes rows into `shard_num` MindRecord files, `file_name` or `file_name0`, `file_name1`, ..., and their indexes.

    `add_schema`, then `add_index` if fields are to be searched, then `write_raw_data` as often as necessary, then
    `commit`. Raises StorageError when one of the files exists, ConfigError without the extra `mindrecord`, DataError
    for what the format cannot have.
    """

    def __init__(self, file_name: str, shard_num: int = 1) -> None:
        whole_number("shard_num", shard_num, 1, MAX_SHARDS)
        self._file_name = str(file_name)
        numbers = [""] if shard_num == 1 else map(str, range(shard_num))
        for path in (Path(f"{file_name}{number}{end}") for number in numbers for end in ("", ".db")):
            if path.exists():
                raise StorageError("a file of this name exists", path=path, repair="remove it, or write another one")
        with self._errors():
            self._writer = library().records.FileWriter(self._file_name, shard_num)

    @classmethod
    def open_for_append(cls, file_name: str) -> Self:
        """A writer that adds rows to existing files, whose schema it has. Raises DataError when they are damaged."""
        writer = cls.__new__(cls)
        writer._file_name = str(file_name)
        with writer._errors():
            writer._writer = library().records.FileWriter.open_for_append(writer._file_name)
        return writer

    def add_schema(self, content: Mapping[str, Any], desc: str | None = None) -> int:
        """The fields, such as {"label": {"type": "int32"}, "x": {"type": "float32", "shape": [-1]}}; its number, 0."""
        with self._errors():
            self._writer.add_schema(dict(content), desc)
        return 0

    def add_index(self, index_fields: Sequence[str]) -> MSRStatus:
        """Fields of numbers or text by which files can be searched."""
        return self._call("add_index", list(index_fields) if isinstance(index_fields, tuple) else index_fields)

    def write_raw_data(self, raw_data: Sequence[Mapping[str, Any]], parallel_writer: bool = False) -> MSRStatus:
        """Add rows: dicts with a value for each field. `parallel_writer` writes them in several processes."""
        return self._call("write_raw_data", raw_data, parallel_writer)

    def set_header_size(self, header_size: int) -> MSRStatus:
        """Bytes of the header, a power of two from 16 KiB to 128 MiB."""
        return self._call("set_header_size", header_size)

    def set_page_size(self, page_size: int) -> MSRStatus:
        """Bytes of a page, a power of two from 32 KiB to 256 MiB; a row has to fit."""
        return self._call("set_page_size", page_size)

    def commit(self) -> MSRStatus:
        """Write what is left, and the indexes."""
        return self._call("commit")

    def _call(self, method: str, *arguments: Any) -> MSRStatus:
        with self._errors():
            getattr(self._writer, method)(*arguments)
        return SUCCESS

    def _errors(self) -> Any:
        return errors_of_library("a MindRecord file cannot be written", file=self._file_name)


class FileReader:
    """Reads the rows of MindRecord files in their order; a name stands for all files that were written with it.

    `columns` are the fields to read, by default all. Raises ConfigError without the extra `mindrecord`, DataError for
    missing and damaged files.
    """

    def __init__(
        self,
        file_name: str | Sequence[str],
        num_consumer: int = 4,
        columns: Sequence[str] | None = None,
        operator: Any = None,
    ) -> None:
        self._file_name = file_name
        if columns is not None and not isinstance(columns, list):
            raise ConfigError("not names of fields", argument="columns", value=columns, allowed="a list of names")
        with self._errors():
            self._reader = library().records.FileReader(file_name, _threads(num_consumer), columns, operator)

    def get_next(self) -> Iterator[dict[str, Any]]:
        """Row after row: a dict of Python numbers, text, bytes and arrays."""
        with self._errors():
            yield from self._reader.get_next()

    def close(self) -> None:
        """Stop reading."""
        with self._errors():
            self._reader.close()

    def _errors(self) -> Any:
        return errors_of_library("a MindRecord file cannot be read", file=self._file_name)


class MindPage:
    """Reads rows of MindRecord files by the values of an indexed field, page by page.

    Raises ConfigError without the extra `mindrecord`, DataError for missing and damaged files.
    """

    def __init__(self, file_name: str | Sequence[str], num_consumer: int = 4) -> None:
        self._file_name = file_name
        with self._errors():
            self._pages = library().records.MindPage(file_name, _threads(num_consumer))

    @property
    def candidate_fields(self) -> list[str]:
        """The indexed fields."""
        return list(self._pages.candidate_fields)

    def get_category_fields(self) -> list[str]:
        """The indexed fields."""
        return self.candidate_fields

    @property
    def category_field(self) -> str | None:
        """The field whose values are categories."""
        chosen: str | None = self._pages.category_field
        return chosen

    @category_field.setter
    def category_field(self, category_field: str) -> None:
        self.set_category_field(category_field)

    def set_category_field(self, category_field: str) -> MSRStatus:
        """Choose the field. Raises ConfigError for one that is not indexed."""
        if category_field not in self.candidate_fields:
            known = known_names(str(category_field), self.candidate_fields)
            raise ConfigError("not an indexed field", argument="category_field", value=category_field, **known)
        with self._errors():
            self._pages.category_field = category_field
        return SUCCESS

    def read_category_info(self) -> str:
        """The categories with their numbers and counts of rows, as JSON text."""
        with self._errors():
            return str(self._pages.read_category_info())

    def read_at_page_by_id(self, category_id: int, page: int, num_row: int) -> list[dict[str, Any]]:
        """The rows of a page, `num_row` long, of the category with this number."""
        with self._errors():
            return list(self._pages.read_at_page_by_id(category_id, page, num_row))

    def read_at_page_by_name(self, category_name: str, page: int, num_row: int) -> list[dict[str, Any]]:
        """The rows of a page, `num_row` long, of the category with this name."""
        with self._errors():
            return list(self._pages.read_at_page_by_name(category_name, page, num_row))

    def _errors(self) -> Any:
        return errors_of_library("a MindRecord file cannot be read", file=self._file_name)


def _threads(num_consumer: int) -> int:
    """The number of threads, at most that of the machine's cores, which is what the library accepts."""
    return min(whole_number("num_consumer", num_consumer, 1), os.cpu_count() or 1)


# The rows of a CSV file with the types that its values have, for MindRecord.

MAX_FILE_BYTES = 1 << 32


def csv_records(path: Path, columns: Sequence[str] | None) -> tuple[dict[str, str], Iterator[dict[str, Any]]]:
    """The types of the columns by name, and the rows. The first line has the names.

    Raises DataError for a missing file and rows of another length, ConfigError for an unknown column.
    """
    if not path.is_file():
        raise DataError("a data file is missing", file=path, expected="a CSV file")
    names, lines = _lines(path)
    for name in columns or ():
        if name not in names:
            raise ConfigError("no such column", argument="columns_list", value=name, **known_names(name, names))
    kinds: dict[str, str] = {}
    values: dict[str, list[Any]] = {}
    for name in columns or names:
        place = names.index(name)
        kinds[name], values[name] = by_all([line[place] for line in lines])
    return kinds, (dict(zip(kinds, row, strict=True)) for row in zip(*values.values(), strict=True))


def _lines(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = files.read_bytes(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise DataError("not UTF-8 text", file=path, found=reason) from None
    reader = csv.reader(text.splitlines())
    try:
        (_, names), *lines = [(reader.line_num, fields) for fields in reader if fields] or [(0, [])]
    except csv.Error as reason:
        raise DataError("not a CSV file", file=path, line=reader.line_num, found=reason) from None
    for number, fields in lines:
        if len(fields) != len(names):
            found = f"{len(fields)} fields in line {number}"
            raise DataError("a row with another number of fields", file=path, found=found, expected=len(names))
    if not lines:
        raise DataError("a CSV file without rows", file=path)
    return names, [fields for _, fields in lines]


# Converters.

Fields = Mapping[str, str]
BATCH = 256  # rows that are written at a time
HEADER_BYTES, PAGE_BYTES = 1 << 24, 1 << 26
MAX_IMAGE_BYTES = PAGE_BYTES
SUFFIXES = ("JPEG", "jpg")
INSTALL_TENSORFLOW = "pip install tensorflow"


def _write(
    destination: str, fields: Fields, index: Sequence[str] | None, rows: Iterable[Mapping[str, Any]], shards: int = 1
) -> MSRStatus:
    """A file, or several, with these fields (types by name) and rows."""
    writer = FileWriter(destination, shards)
    writer.set_header_size(HEADER_BYTES)
    writer.set_page_size(PAGE_BYTES)
    writer.add_schema({name: {"type": kind} for name, kind in fields.items()}, "converted")
    if index:
        writer.add_index(list(index))
    remaining = iter(rows)
    while part := list(islice(remaining, BATCH)):
        writer.write_raw_data(part)
    return writer.commit()


class _CifarToMR:
    """The Python version of CIFAR: `destination` has the training images, `destination`_test the test images."""

    batches: ClassVar[Mapping[str, str]]  # split: a pattern of file names
    labels: ClassVar[Labels]

    def __init__(self, source: str, destination: str) -> None:
        self.source, self.destination = Path(source), str(destination)
        for pattern in self.batches.values():
            if not sorted(self.source.glob(pattern)):
                raise missing(self.source, pattern, "unpack the archive with the Python version and name its folder")

    def run(self, fields: Sequence[str] | None = None) -> MSRStatus:
        """Write the files; `fields` are those to index. Raises DataError for files of another layout."""
        kinds = {"id": "int64", **dict.fromkeys(self.labels, "int64"), "data": "bytes"}
        for split, end in (("train", ""), ("test", "_test")):
            rows = self._rows(sorted(self.source.glob(self.batches[split])))
            _write(self.destination + end, kinds, fields, rows)
        return SUCCESS

    def transform(self, fields: Sequence[str] | None = None) -> MSRStatus:
        """`run`."""
        return self.run(fields)

    def _rows(self, paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
        images, labels = read_batches(paths, self.labels)
        for number, image in enumerate(images):
            numbers = {field: int(values[number]) for field, values in labels.items()}
            yield {"id": number, **numbers, "data": jpeg(image)}


class Cifar10ToMR(_CifarToMR):
    """The files data_batch_1 to 5 and test_batch of CIFAR-10, with the fields `id`, `label` and `data`.

    The pickles in them are read without executing anything. Raises DataError when files are missing, ConfigError
    without the extras `mindrecord` and `images`.
    """

    batches = BATCHES_10
    labels = LABELS_10


class Cifar100ToMR(_CifarToMR):
    """The files train and test of CIFAR-100, with `id`, `fine_label`, `coarse_label` and `data`; as `Cifar10ToMR`."""

    batches = BATCHES_100
    labels = LABELS_100


class MnistToMR:
    """MNIST's four files, plain or .gz, as `destination`_train.mindrecord and `destination`_test.mindrecord.

    The fields are `label` and `data`, a JPEG file; `label` is indexed. Raises DataError when files are missing.
    """

    def __init__(self, source: str, destination: str, partition_number: int = 1) -> None:
        self.source, self.destination = Path(source), str(destination)
        self.partition_number = whole_number("partition_number", partition_number, 1)
        for split in ("train", "test"):
            if mnist_cifar.split_files(self.source, split) is None:
                raise missing(self.source, f"the images and labels of {split}", "name the folder with MNIST's files")

    def run(self) -> MSRStatus:
        """Write the files. Raises DataError for damaged ones."""
        for split in ("train", "test"):
            images, labels = mnist_cifar.read_split(self.source, split, verify=False)
            rows = (
                {"label": int(label), "data": jpeg(image[..., 0])} for image, label in zip(images, labels, strict=True)
            )
            kinds = {"label": "int64", "data": "bytes"}
            _write(f"{self.destination}_{split}.mindrecord", kinds, ["label"], rows, self.partition_number)
        return SUCCESS

    def transform(self) -> MSRStatus:
        """`run`."""
        return self.run()


class ImageNetToMR:
    """Image files in folders of classes: `label` and `file_name`, both indexed, and `image`, the bytes of the file.

    A line of `map_file` is the name of a folder in `image_dir` and the number of its class. Files whose names do not
    end with JPEG or jpg are left out. Raises DataError for a map that cannot be read, and when no folder exists.
    """

    def __init__(self, map_file: str, image_dir: str, destination: str, partition_number: int = 1) -> None:
        self.map_file, self.image_dir, self.destination = Path(map_file), Path(image_dir), str(destination)
        self.partition_number = whole_number("partition_number", partition_number, 1)

    def run(self) -> MSRStatus:
        """Write the files."""
        numbers = dict(self._classes())
        folders = [name for name in numbers if (self.image_dir / name).is_dir()]
        if not folders:
            raise missing(self.image_dir, "a folder of map_file", "name the folder that has the folders of classes")
        kinds = {"label": "int32", "image": "bytes", "file_name": "string"}
        rows = (row for name in folders for row in self._rows(name, numbers[name]))
        return _write(self.destination, kinds, ["label", "file_name"], rows, self.partition_number)

    def transform(self) -> MSRStatus:
        """`run`."""
        return self.run()

    def _classes(self) -> Iterator[tuple[str, int]]:
        if stored_as(self.map_file.parent, self.map_file.name) is None:
            raise missing(self.map_file.parent, self.map_file.name, "name the file with the numbers of classes")
        text = files.read_bytes(self.map_file, PAGE_BYTES).decode(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if words and (len(words) != 2 or not words[1].isdecimal()):
                about = {"found": f"{line!r:.60} in line {number}", "expected": "FOLDER NUMBER"}
                raise DataError("not a map of classes", file=self.map_file, **about)
            if words:
                yield words[0], int(words[1])

    def _rows(self, folder: str, label: int) -> Iterator[dict[str, Any]]:
        for path in sorted((self.image_dir / folder).iterdir()):
            if path.name.endswith(SUFFIXES) and (content := files.read_bytes(path, MAX_IMAGE_BYTES)):
                yield {"label": label, "image": content, "file_name": str(path)}


class CsvToMR:
    """A CSV file whose first line has the names of its columns; all columns of the new file are indexed.

    The type of a column is int64 or float64 when all its values are such numbers (an empty one is NaN), int32 for True
    and False, and else text. Raises DataError for a missing file and for rows of another length.
    """

    def __init__(
        self, source: str, destination: str, columns_list: Sequence[str] | None = None, partition_number: int = 1
    ) -> None:
        self.source, self.destination = Path(source), str(destination)
        self.columns_list = None if not columns_list else [str(name) for name in columns_list]
        self.partition_number = whole_number("partition_number", partition_number, 1)

    def run(self) -> MSRStatus:
        """Write the file. Raises ConfigError for a column that does not exist."""
        kinds, rows = csv_records(self.source, self.columns_list)
        return _write(self.destination, kinds, list(kinds), rows, self.partition_number)

    def transform(self) -> MSRStatus:
        """`run`."""
        return self.run()


class TFRecordToMR:
    """A TFRecord file whose features `feature_dict` describes with `tf.io.FixedLenFeature`, which needs TensorFlow.

    `bytes_fields` are the features that stay bytes; others of type string become text. Raises ConfigError without
    TensorFlow.
    """

    def __init__(
        self,
        source: str,
        destination: str,
        feature_dict: Mapping[str, Any],
        bytes_fields: Sequence[str] | None = None,
    ) -> None:
        if importlib.util.find_spec("tensorflow") is None:
            raise ConfigError("TFRecordToMR needs the package tensorflow", repair=INSTALL_TENSORFLOW)
        self.source, self.destination = str(source), str(destination)
        chosen = None if bytes_fields is None else list(bytes_fields)
        with self._errors():
            self._converter = library().records.TFRecordToMR(self.source, self.destination, dict(feature_dict), chosen)

    def run(self) -> MSRStatus:
        """Write the file. Raises DataError for one that does not fit `feature_dict`."""
        with self._errors():
            self._converter.transform()
        return SUCCESS

    def transform(self) -> MSRStatus:
        """`run`."""
        return self.run()

    def _errors(self) -> Any:
        return errors_of_library("a TFRecord file cannot be converted", file=self.source)

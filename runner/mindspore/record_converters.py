"""Classes of `mindspore.mindrecord` r1.2 that convert other files into MindRecord.

Images of CIFAR and MNIST become JPEG files, as in the reference, which uses OpenCV for it; here Pillow writes them.
"""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from runner.dataset.formats import idx
from runner.dataset.formats.cifar_pickle import BATCHES_10, BATCHES_100, LABELS_10, LABELS_100, Labels, read_batches
from runner.dataset.formats.content import missing, stored_as
from runner.dataset.formats.mindrecord import errors_of_library, library
from runner.dataset.vision.pillow import jpeg
from runner.errors import ConfigError, DataError
from runner.host import files
from runner.mindspore.csv_records import csv_records
from runner.mindspore.record_files import SUCCESS, FileWriter, MSRStatus
from runner.validation.arguments import whole_number

__all__ = ["Cifar10ToMR", "Cifar100ToMR", "CsvToMR", "ImageNetToMR", "MnistToMR", "TFRecordToMR"]

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
            if idx.split_files(self.source, split) is None:
                raise missing(self.source, f"the images and labels of {split}", "name the folder with MNIST's files")

    def run(self) -> MSRStatus:
        """Write the files. Raises DataError for damaged ones."""
        for split in ("train", "test"):
            images, labels = idx.read_split(self.source, split, verify=False)
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

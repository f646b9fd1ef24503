"""Datasets of the reference that read image files. Source: r1.2.

CIFAR-100; folders of classes; and files that list images with their annotations, Manifest and CelebA.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from runner.dataset.column import Column, labels_column, listed_column
from runner.dataset.formats import cifar
from runner.dataset.formats.content import missing, stored_as
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.readers.image_file import MAX_FILE_BYTES as image_file_MAX_FILE_BYTES, decode
from runner.dataset.samplers import RowSelection
from runner.dataset.samples import Sample, SampleColumn, Samples
from runner.errors import ConfigError, DataError
from runner.host import files, json
from runner.validation.arguments import flag, one_of, whole_number

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
        splits = [usage] if usage in cifar.FILES_100 else list(cifar.FILES_100)
        found = {split: stored_as(folder, cifar.FILES_100[split]) for split in splits}
        paths = [path for path in found.values() if path is not None]
        if not paths or (usage is not None and len(paths) < len(splits)):
            repair = "unpack cifar-100-binary.tar.gz and name its folder"
            raise missing(folder, " and ".join(cifar.FILES_100[split] for split in splits), repair)
        records = np.concatenate([cifar.read_records_100(path) for path in paths])[: selection.num_samples]
        images = records[:, 2:].reshape(-1, 3, cifar.SIDE, cifar.SIDE).transpose(0, 2, 3, 1)
        labels = {name: labels_column(name, records[:, place]) for place, name in enumerate(cifar.CLASSES_100)}
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
            return (decode(path, None, 3),)
        return (np.frombuffer(files.read_bytes(path, image_file_MAX_FILE_BYTES), np.uint8).copy(),)


class ImageFolderDataset(Dataset):
    """Images in a folder for each class: `image`, the bytes of a file (or decoded, [H, W, 3]), and `label` int32.

    Files are read when a batch needs them. Classes are numbered in the order of their names, or by `class_indexing`,
    which then also selects them. `extensions` of files are by default those of images. In the order of the reference,
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
    `class_indexing`, which then also selects the rows. In the order of the reference, so for `shuffle=None` at random.
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
    In the order of the reference, so for `shuffle=None` at random. Raises DataError for a file that is missing or has
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
            entry = json.parse_data(line.encode())
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

"""Datasets of the reference that read image files: CIFAR-100 and folders of classes. Source: r1.2."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from runner.dataset.column import Column
from runner.dataset.formats import cifar
from runner.dataset.formats.content import missing, stored_as
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.readers.image_file import MAX_FILE_BYTES, decode
from runner.dataset.samples.samples import Sample, SampleColumn, Samples
from runner.dataset.selection import RowSelection, labels_column
from runner.errors import ConfigError, DataError
from runner.host import files
from runner.validation.arguments import flag, one_of, whole_number

__all__ = ["Cifar100Dataset", "ImageFolderDataset"]

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
        return (np.frombuffer(files.read_bytes(path, MAX_FILE_BYTES), np.uint8).copy(),)


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

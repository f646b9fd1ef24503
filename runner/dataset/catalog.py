"""The datasets that come with runner: `CATALOG`, by name, and their images as networks take them.

A built-in dataset is a class in `sources.py` and its entry in `CATALOG`; `image_dataset` opens one for a config.
`CatalogImages` prepares images of the datasets, and new files for a trained network, in the same way.
"""

import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from runner import dtype as dt, register
from runner.dataset.column import Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset, Preprocessing
from runner.dataset.readers import mnist_cifar
from runner.dataset.readers.image_file import decode, read_header
from runner.dataset.readers.mnist_cifar import MIRROR, download_mnist
from runner.dataset.readers.split import Split, require_files
from runner.dataset.sources import Cifar10Dataset, DigitsDataset, MnistDataset, SyntheticDataset
from runner.dataset.transforms.transform import Transform, TypeCast
from runner.dataset.vision.array_transforms import HWC2CHW, Normalize, Rescale, Resize, crop_and_flip
from runner.dataset.vision.image import MAX_SIDE
from runner.errors import ConfigError
from runner.host.json import StoredValues
from runner.host.machine import require_memory
from runner.validation.rules import MAX_COUNT, Frozen, Rule

# Images as the built-in datasets prepare them: those of the datasets, and new files for a trained network.

# Mean and standard deviation of the training images, as in MindSpore's examples of the two datasets.
NORMALIZATIONS: dict[str, Transform] = {
    "mnist": Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081),
    "cifar10": Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
}
IMAGE = "image"


class CatalogImages(Preprocessing):
    """Images of any size as Float32 [channels, image_size, image_size], resized by `vision.Resize`, scaled to 0..1.

    `normalization` is one of NORMALIZATIONS; None: values stay 0 to 1.
    """

    def __init__(self, image_size: int, channels: int, normalization: str | None) -> None:
        self.image_size, self.channels, self.normalization = image_size, channels, normalization

    def transforms(self, augment: bool = False) -> list[Transform]:
        """From bytes [H, W, channels] to the network's input."""
        steps: list[Transform] = [Resize((self.image_size, self.image_size))]
        if augment:
            steps += crop_and_flip(self.image_size)
        steps.append(Rescale(1.0 / 255.0, 0.0))
        if self.normalization is not None:
            steps.append(NORMALIZATIONS[self.normalization])
        return [*steps, HWC2CHW()]

    def read(self, paths: Sequence[Path]) -> Dataset:
        """The images in these files: column `image`. Raises DataError for a file that is no image."""
        require_files(paths)
        for path in paths:
            read_header(path)
        data = self.from_pixels(decode(path, None, self.channels)[np.newaxis] for path in paths)
        data.row_names = [str(path) for path in paths]
        return data

    def from_pixels(self, stacks: Iterable[np.ndarray]) -> Dataset:
        """The images in stacks of bytes [N, H, W, channels], each with its own height and width."""
        resize = self.transforms()[0]
        resized = [resize(stack) for stack in stacks]
        count = sum(map(len, resized))
        require_memory(4 * count * self.channels * self.image_size**2, images=count, image_size=self.image_size)
        data = Dataset([Column(IMAGE, np.concatenate(resized))], SourceOrder(count)).map(self.transforms(), IMAGE)
        data.preprocessing = self
        return data

    def as_json(self) -> dict[str, Any]:
        values = {"image_size": self.image_size, "channels": self.channels, "normalization": self.normalization}
        return {"reader": "catalog", **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The preprocessing from the result of `as_json`. Raises DataError for any other values."""
        stored = StoredValues(values)
        name = values.get("normalization")
        stored.require(name is None or name in tuple(NORMALIZATIONS), "normalization", ", ".join(NORMALIZATIONS))
        return cls(stored.whole("image_size", 1, MAX_SIDE), stored.whole("channels", 1, 3), name)


# The datasets that come with runner, registered for configs.

MAX_IMAGE_SIZE = 4096
NUM_CLASSES = 10  # of every built-in dataset
SYNTHETIC_SAMPLES = {"train": 1024, "test": 256}


class DatasetEntry(Frozen):
    """How one dataset is opened, and how its images are normalised to mean 0 and standard deviation 1.

    `dataset` takes `usage` ("train" or "test") and `num_samples`, with a `default_dir` also `dataset_dir`, and with
    `is_verified` also `verify`. `samples` are the numbers of samples without `num_samples`. `download` adds missing
    files to a folder from a base URL.
    """

    dataset: Callable[..., Dataset]
    normalization: str  # of values from 0 to 1, one of NORMALIZATIONS
    default_dir: str | None = None  # as in MindSpore's examples; None: it needs no files
    augmentable: bool = False  # mirroring does not change the class of an image
    is_verified: bool = False
    samples: Mapping[str, int | None] = field(default_factory=lambda: {"train": None, "test": None})
    download: Callable[[Path, str | None], None] | None = None


def _download_mnist(folder: Path, url: str | None) -> None:
    if any(mnist_cifar.split_files(folder, name) is None for name in mnist_cifar.PREFIXES):
        download_mnist(folder, url or MIRROR)


CATALOG = {
    "digits": DatasetEntry(DigitsDataset, "mnist"),
    "mnist": DatasetEntry(MnistDataset, "mnist", "./datasets/MNIST_Data", is_verified=True, download=_download_mnist),
    "cifar10": DatasetEntry(Cifar10Dataset, "cifar10", "./datasets/cifar-10-batches-bin", augmentable=True),
    "synthetic": DatasetEntry(SyntheticDataset, "mnist", augmentable=True, samples=SYNTHETIC_SAMPLES),
}
AUGMENTABLE = tuple(name for name, entry in CATALOG.items() if entry.augmentable)


def _download_folder(data_dir: str | None, settings: Any) -> str | None:
    return os.path.expanduser(data_dir) if settings.download and data_dir else None


def image_dataset(
    name: str,
    split: Split,
    data_dir: Annotated[str | None, Rule(path=True, writes=_download_folder)] = None,
    image_size: Annotated[int, Rule(low=1, high=MAX_IMAGE_SIZE)] = 32,
    augment: bool = False,
    normalize: bool = True,
    download: bool = False,
    url: str | None = None,
    verify: bool = True,
    num_samples: Annotated[int | None, Rule(low=1, high=MAX_COUNT)] = None,
) -> Dataset:
    """The samples of a built-in dataset: `image` Float32 [C, image_size, image_size], `label` Int32.

    `augment` crops and mirrors the training images at random. `normalize` scales values to mean 0 and standard
    deviation 1 with the statistics of the dataset, otherwise to 0..1. `verify` warns of other images of
    the published shape in MNIST's files (Fashion-MNIST, or a damaged copy). Raises ConfigError, and DataError for
    missing or damaged files.

    Args:
        data_dir: of the files; null: a default in ./datasets
        image_size: height and width in pixels
        augment: random crops and horizontal flips
        normalize: normalise to mean 0 and standard deviation 1
        download: download missing files
        url: base URL of the download
        verify: warn of MNIST's files that are not the published ones
        num_samples: number of samples to use; null: all
    """
    entry = CATALOG[name]
    arguments: dict[str, Any] = {"num_samples": entry.samples[split] if num_samples is None else num_samples}
    arguments |= _location(name, data_dir, download, url) | ({"verify": verify} if entry.is_verified else {})
    if augment and not entry.augmentable:
        rows = {"argument": "augment", "value": True, "allowed": "False", "dataset": name}
        raise ConfigError("augment mirrors images, which changes the class of these", **rows)
    data = entry.dataset(usage=split, **arguments).map([TypeCast(dt.int32)], "label")
    images = CatalogImages(image_size, data.column_types()[0].shape[-1], entry.normalization if normalize else None)
    data = data.map(images.transforms(augment and split == "train"), IMAGE)
    data.num_classes, data.preprocessing = NUM_CLASSES, images
    return data


def _location(name: str, data_dir: str | None, download: bool, url: str | None) -> dict[str, Any]:
    """The argument for the folder with the files, of a dataset that has some."""
    entry = CATALOG[name]
    if entry.default_dir is None:
        return {}
    path = entry.default_dir if data_dir is None else data_dir
    if not path:
        raise ConfigError("not a folder", argument="data_dir", value=repr(path), allowed="a path")
    folder = Path(path).expanduser()
    if download and entry.download is None:
        raise ConfigError(f"{name} cannot be downloaded", argument="download", value=True, allowed="False")
    if download and entry.download is not None:
        entry.download(folder, url)
    return {"dataset_dir": folder}


for _name in CATALOG:
    register.dataset(_name)(partial(image_dataset, _name))

# Readers of the user's own data, by the modules that register them when they are first named.
READERS = {
    "image_folder": "runner.dataset.readers.image_folder",
    "npz": "runner.dataset.readers.arrays",
    "csv": "runner.dataset.readers.csv",
}
for _name, _module in READERS.items():
    register.dataset.late(_name, partial(importlib.import_module, _module))

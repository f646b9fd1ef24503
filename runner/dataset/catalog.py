"""The datasets that come with runner, registered for configs, and the batches of any dataset.

A built-in dataset is a class in `sources.py` and its entry in `CATALOG`, as in the reference's LeNet example.
"""

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import runner.dataset.formats.idx as idx
from runner import dtype as dt, register
from runner.dataset.formats.download import MIRROR, download_mnist
from runner.dataset.pipeline import Dataset
from runner.dataset.readers.arguments import Split
from runner.dataset.readers.catalog_images import IMAGE, CatalogImages
from runner.dataset.sources import Cifar10Dataset, DigitsDataset, MnistDataset, SyntheticDataset
from runner.dataset.transforms.c_transforms.labels import TypeCast
from runner.errors import ConfigError
from runner.validation.rules import MAX_COUNT, Frozen, Rule

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
    default_dir: str | None = None  # as in the reference's examples; None: it needs no files
    augmentable: bool = False  # mirroring does not change the class of an image
    is_verified: bool = False
    samples: Mapping[str, int | None] = field(default_factory=lambda: {"train": None, "test": None})
    download: Callable[[Path, str | None], None] | None = None


def _download_mnist(folder: Path, url: str | None) -> None:
    if any(idx.split_files(folder, name) is None for name in idx.PREFIXES):
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
    deviation 1 with the statistics of the dataset, otherwise to 0..1. `verify` false accepts other images of the
    published shape in MNIST's files (Fashion-MNIST); files of any other shape are always accepted. Raises ConfigError,
    and DataError for missing or damaged files.

    Args:
        data_dir: of the files; null: a default in ./datasets
        image_size: height and width in pixels
        augment: random crops and horizontal flips
        normalize: normalise to mean 0 and standard deviation 1
        download: download missing files
        url: base URL of the download
        verify: require the published checksums of MNIST's files
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


for _name in CATALOG:
    register.dataset(_name)(partial(image_dataset, _name))
# Readers of the user's own data, by the modules that register them.
_READERS = {"image_folder": "image_folder", "npz": "npz_arrays", "csv": "csv_table"}
for _name, _module in _READERS.items():
    register.dataset.late(_name, partial(importlib.import_module, f"runner.dataset.readers.{_module}"))


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

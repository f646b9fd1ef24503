"""The datasets of the configuration, and the creation of a pipeline from settings, as in the reference's LeNet example.

A dataset is a class in `sources.py` and its entry in `CATALOG`: the choices of `dataset.name`, the options of the group
`dataset` and the reference page are derived from it. `DatasetSettings` has the keys of all of them.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import runner.dataset.formats.idx as idx
from runner import dtype as dt
from runner.dataset.formats.download import MIRROR, download_mnist
from runner.dataset.pipeline import Dataset
from runner.dataset.prefetch import MAX_WORKERS
from runner.dataset.sources import Cifar10Dataset, DigitsDataset, MnistDataset, SyntheticDataset
from runner.dataset.transforms.c_transforms import OneHot, TypeCast
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.augment import crop_and_flip
from runner.dataset.vision.c_transforms import HWC2CHW, Normalize, Rescale, Resize
from runner.errors import ConfigError
from runner.validation.records import Frozen
from runner.validation.rules import MAX_COUNT, key
from runner.validation.validate import validate_record

__all__ = ["DatasetSettings", "open_dataset"]

MAX_IMAGE_SIZE = 4096
SYNTHETIC_SAMPLES = {"train": 1024, "test": 256}


def _no_arguments(settings: "DatasetSettings", split: str) -> Mapping[str, Any]:
    return {}


class DatasetEntry(Frozen):
    """How one dataset is opened, and how its images are normalised to mean 0 and standard deviation 1.

    `dataset` takes `usage` ("train" or "test"), `num_samples`, `num_shards` and `shard_id`, with a `default_dir` also
    `dataset_dir`, and the result of `arguments` for the settings and a split. `download` adds missing files.
    """

    dataset: Callable[..., Dataset]
    normalization: Transform  # of values from 0 to 1
    default_dir: str | None = None  # as in the reference's examples; None: it needs no files
    augmentable: bool = False  # mirroring does not change the class of an image
    arguments: Callable[["DatasetSettings", str], Mapping[str, Any]] = _no_arguments
    download: Callable[["DatasetSettings", Path], None] | None = None


def _mnist_arguments(settings: "DatasetSettings", split: str) -> Mapping[str, Any]:
    return {"verify": settings.verify}


def _download_mnist(settings: "DatasetSettings", folder: Path) -> None:
    if any(idx.split_files(folder, name) is None for name in idx.PREFIXES):
        download_mnist(folder, settings.url or MIRROR)


def _synthetic_arguments(settings: "DatasetSettings", split: str) -> Mapping[str, Any]:
    return {"num_samples": SYNTHETIC_SAMPLES[split] if settings.num_samples is None else settings.num_samples}


_SCALE_TO_UNIT = Rescale(1.0 / 255.0, 0.0)
# Mean and standard deviation of the training images, as in the reference's examples of the two datasets.
_NORMALIZE_MNIST = Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081)
_NORMALIZE_CIFAR10 = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

CATALOG = {
    "digits": DatasetEntry(DigitsDataset, _NORMALIZE_MNIST),
    "mnist": DatasetEntry(
        MnistDataset, _NORMALIZE_MNIST, "./datasets/MNIST_Data", arguments=_mnist_arguments, download=_download_mnist
    ),
    "cifar10": DatasetEntry(Cifar10Dataset, _NORMALIZE_CIFAR10, "./datasets/cifar-10-batches-bin", augmentable=True),
    "synthetic": DatasetEntry(SyntheticDataset, _NORMALIZE_MNIST, augmentable=True, arguments=_synthetic_arguments),
}
AUGMENTABLE = tuple(name for name, entry in CATALOG.items() if entry.augmentable)


def _download_folder(data_dir: str | None, settings: "DatasetSettings") -> str | None:
    return os.path.expanduser(data_dir) if settings.download and data_dir else None


class DatasetSettings(Frozen):
    """The dataset and its batches.

    `augment` crops and mirrors the training images at random. `normalize` scales values to mean 0 and standard
    deviation 1 with the statistics of the dataset, otherwise to 0..1. `verify` false accepts other images of the
    published shape in MNIST's files (Fashion-MNIST); files of any other shape are always accepted.
    """

    name: str = key("digits", choices=tuple(CATALOG))  # the dataset
    data_dir: str | None = key(None, path=True, writes=_download_folder)  # of the files; null: a default in ./datasets
    batch_size: int = key(32, low=1, high=MAX_COUNT)  # samples per step
    drop_remainder: bool = True  # omit the last batch if it is smaller
    shuffle: bool = True  # shuffle the training data anew in each epoch
    buffer_size: int = key(10000, low=2, high=MAX_COUNT)  # samples in the shuffle buffer
    image_size: int = key(32, low=1, high=MAX_IMAGE_SIZE)  # height and width in pixels
    num_parallel_workers: int = key(1, low=1, high=MAX_WORKERS)  # threads that prefetch batches
    augment: bool = False  # random crops and horizontal flips
    normalize: bool = True  # normalise to mean 0 and standard deviation 1
    download: bool = False  # download missing files
    url: str | None = None  # base URL of the download
    verify: bool = True  # require the published checksums of MNIST's files
    num_samples: int | None = key(None, low=1, high=MAX_COUNT)  # number of samples to use; null: all

    @property
    def entry(self) -> DatasetEntry:
        """The entry of the dataset."""
        return CATALOG[self.name]


def open_dataset(
    settings: DatasetSettings,
    train: bool,
    *,
    one_hot: int | None = None,
    num_shards: int | None = None,
    shard_id: int | None = None,
) -> Dataset:
    """The batches of the training or test split: `image` Float32 [batch, C, image_size, image_size], `label` Int32.

    Only training data is shuffled. With `one_hot`, the number of classes, labels are one-hot, Float32 [batch, one_hot].
    `num_shards` and `shard_id` select a part of the rows. Raises ConfigError for invalid settings, DataError for
    missing or damaged files.
    """
    validate_record(settings)
    data = _source(settings, "train" if train else "test", num_shards, shard_id)
    labels: list[Transform] = [TypeCast(dt.int32)]
    if one_hot is not None:
        labels += [OneHot(one_hot), TypeCast(dt.float32)]
    data = data.map(labels, "label", settings.num_parallel_workers)
    data = data.map(_image_transforms(settings, train), "image", settings.num_parallel_workers)
    if settings.shuffle and train:
        data = data.shuffle(settings.buffer_size)
    return data.batch(settings.batch_size, settings.drop_remainder)


def _source(settings: DatasetSettings, split: str, num_shards: int | None, shard_id: int | None) -> Dataset:
    entry = settings.entry
    arguments: dict[str, Any] = {"usage": split, "num_samples": settings.num_samples}
    if entry.default_dir is not None:
        arguments["dataset_dir"] = _folder_with_files(settings)
    arguments |= entry.arguments(settings, split)
    return entry.dataset(**arguments, num_shards=num_shards, shard_id=shard_id)


def _folder_with_files(settings: DatasetSettings) -> Path:
    entry = settings.entry
    path = entry.default_dir if settings.data_dir is None else settings.data_dir
    if not path:
        raise ConfigError("not a folder", argument="data_dir", value=repr(path), allowed="a path")
    folder = Path(path).expanduser()
    if settings.download and entry.download is None:
        raise ConfigError(f"{settings.name} cannot be downloaded", argument="download", value=True, allowed="False")
    if settings.download and entry.download is not None:
        entry.download(settings, folder)
    return folder


def _image_transforms(settings: DatasetSettings, train: bool) -> list[Transform]:
    side = settings.image_size
    steps: list[Transform] = [Resize((side, side))]
    if settings.augment and not settings.entry.augmentable:
        rows = {"argument": "augment", "value": True, "allowed": "False", "dataset": settings.name}
        raise ConfigError("augment mirrors images, which changes the class of these", **rows)
    if settings.augment and train:
        steps += crop_and_flip(side)
    steps.append(_SCALE_TO_UNIT)
    if settings.normalize:
        steps.append(settings.entry.normalization)
    return [*steps, HWC2CHW()]

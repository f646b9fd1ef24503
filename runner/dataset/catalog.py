"""The datasets that a run can name, and from its settings to the pipeline: the steps of the reference's LeNet example.

A dataset is a class in `sources.py` and its entry in `CATALOG`: the choices of `dataset.name`, the options of the group
`dataset` and the reference page come from there. Keys, defaults and rules of all of them stand in `DatasetSettings`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import runner.dataset.formats.idx as idx
from runner import dtype as dt
from runner.dataset.formats.download import MIRROR, download_mnist
from runner.dataset.pipeline import Dataset
from runner.dataset.prefetch import MOST_WORKERS
from runner.dataset.sources import Cifar10Dataset, DigitsDataset, MnistDataset, SyntheticDataset
from runner.dataset.transforms.c_transforms import OneHot, TypeCast
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.c_transforms import HWC2CHW, Normalize, RandomCrop, RandomHorizontalFlip, Rescale, Resize
from runner.errors import ConfigError
from runner.validation.records import Frozen
from runner.validation.rules import key
from runner.validation.validate import validate_record

LARGEST_IMAGE = 4096
PADDED_PART = 8  # of a side: 4 pixels around CIFAR-10's 32, as usual
SYNTHETIC_SAMPLES = {"train": 1024, "test": 256}


def _no_arguments(settings: "DatasetSettings", split: str) -> Mapping[str, Any]:
    return {}


class DatasetEntry(Frozen):
    """How one dataset is opened, and how its images are brought to mean 0 and deviation 1.

    `dataset` takes `usage` ("train" or "test"), `num_samples`, `num_shards` and `shard_id`, with a `default_dir` also
    `dataset_dir`, and what `arguments` makes of the settings for a split. `download` fetches what a folder lacks.
    """

    dataset: Callable[..., Dataset]
    normalization: Transform  # of values from 0 to 1
    default_dir: str | None = None  # where the reference's examples look; None: it needs no files
    augmentable: bool = False  # an image seen in a mirror is still one of its class
    arguments: Callable[["DatasetSettings", str], Mapping[str, Any]] = _no_arguments
    download: Callable[["DatasetSettings", Path], None] | None = None


def _mnist_arguments(settings: "DatasetSettings", split: str) -> Mapping[str, Any]:
    return {"verify": settings.verify}


def _download_mnist(settings: "DatasetSettings", folder: Path) -> None:
    if any(idx.split_files(folder, name) is None for name in idx.PREFIXES):
        download_mnist(folder, settings.url or MIRROR)


def _synthetic_arguments(settings: "DatasetSettings", split: str) -> Mapping[str, Any]:
    return {"num_samples": SYNTHETIC_SAMPLES[split] if settings.num_samples is None else settings.num_samples}


_BYTES_TO_1 = Rescale(1.0 / 255.0, 0.0)
# Mean and deviation of the training images: what the reference's examples use for the two datasets.
_LIKE_MNIST = Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081)
_LIKE_CIFAR10 = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

CATALOG = {
    "digits": DatasetEntry(DigitsDataset, _LIKE_MNIST),
    "mnist": DatasetEntry(
        MnistDataset, _LIKE_MNIST, "./datasets/MNIST_Data", arguments=_mnist_arguments, download=_download_mnist
    ),
    "cifar10": DatasetEntry(Cifar10Dataset, _LIKE_CIFAR10, "./datasets/cifar-10-batches-bin", augmentable=True),
    "synthetic": DatasetEntry(SyntheticDataset, _LIKE_MNIST, augmentable=True, arguments=_synthetic_arguments),
}
AUGMENTABLE = tuple(name for name, entry in CATALOG.items() if entry.augmentable)


class DatasetSettings(Frozen):
    """The data and how it is cut into batches.

    `augment` crops and mirrors the training images at random, by the seed. `normalize` brings values to mean 0 and
    deviation 1 by the numbers of the dataset, otherwise to 0..1. `verify` false accepts other images under the names of
    MNIST's files (Fashion-MNIST), if they have the published shape; files of any other shape are always accepted.
    """

    name: str = key("digits", choices=tuple(CATALOG))  # which data
    data_dir: str | None = None  # where the files are; null: none are needed, or ./datasets
    batch_size: int = key(32, low=1)  # samples of a step
    drop_remainder: bool = True  # leave out the last batch when it is smaller
    shuffle: bool = True  # another order in each epoch, by the seed
    buffer_size: int = key(10000, low=2)  # samples in the shuffle buffer
    image_size: int = key(32, low=1, high=LARGEST_IMAGE)  # pixels of a side
    num_parallel_workers: int = key(1, low=1, high=MOST_WORKERS)  # threads that prepare batches
    augment: bool = False  # random crops and mirror images
    normalize: bool = True  # mean 0 and deviation 1 by the numbers of the dataset
    download: bool = False  # fetch missing files; each is checked
    url: str | None = None  # another place to fetch them from
    verify: bool = True  # MNIST's files must be the published ones
    num_samples: int | None = key(None, low=1)  # only so many of the training split

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
    """The batches of the training or the test data: `image` Float32 [batch, C, image_size, image_size], `label` Int32.

    Only training data is shuffled. With `one_hot` classes, labels are rows of zeros with a one, Float32 [batch,
    one_hot]. `num_shards` and `shard_id` take a part of the rows. Raises ConfigError for impossible settings, DataError
    for missing or damaged files.
    """
    validate_record(settings)
    data = _source(settings, "train" if train else "test", num_shards, shard_id)
    labels: list[Transform] = [TypeCast(dt.int32)]
    if one_hot is not None:
        labels += [OneHot(one_hot), TypeCast(dt.float32)]
    data = data.map(labels, "label", settings.num_parallel_workers)
    data = data.map(_of_images(settings, train), "image", settings.num_parallel_workers)
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
    chosen = entry.default_dir if settings.data_dir is None else settings.data_dir
    if not chosen:
        raise ConfigError("not a folder", argument="data_dir", value=repr(chosen), allowed="a path")
    folder = Path(chosen).expanduser()
    if settings.download and entry.download is None:
        raise ConfigError(f"{settings.name} cannot be downloaded", argument="download", value=True, allowed="False")
    if settings.download and entry.download is not None:
        entry.download(settings, folder)
    return folder


def _of_images(settings: DatasetSettings, train: bool) -> list[Transform]:
    side = settings.image_size
    steps: list[Transform] = [Resize((side, side))]
    if settings.augment and not settings.entry.augmentable:
        rows = {"argument": "augment", "value": True, "allowed": "False", "dataset": settings.name}
        raise ConfigError("augment mirrors images, and these mean something else in a mirror", **rows)
    if settings.augment and train:
        steps += [RandomCrop(side, padding=-(-side // PADDED_PART)), RandomHorizontalFlip()]
    steps.append(_BYTES_TO_1)
    if settings.normalize:
        steps.append(settings.entry.normalization)
    return [*steps, HWC2CHW()]

"""From the settings of a run to its pipeline, by name: the same steps as the reference's LeNet example (seed 003)."""

from collections.abc import Callable
from pathlib import Path

import runner.dataset.formats.idx as idx
from runner import dtype as dt
from runner.dataset.formats.download import MIRROR, download_mnist
from runner.dataset.pipeline import Dataset
from runner.dataset.sources import Cifar10Dataset, DigitsDataset, MnistDataset, SyntheticDataset
from runner.dataset.transforms.c_transforms import OneHot, TypeCast
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.c_transforms import HWC2CHW, Normalize, RandomCrop, RandomHorizontalFlip, Rescale, Resize
from runner.errors import ConfigError
from runner.validation.arguments import flag, one_of, whole_number
from runner.validation.records import Frozen

LARGEST_IMAGE = 4096
PADDED_PART = 8  # of a side: 4 pixels around CIFAR-10's 32, as usual
SYNTHETIC_SAMPLES = {"train": 1024, "test": 256}


class DatasetSettings(Frozen):
    """What a run's configuration says about its data; the defaults are those of the reference's example."""

    name: str = "digits"
    data_dir: str | None = None  # None: where the reference's examples look
    batch_size: int = 32
    drop_remainder: bool = True
    shuffle: bool = True  # of the training data
    buffer_size: int = 10000
    image_size: int = 32  # pixels of each side
    num_parallel_workers: int = 1
    augment: bool = False  # random crops and mirror images, of the training data
    normalize: bool = True  # to mean 0 and deviation 1, by the numbers of the dataset; otherwise to 0..1
    download: bool = False  # fetch what is missing (MNIST)
    url: str | None = None  # None: download.MIRROR
    verify: bool = True  # files of MNIST's published shape must be the published ones
    one_hot: int | None = None  # classes, when labels are wanted as rows of zeros with a one (Float32)
    num_samples: int | None = None
    num_shards: int | None = None
    shard_id: int | None = None


class Entry(Frozen):
    """How one dataset is opened (from the settings and "train" or "test") and brought to mean 0, deviation 1.

    `mirrored`: whether an image seen in a mirror is still one of its class.
    """

    open: Callable[[DatasetSettings, str], Dataset]
    normalization: Transform  # of values from 0 to 1
    default_dir: str | None = None
    mirrored: bool = False


def open_dataset(settings: DatasetSettings, train: bool) -> Dataset:
    """The batches of the training or the test data: `image` Float32 [batch, C, image_size, image_size], `label` Int32.

    Only training data is shuffled. Raises ConfigError for impossible settings, DataError for missing or damaged files.
    """
    one_of({}, CATALOG, name=settings.name)
    flag({}, **{name: getattr(settings, name) for name in ("download", "shuffle", "augment", "normalize")})
    entry = CATALOG[settings.name]
    side = whole_number("image_size", settings.image_size, 1, LARGEST_IMAGE)
    if settings.download and entry.open is _cifar10:
        raise ConfigError("cifar10 cannot be downloaded", argument="download", value=True, allowed="False")
    data = entry.open(settings, "train" if train else "test")
    data = data.map(TypeCast(dt.int32), "label", settings.num_parallel_workers)
    if settings.one_hot is not None:
        data = data.map([OneHot(settings.one_hot), TypeCast(dt.float32)], "label", settings.num_parallel_workers)
    data = data.map(_of_images(settings, entry, side, train), "image", settings.num_parallel_workers)
    if settings.shuffle and train:
        data = data.shuffle(settings.buffer_size)
    return data.batch(settings.batch_size, settings.drop_remainder)


def _of_images(settings: DatasetSettings, entry: Entry, side: int, train: bool) -> list[Transform]:
    steps: list[Transform] = [Resize((side, side))]
    if settings.augment and not entry.mirrored:
        rows = {"argument": "augment", "value": True, "allowed": "False", "dataset": settings.name}
        raise ConfigError("augment mirrors images, and these mean something else in a mirror", **rows)
    if settings.augment and train:
        steps += [RandomCrop(side, padding=-(-side // PADDED_PART)), RandomHorizontalFlip()]
    steps.append(_BYTES_TO_1)
    if settings.normalize:
        steps.append(entry.normalization)
    return [*steps, HWC2CHW()]


def _digits(settings: DatasetSettings, split: str) -> Dataset:
    return DigitsDataset(split, settings.num_samples, num_shards=settings.num_shards, shard_id=settings.shard_id)


def _mnist(settings: DatasetSettings, split: str) -> Dataset:
    folder = _folder(settings)
    if settings.download and any(idx.split_files(folder, name) is None for name in idx.PREFIXES):
        download_mnist(folder, settings.url or MIRROR)
    return MnistDataset(
        folder,
        split,
        settings.num_samples,
        num_shards=settings.num_shards,
        shard_id=settings.shard_id,
        verify=settings.verify,
    )


def _cifar10(settings: DatasetSettings, split: str) -> Dataset:
    return Cifar10Dataset(
        _folder(settings), split, settings.num_samples, num_shards=settings.num_shards, shard_id=settings.shard_id
    )


def _synthetic(settings: DatasetSettings, split: str) -> Dataset:
    samples = SYNTHETIC_SAMPLES[split] if settings.num_samples is None else settings.num_samples
    return SyntheticDataset(samples, usage=split, num_shards=settings.num_shards, shard_id=settings.shard_id)


def _folder(settings: DatasetSettings) -> Path:
    chosen = CATALOG[settings.name].default_dir if settings.data_dir is None else settings.data_dir
    if not isinstance(chosen, str) or not chosen:
        raise ConfigError("not a folder", argument="data_dir", value=repr(chosen), allowed="a path")
    return Path(chosen).expanduser()


_BYTES_TO_1 = Rescale(1.0 / 255.0, 0.0)
# Mean and deviation of the training images: what the reference's examples use for the two datasets.
_LIKE_MNIST = Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081)
_LIKE_CIFAR10 = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

CATALOG = {
    "digits": Entry(_digits, _LIKE_MNIST),
    "mnist": Entry(_mnist, _LIKE_MNIST, "./datasets/MNIST_Data"),
    "cifar10": Entry(_cifar10, _LIKE_CIFAR10, "./datasets/cifar-10-batches-bin", mirrored=True),
    "synthetic": Entry(_synthetic, _LIKE_MNIST, mirrored=True),
}

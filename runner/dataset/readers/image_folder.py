"""Images in folders of classes, and single image files for a trained network."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from runner import register
from runner.dataset.column import Column
from runner.dataset.formats.content import missing
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset
from runner.dataset.preprocessing import Preprocessing
from runner.dataset.readers.arguments import (
    MAX_SEED,
    Fraction,
    Seed,
    Split,
    checked_split,
    data_path,
    fraction,
    one_way_to_split,
    require_files,
)
from runner.dataset.readers.class_folders import EXPECTED, MISSING, LabeledFiles, has_classes, read_classes
from runner.dataset.readers.image_file import read_header
from runner.dataset.readers.image_source import ImageFiles, mean_and_deviation
from runner.dataset.readers.rows import in_test_split, used_rows
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.augment import crop_and_flip
from runner.dataset.vision.c_transforms.geometry import HWC2CHW
from runner.dataset.vision.c_transforms.intensity import Normalize, Rescale
from runner.dataset.vision.image import MAX_SIDE
from runner.errors import ConfigError
from runner.host.json import StoredValues
from runner.validation.arguments import flag, whole_number
from runner.validation.rules import MAX_COUNT, Rule

__all__ = ["ImagePreprocessing", "image_folder"]


@register.dataset("image_folder")
def image_folder(
    split: Split,
    *,
    data_dir: Path | None = None,
    image_size: Annotated[int, Rule(low=1, high=MAX_SIDE)] = 32,
    channels: Annotated[int | None, Rule(low=1, high=3)] = None,
    test_fraction: Fraction = None,
    seed: Seed = 0,
    augment: bool = False,
    normalize: bool = True,
    num_samples: Annotated[int | None, Rule(low=1, high=MAX_COUNT)] = None,
) -> Dataset:
    """Images in class folders: `image` Float32 [channels, image_size, image_size], `label` Int32.

    Reads `data_dir/{train,test}/CLASS/*.{png,jpg,jpeg,webp,bmp}`, or `data_dir/CLASS/*` with `test_fraction`. Classes
    are numbered in the order of their names. Images are decoded when a batch needs them, and scaled to `image_size`
    whatever their shape is. Raises ConfigError for arguments, DataError for folders and files.

    Args:
        data_dir: folder with train/ and test/ that have a folder for each class, or with the class folders
        image_size: height and width in pixels
        channels: 1 (grey) or 3; null: as the first image has
        test_fraction: part of each class that is the test split, without folders for the splits
        seed: of the test split and of num_samples
        augment: random crops and horizontal flips of training images
        normalize: normalise to mean 0 and standard deviation 1, by up to 1024 training images; otherwise 0 to 1
        num_samples: number of images to use, drawn from all classes; null: all
    """
    train, own = _train_and_own(checked_split(split), data_path("data_dir", data_dir, "a folder"), test_fraction, seed)
    flag({}, augment=augment, normalize=normalize)
    own = own.rows(used_rows(np.arange(len(own.paths)), num_samples, seed))
    for path in own.paths:
        read_header(path)  # what is no image is reported before the training begins
    return _fitted(train, image_size, channels, normalize).dataset(own, augment and split == "train")


def _fitted(train: LabeledFiles, image_size: int, channels: int | None, normalize: bool) -> "ImagePreprocessing":
    side = whole_number("image_size", image_size, 1, MAX_SIDE)
    if channels not in (None, 1, 3):
        raise ConfigError("not a number of channels", argument="channels", value=channels, allowed="1, 3, null")
    channels = read_header(train.paths[0]).channels if channels is None else channels
    statistics = mean_and_deviation(train.paths, side, channels) if normalize else None
    return ImagePreprocessing(side, channels, statistics, train.class_names)


class ImagePreprocessing(Preprocessing):
    """Image files as Float32 [channels, image_size, image_size], scaled to 0..1 and then by mean and deviation.

    `statistics` are these two, each with one number for each channel; None: values stay 0 to 1.
    """

    def __init__(
        self,
        image_size: int,
        channels: int,
        statistics: tuple[Sequence[float], Sequence[float]] | None,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        self.image_size, self.channels, self.statistics = image_size, channels, statistics
        self.class_names = class_names

    def transforms(self, augment: bool = False) -> list[Transform]:
        """From bytes [image_size, image_size, channels] to the network's input."""
        steps: list[Transform] = crop_and_flip(self.image_size) if augment else []
        steps.append(Rescale(1.0 / 255.0, 0.0))
        if self.statistics is not None:
            steps.append(Normalize(*self.statistics))
        return [*steps, HWC2CHW()]

    def from_pixels(self, stacks: Iterable[np.ndarray]) -> Dataset:
        """The images in stacks of bytes [N, image_size, image_size, channels]: column `image`."""
        images = np.concatenate([*stacks])
        return Dataset([Column("image", images)], SourceOrder(len(images))).map(self.transforms(), "image")

    def dataset(self, images: LabeledFiles, augment: bool) -> Dataset:
        """The images with their labels: columns `image` and `label`."""
        return self._dataset(images.paths, [Column("label", images.labels)], augment)

    def read(self, paths: Sequence[Path]) -> Dataset:
        """The images in these files: column `image`. Raises DataError for a file that is no image."""
        require_files(paths)
        for path in paths:
            read_header(path)
        return self._dataset(paths, [], False)

    def _dataset(self, paths: Sequence[Path], more: Sequence[Column], augment: bool) -> Dataset:
        image = Column("image", ImageFiles(paths, self.image_size, self.channels))
        data = Dataset([image, *more], SourceOrder(len(paths)))
        data.row_names, data.class_names, data.preprocessing = [str(path) for path in paths], self.class_names, self
        return data.map(self.transforms(augment), "image")

    def as_json(self) -> dict[str, Any]:
        """The values of the constructor."""
        mean, deviation = (None, None) if self.statistics is None else map(list, self.statistics)
        values = {"image_size": self.image_size, "channels": self.channels, "mean": mean, "deviation": deviation}
        names = None if self.class_names is None else list(self.class_names)
        return {"reader": "image_folder", **values, "class_names": names}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The preprocessing from the result of `as_json`. Raises DataError for any other values."""
        stored = StoredValues(values)
        channels = stored.whole("channels", 1, 3)
        statistics = None
        if values.get("mean") is not None:
            statistics = stored.numbers("mean", channels), stored.numbers("deviation", channels)
            stored.require(min(statistics[1]) > 0.0, "deviation", "numbers above 0")
        return cls(stored.whole("image_size", 1, MAX_SIDE), channels, statistics, stored.optional_names("class_names"))


def _train_and_own(
    split: str, folder: Path, test_fraction: float | None, seed: int
) -> tuple[LabeledFiles, LabeledFiles]:
    """The files of the training split, and those of the requested one."""
    has_splits = has_classes(folder / "train")
    ways = "move images into data_dir/train/CLASS and data_dir/test/CLASS"
    whole_number("seed", seed, 0, MAX_SEED)
    if has_splits:
        one_way_to_split(True, test_fraction, ways, f"set data_dir to {folder / 'train'}")
        train = read_classes(folder / "train", folder)
        own = train if split == "train" else read_classes(folder / "test", folder, train.class_names)
        return train, own
    if not folder.is_dir():
        raise missing(folder, EXPECTED, MISSING)
    one_way_to_split(False, test_fraction, ways, "")
    part = fraction(test_fraction)
    everything = read_classes(folder, folder)
    is_test = in_test_split(everything.labels, part, seed)
    if not is_test.any():
        rows = {"folder": folder, "found": "one image of each class", "repair": "add images"}
        raise ConfigError("there are too few images for a test split", **rows)
    train, test = (everything.rows(np.flatnonzero(is_test == chosen)) for chosen in (False, True))
    return train, train if split == "train" else test

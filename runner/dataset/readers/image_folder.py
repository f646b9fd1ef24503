"""Images in folders of classes, and single image files for a trained network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from runner.dataset.column import Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset, Preprocessing
from runner.dataset.readers.arguments import (
    MAX_SEED,
    checked_split,
    data_path,
    fraction,
    one_way_to_split,
    require_files,
)
from runner.dataset.readers.class_folders import LabeledFiles, has_classes, read_classes
from runner.dataset.readers.image_file import read_header
from runner.dataset.readers.image_source import ImageFiles, mean_and_deviation
from runner.dataset.readers.json_values import StoredValues
from runner.dataset.readers.rows import in_test_split, used_rows
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.augment import crop_and_flip
from runner.dataset.vision.c_transforms import HWC2CHW, Normalize, Rescale
from runner.dataset.vision.image import MAX_SIDE
from runner.errors import ConfigError
from runner.validation.arguments import flag, whole_number

__all__ = ["ImagePreprocessing", "image_folder"]


def image_folder(
    split: Literal["train", "test"],
    *,
    data_dir: Path | None = None,
    image_size: int = 32,
    channels: int | None = None,
    test_fraction: float | None = None,
    seed: int = 0,
    augment: bool = False,
    normalize: bool = True,
    num_samples: int | None = None,
) -> Dataset:
    """Images in class folders: columns `image` Float32 [channels, image_size, image_size] and `label` Int32.

    Reads `data_dir/{train,test}/CLASS/*.{png,jpg,jpeg,webp,bmp}`; or `data_dir/CLASS/*`, of which `test_fraction` of
    each class, drawn with `seed`, is the test split. Classes are numbered in the order of their names. Images are
    decoded when a batch needs them and scaled to `image_size`, whatever their shape; `channels` null is 1 or 3, as the
    first image has. `augment` crops and mirrors training images at random. `normalize` scales to mean 0 and deviation 1
    by the statistics of training images, otherwise values are 0 to 1. `num_samples` draws so many of the split.
    Raises ConfigError for arguments, DataError for folders and files.
    """
    train, own = _train_and_own(checked_split(split), data_path("data_dir", data_dir, "a folder"), test_fraction, seed)
    flag({}, augment=augment, normalize=normalize)
    side = whole_number("image_size", image_size, 1, MAX_SIDE)
    if channels not in (None, 1, 3):
        raise ConfigError("not a number of channels", argument="channels", value=channels, allowed="1, 3, null")
    if num_samples is not None:
        own = own.rows(used_rows(np.arange(len(own.paths)), whole_number("num_samples", num_samples, 1), seed))
    for path in own.paths:
        read_header(path)  # what is no image is reported before the training begins
    channels = read_header(train.paths[0]).channels if channels is None else channels
    statistics = mean_and_deviation(train.paths, side, channels) if normalize else None
    preprocessing = ImagePreprocessing(side, channels, statistics, train.class_names)
    image = Column("image", ImageFiles(own.paths, side, channels))
    data = Dataset([image, Column("label", own.labels)], SourceOrder(len(own.paths)))
    data.class_names, data.row_names = train.class_names, [str(path) for path in own.paths]
    data.preprocessing = preprocessing
    return data.map(preprocessing.transforms(augment and split == "train"), "image")


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

    def read(self, paths: Sequence[Path]) -> Dataset:
        """The images in these files: column `image`. Raises DataError for a file that is no image."""
        require_files(paths)
        for path in paths:
            read_header(path)
        source = ImageFiles(paths, self.image_size, self.channels)
        data = Dataset([Column("image", source)], SourceOrder(len(paths)))
        data.row_names, data.class_names, data.preprocessing = [str(path) for path in paths], self.class_names, self
        return data.map(self.transforms(), "image")

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
    one_way_to_split(False, test_fraction, ways, "")
    part = fraction(test_fraction)
    everything = read_classes(folder, folder)
    is_test = in_test_split(everything.labels, part, seed)
    if not is_test.any():
        rows = {"folder": folder, "found": "one image of each class", "repair": "add images"}
        raise ConfigError("there are too few images for a test split", **rows)
    train, test = (everything.rows(np.flatnonzero(is_test == chosen)) for chosen in (False, True))
    return train, train if split == "train" else test

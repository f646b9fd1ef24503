"""Images in folders of classes, `dataset=image_folder`, and single image files for a trained network.

`read_classes` finds the files, in an order that does not depend on the disk; `image_folder` opens the dataset, and
`ImagePreprocessing` decodes (`image_file.py`) and scales the images, also those of new files.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from runner import register
from runner.dataset.column import Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset, Preprocessing
from runner.dataset.readers.image_file import SUFFIXES, ImageFiles, mean_and_deviation, read_header
from runner.dataset.readers.mnist_cifar import missing
from runner.dataset.readers.split import (
    MAX_SEED,
    SPLITS,
    Fraction,
    Seed,
    Split,
    checked_split,
    data_path,
    fraction,
    in_test_split,
    one_way_to_split,
    require_files,
    used_rows,
)
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.array_transforms import HWC2CHW, Normalize, Rescale, crop_and_flip
from runner.dataset.vision.image import MAX_SIDE
from runner.errors import ConfigError, DataError, nearest, some
from runner.host import files
from runner.host.json import StoredValues
from runner.validation.arguments import flag, whole_number
from runner.validation.rules import MAX_COUNT, Rule

# Folders of classes, and the image files in them.

EXPECTED = f"CLASS/NAME, with {', '.join(SUFFIXES)}"
MISSING = "set data_dir to a folder with one folder for each class, or with train/ and test/ that have them"
SYSTEM_FILES = {"thumbs.db", "desktop.ini"}  # written by file managers; so are hidden files
LISTED = 8


class LabeledFiles(NamedTuple):
    """Paths of images, the number of the class of each (int32), and the names of the classes, sorted."""

    paths: list[Path]
    labels: np.ndarray
    class_names: tuple[str, ...]

    def rows(self, rows: np.ndarray) -> "LabeledFiles":
        """Some of the files."""
        return LabeledFiles([self.paths[row] for row in rows], self.labels[rows], self.class_names)


def read_classes(folder: Path, root: Path, class_names: tuple[str, ...] | None = None) -> LabeledFiles:
    """The images in the class folders of `folder`, by class and name.

    With `class_names` (those of the training split) other classes are errors, and missing ones are not. Raises
    DataError for a missing or empty folder, a file that is not named as an image, a folder inside a class, a name that
    is not UTF-8, and a link that leads out of `root`.
    """
    found = {entry.name: entry for entry in _entries(folder, root) if entry.is_dir()}
    if not found.keys() - SPLITS:  # folders of splits whose images are in no class
        raise missing(folder, EXPECTED, MISSING)
    names = tuple(sorted(found)) if class_names is None else class_names
    paths, labels = [], []
    for name in sorted(found):
        if name not in names:
            raise _unknown_class(folder / name, names)
        inside = sorted(_images(folder / name, root))
        paths += inside
        labels += [names.index(name)] * len(inside)
    return LabeledFiles(paths, np.array(labels, np.int32), names)


def has_classes(folder: Path) -> bool:
    """Whether there is such a folder with folders in it."""
    try:
        return any(entry.is_dir() and not entry.name.startswith(".") for entry in list(os.scandir(folder)))
    except OSError:
        return False


def _images(folder: Path, root: Path) -> list[Path]:
    paths = []
    for entry in _entries(folder, root):
        path = folder / entry.name
        if entry.is_dir():
            repair = "move its files into the folder of the class; classes have no folders inside"
            raise DataError("a folder inside of a class folder", folder=path, repair=repair)
        if path.suffix.lower() not in SUFFIXES:
            repair = "remove the file, or save the image in one of these formats"
            raise DataError("not an image", file=path, expected=", ".join(SUFFIXES), repair=repair)
        paths.append(path)
    if not paths:
        expected = f"at least one file with {', '.join(SUFFIXES)}"
        repair = "add images of the class, or remove the folder"
        raise DataError("a class folder is empty", folder=folder, expected=expected, repair=repair)
    return paths


def _entries(folder: Path, root: Path) -> Iterator["os.DirEntry[str]"]:
    """What is in a folder, without hidden files and those of file managers."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        raise missing(folder, EXPECTED, MISSING) from None
    except OSError as reason:
        raise DataError("cannot read a data folder", folder=folder, found=reason.strerror) from reason
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in SYSTEM_FILES:
            continue
        path = folder / entry.name
        _require_text(path)
        if entry.is_symlink():
            _require_inside(path, root)
        yield entry


def _require_text(path: Path) -> None:
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise DataError("a name is not UTF-8 text", file=path, repair="rename the file or folder") from None


def _require_inside(link: Path, root: Path) -> None:
    target = files.real_path(link)
    if not target.is_relative_to(files.real_path(root)):
        rows = {"leads_to": target, "repair": "copy what it leads to into the folder, or remove the link"}
        raise DataError("a symbolic link leads out of the data folder", file=link, expected=f"inside of {root}", **rows)


def _unknown_class(folder: Path, names: tuple[str, ...]) -> DataError:
    rows = {"expected": some(names, LISTED), "nearest": nearest(folder.name, names)}
    repair = "add images of the class to the training split, or remove the folder"
    return DataError("the test split has a class that the training split lacks", folder=folder, **rows, repair=repair)


# The dataset, and its preprocessing.


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

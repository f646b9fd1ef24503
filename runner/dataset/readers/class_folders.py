"""Folders of classes: the image files in them, in an order that does not depend on the disk."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner.dataset.formats.content import missing
from runner.dataset.readers.arguments import SPLITS
from runner.dataset.readers.image_file import SUFFIXES
from runner.errors import DataError, nearest, some
from runner.host import files

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

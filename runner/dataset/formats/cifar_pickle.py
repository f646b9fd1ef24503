"""The Python version of CIFAR-10 and CIFAR-100: pickles of dicts, with images [N, 3072] and lists of class numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.dataset.formats.cifar import SIDE
from runner.dataset.formats.content import damaged
from runner.dataset.formats.pickle_values import read_pickle

Labels = Mapping[str, tuple[str, int]]  # field: the name in the files, the number of classes

BATCHES_10 = {"train": "data_batch_*", "test": "test_batch"}
BATCHES_100 = {"train": "train", "test": "test"}
LABELS_10: Labels = {"label": ("labels", 10)}
LABELS_100: Labels = {"fine_label": ("fine_labels", 100), "coarse_label": ("coarse_labels", 20)}
PIXELS = 3 * SIDE * SIDE
_REPAIR = "unpack it again from the archive with the Python version of the data set"


def read_batches(paths: Sequence[Path], labels: Labels) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Images uint8 [N, 32, 32, 3] and, by field, class numbers int64 [N], of several files.

    `labels` gives for each field its key in the files and the number of classes. Raises DataError for another layout.
    """
    batches = [_batch(path, labels) for path in paths]
    images = np.concatenate([planes for planes, _ in batches]).reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), {name: np.concatenate([own[name] for _, own in batches]) for name in labels}


def _batch(path: Path, labels: Labels) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    content = read_pickle(path)
    planes = _entry(path, content, "data")
    if not isinstance(planes, np.ndarray) or planes.dtype != np.uint8 or planes.shape[1:] != (PIXELS,):
        raise damaged(path, f"data of UInt8 [N, {PIXELS}]", f"{type(planes).__name__} {np.shape(planes)}", _REPAIR)
    found = {}
    for name, (key, classes) in labels.items():
        numbers = np.asarray(_entry(path, content, key))
        if numbers.shape != (len(planes),) or numbers.dtype.kind not in "iu":
            expected = f"{key}: {len(planes)} whole numbers"
            raise damaged(path, expected, f"{numbers.dtype} {list(numbers.shape)}", _REPAIR)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < classes:
            raise damaged(path, f"{key} from 0 to {classes - 1}", f"{numbers.min()} to {numbers.max()}", _REPAIR)
        found[name] = numbers.astype(np.int64)
    return planes, found


def _entry(path: Path, content: Any, name: str) -> Any:
    keys = (name.encode(), name)  # bytes in files of Python 2, which the published ones are
    if isinstance(content, dict):
        for key in keys:
            if key in content:
                return content[key]
    found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
    raise damaged(path, f"a dict with {name}", found[:200], _REPAIR)

"""The 1,797 handwritten digits of 8x8 pixels that scikit-learn contains: real data without a download.

scikit-learn is located but not imported, which would take a second. Source: E. Alpaydin, C. Kaynak, "Optical
Recognition of Handwritten Digits", UCI repository; the file `sklearn/datasets/data/digits.csv.gz`.
"""

import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np

from runner.dataset.formats.content import Content
from runner.errors import DataError

ROWS, SIDE, CLASSES, BRIGHTEST = 1797, 8, 10, 16
FIELDS = SIDE * SIDE + 1
TEST_ROWS = 360
REPAIR = "install scikit-learn again (pip install --force-reinstall scikit-learn)"
COMMA, NEWLINE, ZERO = b",\n0"


@lru_cache(maxsize=1)  # training and test split read the same file
def read_digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [1797, 8, 8, 1], scaled from 0..16 to 0..255, and labels int32 [1797].

    Raises DataError unless the file holds exactly that many rows of 64 values from 0 to 16 and a label.
    """
    content = Content.of_file(path, REPAIR)
    table = _parse(np.frombuffer(content.rest(), np.uint8))
    if table is None or table[:, :-1].max() > BRIGHTEST or table[:, -1].max() >= CLASSES:
        raise content.error(f"{ROWS} lines of {FIELDS - 1} numbers from 0 to {BRIGHTEST} and a label", "something else")
    pixels = table[:, :-1].astype(np.uint16) * 255
    images = ((pixels + BRIGHTEST // 2) // BRIGHTEST).astype(np.uint8).reshape(ROWS, SIDE, SIDE, 1)
    labels = table[:, -1].astype(np.int32)
    for array in (images, labels):
        array.flags.writeable = False  # the cached arrays are shared by all callers
    return images, labels


def digits_file() -> Path:
    """The path of the data file in the installed scikit-learn. Raises DataError when that is missing."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError("scikit-learn, which contains the digits, is not installed", repair="pip install scikit-learn")
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


def split_rows(split: str) -> np.ndarray:
    """Rows of "train" (1,437) or "test" (360), independent of the run's seed and of the version of numpy."""
    mixed = np.random.RandomState(0).permutation(ROWS)  # its stream is guaranteed not to change, unlike default_rng's
    return np.sort(mixed[:TEST_ROWS] if split == "test" else mixed[TEST_ROWS:])


def _parse(text: np.ndarray) -> np.ndarray | None:
    """[ROWS, FIELDS] numbers of one or two digits, or None for any other text. 40 times faster than np.loadtxt."""
    ends = np.flatnonzero((text == COMMA) | (text == NEWLINE))
    if ends.size != ROWS * FIELDS or ends[-1] != text.size - 1:
        return None
    lengths = np.diff(ends, prepend=-1) - 1
    lines = text[ends].reshape(ROWS, FIELDS) == NEWLINE
    if lengths.min() < 1 or lengths.max() > 2 or lines[:, :-1].any() or not lines[:, -1].all():
        return None
    units = text[ends - 1] - ZERO  # bytes below "0" wrap around to large numbers
    tens = np.where(lengths == 2, text[ends - 2] - ZERO, 0)
    if units.max() > 9 or tens.max() > 9:
        return None
    numbers: np.ndarray = 10 * tens + units
    return numbers.reshape(ROWS, FIELDS)

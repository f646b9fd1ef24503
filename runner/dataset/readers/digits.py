"""Images that need no files: handwritten digits that are distributed with runner, and random images of classes.

`read_digits` has 1,797 digits of 8x8 pixels. Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten
Digits", UCI repository, CC BY 4.0; the note on the licence is `digits.LICENSE.md`. `digits.bin.gz` has one byte for
each number, in rows of 64 pixels and a label. `make_images` draws the images of `SyntheticDataset`.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from runner.dataset.readers.mnist_cifar import Content
from runner.errors import ConfigError

FILE = Path(__file__).with_name("digits.bin.gz")
ROWS, SIDE, BRIGHTEST = 1797, 8, 16
FIELDS = SIDE * SIDE + 1
SHA256 = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"  # of the uncompressed bytes
TEST_ROWS = 360
EXPECTED = f"{ROWS * FIELDS} bytes with the sha256 {SHA256}"
REPAIR = "install runner again"


@lru_cache(maxsize=1)  # training and test split read the same file
def read_digits(path: Path = FILE) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [1797, 8, 8, 1], scaled from 0..16 to 0..255, and labels int32 [1797].

    Raises DataError unless the file has exactly the published bytes.
    """
    content = Content.of_file(path, REPAIR)
    stored = content.take(ROWS * FIELDS)
    content.end(EXPECTED)
    if (found := hashlib.sha256(stored).hexdigest()) != SHA256:
        raise content.error(EXPECTED, f"{len(stored)} bytes with the sha256 {found}")
    table = np.frombuffer(stored, np.uint8).reshape(ROWS, FIELDS)
    pixels = table[:, :-1].astype(np.uint16) * 255
    images = ((pixels + BRIGHTEST // 2) // BRIGHTEST).astype(np.uint8).reshape(ROWS, SIDE, SIDE, 1)
    labels = table[:, -1].astype(np.int32)
    for array in (images, labels):
        array.flags.writeable = False  # the cached arrays are shared by all callers
    return images, labels


def split_rows(split: str) -> np.ndarray:
    """Rows of "train" (1,437) or "test" (360), independent of the run's seed and of the version of numpy."""
    mixed = np.random.RandomState(0).permutation(ROWS)  # its stream is guaranteed not to change, unlike default_rng's
    return np.sort(mixed[:TEST_ROWS] if split == "test" else mixed[TEST_ROWS:])


# Random images of learnable classes: one template per class, with noise.

NOISE = 32.0  # standard deviation, in grey levels
DARKEST, LIGHTEST = 64, 192  # of a template: noise is seldom clipped
CHUNK_VALUES = 1 << 22  # drawn at a time
SPLITS = {"train": 0, "test": 1}


def make_images(
    count: int, shape: tuple[int, int, int], classes: int, seed: int, split: str
) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, *shape] and labels int32 [count], with balanced classes.

    The templates depend on `seed` alone, so "train" and "test" have the same classes; noise and labels differ.
    """
    if split not in SPLITS:
        raise ConfigError("unknown split of synthetic images", argument="usage", value=split, allowed="train, test")
    templates = np.random.default_rng([seed]).uniform(DARKEST, LIGHTEST, (classes, *shape)).astype(np.float32)
    generator = np.random.default_rng([seed, 1 + SPLITS[split]])
    labels = generator.permutation(np.arange(count) % classes).astype(np.int32)
    images = np.empty((count, *shape), np.uint8)
    step = max(1, CHUNK_VALUES // templates[0].size)
    for start in range(0, count, step):
        part = templates[labels[start : start + step]]
        part += NOISE * generator.standard_normal(part.shape, dtype=np.float32)
        images[start : start + step] = np.clip(np.rint(part), 0, 255)
    return images, labels

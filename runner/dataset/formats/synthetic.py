"""Random images of learnable classes: one template per class, with noise."""

import numpy as np

from runner.errors import ConfigError

NOISE = 32.0  # standard deviation, in grey levels
DARKEST, BRIGHTEST = 64, 192  # of a template: noise is seldom clipped
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
    templates = np.random.default_rng([seed]).uniform(DARKEST, BRIGHTEST, (classes, *shape)).astype(np.float32)
    generator = np.random.default_rng([seed, 1 + SPLITS[split]])
    labels = generator.permutation(np.arange(count) % classes).astype(np.int32)
    images = np.empty((count, *shape), np.uint8)
    step = max(1, CHUNK_VALUES // templates[0].size)
    for start in range(0, count, step):
        part = templates[labels[start : start + step]]
        part += NOISE * generator.standard_normal(part.shape, dtype=np.float32)
        images[start : start + step] = np.clip(np.rint(part), 0, 255)
    return images, labels

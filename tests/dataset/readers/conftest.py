"""Folders of images as a user has them, drawn from fixed seeds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Draw = Callable[..., Path]


def pixels(number: int, height: int = 12, width: int = 12, channels: int = 3) -> np.ndarray:
    """Random bytes [height, width, channels], without the last axis for one channel."""
    drawn = np.random.default_rng(number).integers(0, 256, (height, width, channels), np.uint8)
    return drawn[..., 0] if channels == 1 else drawn


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """Writes `{class: count}` PNG files below a folder of the test; image k of class c is `pixels(100 * c + k)`."""

    def write(classes: dict[str, int], place: str = "data", *, backwards: bool = False, **size: int) -> Path:
        folder = tmp_path / place
        wanted = [(name, number, k) for number, name in enumerate(classes) for k in range(classes[name])]
        for name, number, k in reversed(wanted) if backwards else wanted:
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(100 * number + k, **size)).save(folder / name / f"{k:03}.png")
        return folder

    return write

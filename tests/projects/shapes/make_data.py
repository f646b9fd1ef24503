"""Draw data/{train,test}/CLASS/NNN.png: 1,200 images of four shapes, the same pixels at each call.

Each has a random colour, position, size and angle on a random background, with noise.
"""

from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 24  # pixels
COUNT = {"train": 250, "test": 50}  # images of each class
CORNERS = {"triangle": 3, "square": 4, "circle": 64, "star": 5}


def inside(shape: str, x: np.ndarray, y: np.ndarray, radius: float, angle: float) -> np.ndarray:
    """Which points are inside of a shape around the origin: 1, or a part of it in the margin of one pixel."""
    distance, direction = np.hypot(x, y), np.arctan2(y, x) - angle
    sector = 2.0 * np.pi / CORNERS[shape]
    turn = np.abs((direction + sector / 2.0) % sector - sector / 2.0)  # from the nearest corner
    if shape == "star":
        edge = radius * (1.0 - 0.62 * turn / (sector / 2.0))
    else:
        edge = radius * np.cos(sector / 2.0) / np.cos(sector / 2.0 - turn)
    return np.clip(edge - distance + 0.5, 0.0, 1.0)


def draw(shape: str, rng: np.random.Generator) -> np.ndarray:
    """An image, uint8 [SIDE, SIDE, 3]."""
    background, colour = rng.uniform(0.0, 0.45, 3), rng.uniform(0.55, 1.0, 3)
    if rng.random() < 0.5:
        background, colour = colour, background
    radius, angle = rng.uniform(6.0, 10.0), rng.uniform(0.0, 2.0 * np.pi)
    centre = SIDE / 2.0 - 0.5 + rng.uniform(-2.0, 2.0, 2)
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float64)
    mask = inside(shape, x - centre[0], y - centre[1], radius, angle)[..., None]
    image = background + (colour - background) * mask + rng.normal(0.0, 0.06, (SIDE, SIDE, 3))
    return np.clip(np.rint(image * 255.0), 0, 255).astype(np.uint8)


def main() -> None:
    """Write the folders beside this script."""
    rng = np.random.default_rng(2024)
    for split, count in COUNT.items():
        for shape in sorted(CORNERS):
            folder = Path(__file__).parent / "data" / split / shape
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                Image.fromarray(draw(shape, rng)).save(folder / f"{number:03d}.png")


if __name__ == "__main__":
    main()

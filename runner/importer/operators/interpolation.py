"""Positions and weights along one axis that is resized, in Float32 as onnxruntime computes them."""

import math
from dataclasses import dataclass

import numpy as np

COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_half_pixel_for_nn",
)
NEAREST = "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of `length` elements that gets `out` ones; `scale` is their ratio before it is rounded."""

    number: int
    length: int
    out: int
    scale: np.float32

    def positions(self, coordinates: str) -> np.ndarray:
        """Where each new element is among the old ones, in Float32."""
        half, new = np.float32(0.5), np.arange(self.out, dtype=np.float32)
        centers = (new + half) / self.scale
        if coordinates == "asymmetric":
            return new / self.scale
        if coordinates == "tf_half_pixel_for_nn":
            return centers
        if coordinates == "align_corners":
            return new * np.float32(self.length - 1) / np.float32(max(self.out - 1, 1))
        if coordinates == "pytorch_half_pixel" and self.out == 1:
            return np.zeros(1, np.float32)
        offset = np.float32(0)
        if coordinates == "half_pixel_symmetric":
            share = np.float32(self.out) / (self.scale * np.float32(self.length))
            offset = np.float32(self.length) / np.float32(2) * (np.float32(1) - share)
        return offset + centers - half

    def nearest(self, coordinates: str, rounding: str) -> np.ndarray:
        """The old element for each new one."""
        x, half = self.positions(coordinates), np.float32(0.5)
        if rounding == "simple":  # before opset 11
            rounding = "ceil" if self.scale < 1 else "floor"
        moved = {"round_prefer_floor": x - half, "round_prefer_ceil": x + half}.get(rounding, x)
        upwards = rounding in ("ceil", "round_prefer_floor")
        rounded = np.ceil(moved) if upwards else np.floor(moved)
        places: np.ndarray = np.clip(rounded.astype(np.int64), 0, self.length - 1)
        return places


def weights(
    axis: ResizedAxis, coordinates: str, cubic: float | None, exclude_outside: bool, antialias: bool = False
) -> np.ndarray:
    """The matrix (out, length) of linear interpolation or, with a coefficient, of cubic convolution.

    Beyond the ends the outermost elements are repeated, or left out if `exclude_outside`. With `antialias` an axis that
    gets shorter is smoothed: each weight is that of a distance which is shorter by as much.
    """
    positions = axis.positions(coordinates).astype(np.float64)
    if cubic is None and not antialias:
        positions = positions.clip(0, axis.length - 1)
    stretch = max(1.0, 1.0 / float(axis.scale)) if antialias else 1.0
    reach = math.ceil((1 if cubic is None else 2) * stretch)
    places = np.floor(positions)[:, None] + np.arange(1 - reach, reach + 1)
    distances = np.abs(positions[:, None] - places) / stretch
    shares = np.maximum(1 - distances, 0) if cubic is None else _cubic(distances, cubic)
    if exclude_outside:
        shares = shares * ((places >= 0) & (places < axis.length))
    shares = shares / shares.sum(1, keepdims=True)
    matrix = np.zeros((axis.out, axis.length))
    columns = places.clip(0, axis.length - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(axis.out)[:, None], columns), shares)
    return matrix


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The weight of an element at a distance (Keys, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))

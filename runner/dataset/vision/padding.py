"""Borders around a stack of images."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from runner.dataset.vision.geometry import Border
from runner.dataset.vision.image import filled
from runner.errors import ConfigError

Borders = tuple[int, int]
KINDS: dict[Border, Literal["edge", "reflect", "symmetric"]] = {
    Border.EDGE: "edge",
    Border.REFLECT: "reflect",
    Border.SYMMETRIC: "symmetric",
}


def padded(
    batch: np.ndarray, rows: Borders, columns: Borders, row_axis: int, mode: Border, fill: Sequence[int]
) -> np.ndarray:
    """The stack with (before, after) more rows and columns; the batch itself when there are none.

    Rows are axis `row_axis`, columns the next one; the channels are the last axis, or the one before the rows. Raises
    ConfigError when a mirror image would be larger than the image.
    """
    if not any((*rows, *columns)):
        return batch
    widths = [(0, 0)] * batch.ndim
    widths[row_axis : row_axis + 2] = [rows, columns]
    if mode is Border.CONSTANT:
        return _constant(batch, widths, row_axis, tuple(fill))
    if mode is Border.REFLECT or mode is Border.SYMMETRIC:
        most = min(batch.shape[row_axis : row_axis + 2]) - (mode is Border.REFLECT)
        if max(*rows, *columns) > most:
            described = {"argument": "padding", "value": max(*rows, *columns), "allowed": f"0 to {most} for this image"}
            raise ConfigError(f"a border of Border.{mode.name} is larger than the image", **described)
    result: np.ndarray = np.pad(batch, widths, KINDS[mode])
    return result


def _constant(batch: np.ndarray, widths: list[Borders], row_axis: int, fill: tuple[int, ...]) -> np.ndarray:
    sides = [before + length + after for length, (before, after) in zip(batch.shape, widths, strict=True)]
    inside = tuple(slice(before, before + length) for length, (before, _) in zip(batch.shape, widths, strict=True))
    if not any(fill):
        result = np.zeros(sides, batch.dtype)
    else:
        channels_last = row_axis == 1
        colour = np.array(filled(fill, batch.shape[-1 if channels_last else 1]), batch.dtype)
        result = np.empty(sides, batch.dtype)
        result[...] = colour if channels_last else colour[:, np.newaxis, np.newaxis]
    result[inside] = batch
    return result

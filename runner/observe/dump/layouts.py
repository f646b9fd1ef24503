"""Memory layouts of tensors on devices: conversion between each of them and (N, C, H, W), in memory.

MindSpore calls a layout a format, and so do its messages, options and the names of dump files; the formats of the
files themselves are in `files.py`.

    NHWC, HWCN, CHWN    permuted axes; CHWN is batch last, as on our CPU, for any number of axes
    NC1HWC0             (N, C1, H, W, C0): channels in groups of C0
    FRACTAL_Z           (C1*H*W, N1, N0, C0): convolution weights in tiles of N0 by C0
    FRACTAL_NZ          (..., N1, M1, M0, N0): matrices (M, N) in tiles of M0 by N0, in column-major order

C1 is C / C0 rounded up, with zero padding beyond C; likewise for the others. C0 is 16, or 32 for elements of one byte;
N0 and M0 are 16. Sources: CANN documentation, "Format"; for grouped convolutions the transfer kernels of MindSpore and
GE.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from runner.errors import DataError
from runner.types import Shape

PLAIN = ("NCHW", "ND")
_ORDERS = {"NHWC": (0, 3, 1, 2), "HWCN": (3, 2, 0, 1)}  # the axes N, C, H, W
LAYOUTS = (*PLAIN, *_ORDERS, "CHWN", "NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ")
TILED = "22CHWN"  # (2, 2, C, H/2, W/2, N), only in synchronous dumps of our own: the corners of 2x2 tiles
TILE_AXES = (5, 2, 3, 0, 4, 1)  # of TILED in the order (N, C, H/2, 2, W/2, 2)
TILE = 16


def to_nchw(array: np.ndarray, layout: str, original: Shape = (), groups: int = 1) -> np.ndarray:
    """Convert a tensor to (N, C, H, W), or to its logical axes if it does not have four; a view where possible.

    `original` is its shape without padding, or () if unknown: the padding of channels then remains. `groups` is that
    of the convolution, for FRACTAL_Z. Raises DataError for a layout that is not in LAYOUTS, and for shapes that do not
    match.
    """
    if layout in _ORDERS and array.ndim != 4:
        layout = "ND"  # as in CANN: the layout has no meaning for other numbers of axes
    if layout in PLAIN:
        return array.reshape(original) if original and array.size == math.prod(original) else array
    if layout in _ORDERS:
        return _checked(array.transpose(_ORDERS[layout]), array, layout, original)
    if layout == "CHWN":
        return _checked(np.moveaxis(array, -1, 0) if array.ndim else array, array, layout, original)
    if layout == TILED and array.ndim == 6:
        tiles = array.transpose(TILE_AXES)
        return tiles.reshape(*tiles.shape[:2], 2 * tiles.shape[2], 2 * tiles.shape[4])
    if layout == "NC1HWC0":
        return _from_nc1hwc0(array, original)
    if layout == "FRACTAL_Z":
        return _from_fractal_z(array, original, groups)
    if layout == "FRACTAL_NZ":
        return _from_fractal_nz(array, original)
    raise DataError("this format cannot be converted", found=layout, allowed=", ".join(LAYOUTS))


def from_nchw(array: np.ndarray, layout: str, groups: int = 1) -> np.ndarray:
    """Convert a tensor (N, C, H, W), or with other axes, to a layout; a view where possible.

    Raises DataError for a layout that is not in LAYOUTS or that the tensor cannot have.
    """
    if layout in PLAIN or (layout in _ORDERS and array.ndim != 4):
        return array
    if layout in _ORDERS:
        return array.transpose(np.argsort(_ORDERS[layout]))
    if layout == "CHWN":
        return np.moveaxis(array, 0, -1) if array.ndim else array
    if layout == "FRACTAL_NZ":
        return _to_fractal_nz(array)
    if layout not in LAYOUTS:
        raise DataError("this format cannot be converted", found=layout, allowed=", ".join(LAYOUTS))
    if array.ndim != 4:
        raise DataError(f"only tensors of four axes have the format {layout}", shape=array.shape)
    return _to_nc1hwc0(array) if layout == "NC1HWC0" else _to_fractal_z(array, groups)


def convert(array: np.ndarray, source: str, target: str, original: Shape = (), groups: int = 1) -> np.ndarray:
    """Convert a tensor from one layout to another; arguments and errors as in `to_nchw` and `from_nchw`."""
    if source == target and target not in PLAIN:
        return array
    return from_nchw(to_nchw(array, source, original, groups), target, groups)


def _checked(result: np.ndarray, array: np.ndarray, layout: str, original: Shape) -> np.ndarray:
    if original and result.shape != original:
        raise _shape_error(array, layout, original)
    return result


def _shape_error(array: np.ndarray, layout: str, original: Shape) -> DataError:
    rows = {"shape": array.shape, "original_shape": original or "unknown"}
    return DataError(f"the shapes of a tensor {layout} do not match", **rows)


def _ceil_div(length: int, size: int) -> int:
    return -(-length // size)


def _c0(array: np.ndarray) -> int:
    return 32 if array.itemsize == 1 else 16


def _padded(array: np.ndarray, *lengths: int) -> np.ndarray:
    """Pad the last axes with zeros to these lengths."""
    shape = (*array.shape[: array.ndim - len(lengths)], *lengths)
    if shape == array.shape:
        return array
    padded = np.zeros(shape, array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def _four_axes(original: Shape) -> Iterator[Shape]:
    """The shapes of four axes that a shape may have become: MindSpore adds one axis in front (N), others at the end."""
    missing = 4 - len(original)
    if missing >= 0:
        front = min(missing, 1)
        yield (1,) * front + original + (1,) * (missing - front)
        yield original + (1,) * missing


# (N, C1, H, W, C0)


def _from_nc1hwc0(array: np.ndarray, original: Shape) -> np.ndarray:
    if array.ndim != 5:
        raise _shape_error(array, "NC1HWC0", original)
    batch, c1, height, width, c0 = array.shape
    padded = array.transpose(0, 1, 4, 2, 3).reshape(batch, c1 * c0, height, width)
    if not original:
        return padded
    for n, c, h, w in _four_axes(original):
        if c0 and (n, _ceil_div(c, c0), h, w) == (batch, c1, height, width):
            return padded[:, :c].reshape(original)
    raise _shape_error(array, "NC1HWC0", original)


def _to_nc1hwc0(array: np.ndarray) -> np.ndarray:
    batch, channels, height, width = array.shape
    c0 = _c0(array)
    c1 = _ceil_div(channels, c0)
    padded = _padded(array, c1 * c0, height, width)
    return padded.reshape(batch, c1, c0, height, width).transpose(0, 1, 3, 4, 2)


# (G*C1*H*W, N1, N0, C0)


class _BlockDiagonal(NamedTuple):
    """Weights of a grouped convolution as G block-diagonal matrices with up to `blocks` groups each."""

    groups: int
    blocks: int  # groups per matrix
    matrices: int  # G
    outputs: int  # channels of one group
    inputs: int
    n1: int
    c1: int

    @classmethod
    def of(cls, shape: Shape, groups: int, c0: int) -> "_BlockDiagonal":
        outputs, inputs = shape[0] // groups, shape[1]
        blocks = 1
        if groups > 1 and outputs and inputs:
            without_padding = math.lcm(math.lcm(inputs, c0) // inputs, math.lcm(outputs, TILE) // outputs)
            blocks = min(without_padding, groups)
        n1, c1 = _ceil_div(blocks * outputs, TILE), _ceil_div(blocks * inputs, c0)
        return cls(groups, blocks, _ceil_div(groups, blocks), outputs, inputs, n1, c1)

    def slices(self) -> Iterator[tuple[slice, int, slice, slice]]:
        """For each group: its output channels, its matrix, and its rows and columns in that matrix."""
        for group in range(self.groups):
            matrix, block = divmod(group, self.blocks)
            rows = slice(block * self.outputs, (block + 1) * self.outputs)
            columns = slice(block * self.inputs, (block + 1) * self.inputs)
            yield slice(group * self.outputs, (group + 1) * self.outputs), matrix, rows, columns


def _from_fractal_z(array: np.ndarray, original: Shape, groups: int) -> np.ndarray:
    if not original:
        raise DataError("a tensor FRACTAL_Z needs its original shape", shape=array.shape, hint="-s N,C,H,W gives it")
    c0 = array.shape[-1] if array.ndim >= 4 else 0
    for shape in _four_axes(original):
        if not c0 or groups < 1 or shape[0] % groups:
            continue
        packing = _BlockDiagonal.of(shape, groups, c0)
        outer = packing.matrices * packing.c1 * shape[2] * shape[3]
        if (math.prod(array.shape[:-3]), *array.shape[-3:]) == (outer, packing.n1, TILE, c0):
            return _unpack(array, packing, shape).reshape(original)
    raise _shape_error(array, "FRACTAL_Z", original)


def _unpack(array: np.ndarray, packing: _BlockDiagonal, shape: Shape) -> np.ndarray:
    c0, kernel = array.shape[-1], shape[2:]
    tiles = array.reshape(packing.matrices, packing.c1, *kernel, packing.n1, TILE, c0).transpose(0, 4, 5, 1, 6, 2, 3)
    matrices = tiles.reshape(packing.matrices, packing.n1 * TILE, packing.c1 * c0, *kernel)
    weights = np.empty(shape, array.dtype)
    for outputs, matrix, rows, columns in packing.slices():
        weights[outputs] = matrices[matrix, rows, columns]
    return weights


def _to_fractal_z(array: np.ndarray, groups: int) -> np.ndarray:
    if groups < 1 or array.shape[0] % groups:
        raise DataError("the groups of a convolution do not divide its outputs", groups=groups, shape=array.shape)
    c0 = _c0(array)
    packing, kernel = _BlockDiagonal.of(array.shape, groups, c0), array.shape[2:]
    matrices = np.zeros((packing.matrices, packing.n1 * TILE, packing.c1 * c0, *kernel), array.dtype)
    for outputs, matrix, rows, columns in packing.slices():
        matrices[matrix, rows, columns] = array[outputs]
    tiles = matrices.reshape(packing.matrices, packing.n1, TILE, packing.c1, c0, *kernel).transpose(0, 3, 5, 6, 1, 2, 4)
    return tiles.reshape(packing.matrices * packing.c1 * math.prod(kernel), packing.n1, TILE, c0)


# (..., N1, M1, M0, N0)


def _from_fractal_nz(array: np.ndarray, original: Shape) -> np.ndarray:
    if array.ndim < 4:
        raise _shape_error(array, "FRACTAL_NZ", original)
    *outer, n1, m1, m0, n0 = array.shape
    matrix = np.moveaxis(array, -4, -2).reshape(*outer, m1 * m0, n1 * n0)
    if not original:
        return matrix
    *front, m, n = original if len(original) > 1 else (1, *original)
    if not m0 or not n0 or (front, _ceil_div(m, m0), _ceil_div(n, n0)) != (outer, m1, n1):
        raise _shape_error(array, "FRACTAL_NZ", original)
    return matrix[..., :m, :n].reshape(original)


def _to_fractal_nz(array: np.ndarray) -> np.ndarray:
    *outer, m, n = (1,) * (2 - array.ndim) + array.shape
    n0 = _c0(array)
    m1, n1 = _ceil_div(m, TILE), _ceil_div(n, n0)
    matrix = _padded(array.reshape(*outer, m, n), m1 * TILE, n1 * n0)
    return np.moveaxis(matrix.reshape(*outer, m1, TILE, n1, n0), -2, -4)


# Copies in C order.

BLOCK = 1 << 20  # bytes
MIN_ROWS = 64


def to_c_order(array: np.ndarray) -> np.ndarray:
    """The array in C order; copied if its memory order is different.

    Arrays with the batch axis last in memory are transposed in blocks, because numpy copies the matrix (C*H*W, N)
    row by row and evicts cache lines before it uses their other elements. This is three to five times as fast; numpy
    is fast enough for other orders.
    """
    batch_last = np.moveaxis(array, 0, -1) if array.ndim else array
    if array.flags.c_contiguous or array.nbytes <= BLOCK or not batch_last.flags.c_contiguous:
        return np.asarray(array, order="C")
    result = np.empty(array.shape, array.dtype)
    source, target = batch_last.reshape(-1, len(array)), result.reshape(len(array), -1)
    rows = max(BLOCK // source[0].nbytes, MIN_ROWS)
    for start in range(0, len(source), rows):
        target[:, start : start + rows] = source[start : start + rows].T
    return result

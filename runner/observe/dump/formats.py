"""How tensors lie on devices, and back to (N, C, H, W).

    NHWC, HWCN, CHWN    the axes in another order; CHWN is batch last, as our CPU has it, for any number of axes
    NC1HWC0             (N, C1, H, W, C0): channels in groups of C0
    FRACTAL_Z           (C1*H*W, N1, N0, C0): weights of convolutions in tiles of N0 by C0
    FRACTAL_NZ          (..., N1, M1, M0, N0): matrices (M, N) in tiles of M0 by N0, column by column

C1 is C / C0 rounded up, and what is beyond C is 0; so for the others. C0 is 16, and 32 for elements of one byte; N0 and
M0 are 16. Sources: CANN documentation, "Format"; for weights in groups the transfer kernels of MindSpore and GE.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from runner.errors import DataError
from runner.types import Shape

PLAIN = ("NCHW", "ND")
_ORDERS = {"NHWC": (0, 3, 1, 2), "HWCN": (3, 2, 0, 1)}  # where N, C, H, W are
FORMATS = (*PLAIN, *_ORDERS, "CHWN", "NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ")
TILE = 16


def to_nchw(array: np.ndarray, format: str, original: Shape = (), groups: int = 1) -> np.ndarray:
    """A tensor in the order (N, C, H, W), or that of its axes when it has not four; a view where that is possible.

    `original` is its shape without padding, or () when it is unknown: channels are then as many as there is room for.
    `groups` is that of the convolution, for FRACTAL_Z. Raises DataError for a format that is not in FORMATS, and when
    the shapes do not belong together.
    """
    if format in _ORDERS and array.ndim != 4:
        format = "ND"  # a name for axes that it does not have; CANN means the same
    if format in PLAIN:
        return array.reshape(original) if original and array.size == math.prod(original) else array
    if format in _ORDERS:
        return _checked(array.transpose(_ORDERS[format]), array, format, original)
    if format == "CHWN":
        return _checked(np.moveaxis(array, -1, 0) if array.ndim else array, array, format, original)
    if format == "NC1HWC0":
        return _from_groups_of_channels(array, original)
    if format == "FRACTAL_Z":
        return _from_fractal_z(array, original, groups)
    if format == "FRACTAL_NZ":
        return _from_fractal_nz(array, original)
    raise DataError("this format cannot be converted", found=format, allowed=", ".join(FORMATS))


def from_nchw(array: np.ndarray, format: str, groups: int = 1) -> np.ndarray:
    """A tensor (N, C, H, W), or of other axes, as it lies in a format; a view where that is possible.

    Raises DataError for a format that is not in FORMATS, and for a tensor that has none such.
    """
    if format in PLAIN or (format in _ORDERS and array.ndim != 4):
        return array
    if format in _ORDERS:
        return array.transpose(np.argsort(_ORDERS[format]))
    if format == "CHWN":
        return np.moveaxis(array, 0, -1) if array.ndim else array
    if format == "FRACTAL_NZ":
        return _to_fractal_nz(array)
    if format not in FORMATS:
        raise DataError("this format cannot be converted", found=format, allowed=", ".join(FORMATS))
    if array.ndim != 4:
        raise DataError(f"only tensors of four axes have the format {format}", shape=array.shape)
    return _to_groups_of_channels(array) if format == "NC1HWC0" else _to_fractal_z(array, groups)


def convert(array: np.ndarray, source: str, target: str, original: Shape = (), groups: int = 1) -> np.ndarray:
    """A tensor that lies in one format as it lies in another; arguments and errors as of `to_nchw` and `from_nchw`."""
    if source == target and target not in PLAIN:
        return array
    return from_nchw(to_nchw(array, source, original, groups), target, groups)


def _checked(made: np.ndarray, array: np.ndarray, format: str, original: Shape) -> np.ndarray:
    if original and made.shape != original:
        raise _misfit(array, format, original)
    return made


def _misfit(array: np.ndarray, format: str, original: Shape) -> DataError:
    rows = {"shape": array.shape, "original_shape": original or "unknown"}
    return DataError(f"the shapes of a tensor {format} do not belong together", **rows)


def _parts(length: int, size: int) -> int:
    return -(-length // size)


def _c0(array: np.ndarray) -> int:
    return 32 if array.itemsize == 1 else 16


def _padded(array: np.ndarray, *lengths: int) -> np.ndarray:
    """Zeros behind the last axes, up to these lengths."""
    ends = (*array.shape[: array.ndim - len(lengths)], *lengths)
    if ends == array.shape:
        return array
    made = np.zeros(ends, array.dtype)
    made[tuple(map(slice, array.shape))] = array
    return made


def _four(original: Shape) -> Iterator[Shape]:
    """What a shape may have become to have four axes: MindSpore puts one in front (axis N), others at the end."""
    missing = 4 - len(original)
    if missing >= 0:
        front = min(missing, 1)
        yield (1,) * front + original + (1,) * (missing - front)
        yield original + (1,) * missing


# (N, C1, H, W, C0)


def _from_groups_of_channels(array: np.ndarray, original: Shape) -> np.ndarray:
    if array.ndim != 5:
        raise _misfit(array, "NC1HWC0", original)
    batch, c1, height, width, c0 = array.shape
    whole = array.transpose(0, 1, 4, 2, 3).reshape(batch, c1 * c0, height, width)
    if not original:
        return whole
    for n, c, h, w in _four(original):
        if c0 and (n, _parts(c, c0), h, w) == (batch, c1, height, width):
            return whole[:, :c].reshape(original)
    raise _misfit(array, "NC1HWC0", original)


def _to_groups_of_channels(array: np.ndarray) -> np.ndarray:
    batch, channels, height, width = array.shape
    c0 = _c0(array)
    c1 = _parts(channels, c0)
    whole = _padded(array, c1 * c0, height, width)
    return whole.reshape(batch, c1, c0, height, width).transpose(0, 1, 3, 4, 2)


# (G*C1*H*W, N1, N0, C0)


class _Blocks(NamedTuple):
    """Weights of `groups` groups as G matrices, each with the weights of up to `together` groups on its diagonal."""

    groups: int
    together: int
    matrices: int  # G
    outputs: int  # of one group
    inputs: int
    n1: int
    c1: int

    @classmethod
    def of(cls, shape: Shape, groups: int, c0: int) -> "_Blocks":
        outputs, inputs = shape[0] // groups, shape[1]
        together = 1
        if groups > 1 and outputs and inputs:
            fills = math.lcm(math.lcm(inputs, c0) // inputs, math.lcm(outputs, TILE) // outputs)
            together = min(fills, groups)
        n1, c1 = _parts(together * outputs, TILE), _parts(together * inputs, c0)
        return cls(groups, together, _parts(groups, together), outputs, inputs, n1, c1)

    def places(self) -> Iterator[tuple[slice, int, slice, slice]]:
        """For each group: its outputs among all, its matrix, and the rows and columns there."""
        for group in range(self.groups):
            matrix, place = divmod(group, self.together)
            rows = slice(place * self.outputs, (place + 1) * self.outputs)
            columns = slice(place * self.inputs, (place + 1) * self.inputs)
            yield slice(group * self.outputs, (group + 1) * self.outputs), matrix, rows, columns


def _from_fractal_z(array: np.ndarray, original: Shape, groups: int) -> np.ndarray:
    if not original:
        raise DataError("a tensor FRACTAL_Z needs its original shape", shape=array.shape, hint="-s N,C,H,W gives it")
    c0 = array.shape[-1] if array.ndim >= 4 else 0
    for shape in _four(original):
        if not c0 or groups < 1 or shape[0] % groups:
            continue
        blocks = _Blocks.of(shape, groups, c0)
        outer = blocks.matrices * blocks.c1 * shape[2] * shape[3]
        if (math.prod(array.shape[:-3]), *array.shape[-3:]) == (outer, blocks.n1, TILE, c0):
            return _unpacked(array, blocks, shape).reshape(original)
    raise _misfit(array, "FRACTAL_Z", original)


def _unpacked(array: np.ndarray, blocks: _Blocks, shape: Shape) -> np.ndarray:
    c0, rest = array.shape[-1], shape[2:]
    whole = array.reshape(blocks.matrices, blocks.c1, *rest, blocks.n1, TILE, c0).transpose(0, 4, 5, 1, 6, 2, 3)
    matrices = whole.reshape(blocks.matrices, blocks.n1 * TILE, blocks.c1 * c0, *rest)
    made = np.empty(shape, array.dtype)
    for outputs, matrix, rows, columns in blocks.places():
        made[outputs] = matrices[matrix, rows, columns]
    return made


def _to_fractal_z(array: np.ndarray, groups: int) -> np.ndarray:
    if groups < 1 or array.shape[0] % groups:
        raise DataError("the groups of a convolution do not divide its outputs", groups=groups, shape=array.shape)
    c0 = _c0(array)
    blocks, rest = _Blocks.of(array.shape, groups, c0), array.shape[2:]
    matrices = np.zeros((blocks.matrices, blocks.n1 * TILE, blocks.c1 * c0, *rest), array.dtype)
    for outputs, matrix, rows, columns in blocks.places():
        matrices[matrix, rows, columns] = array[outputs]
    whole = matrices.reshape(blocks.matrices, blocks.n1, TILE, blocks.c1, c0, *rest).transpose(0, 3, 5, 6, 1, 2, 4)
    return whole.reshape(blocks.matrices * blocks.c1 * math.prod(rest), blocks.n1, TILE, c0)


# (..., N1, M1, M0, N0)


def _from_fractal_nz(array: np.ndarray, original: Shape) -> np.ndarray:
    if array.ndim < 4:
        raise _misfit(array, "FRACTAL_NZ", original)
    *outer, n1, m1, m0, n0 = array.shape
    matrix = np.moveaxis(array, -4, -2).reshape(*outer, m1 * m0, n1 * n0)
    if not original:
        return matrix
    *front, m, n = original if len(original) > 1 else (1, *original)
    if not m0 or not n0 or (front, _parts(m, m0), _parts(n, n0)) != (outer, m1, n1):
        raise _misfit(array, "FRACTAL_NZ", original)
    return matrix[..., :m, :n].reshape(original)


def _to_fractal_nz(array: np.ndarray) -> np.ndarray:
    *outer, m, n = (1,) * (2 - array.ndim) + array.shape
    n0 = _c0(array)
    m1, n1 = _parts(m, TILE), _parts(n, n0)
    matrix = _padded(array.reshape(*outer, m, n), m1 * TILE, n1 * n0)
    return np.moveaxis(matrix.reshape(*outer, m1, TILE, n1, n0), -2, -4)


BLOCK = 1 << 20  # bytes
FEWEST_ROWS = 64


def in_order(array: np.ndarray) -> np.ndarray:
    """The same tensor in C order; it is copied when it lies otherwise.

    Those that lie batch last are copied in blocks: numpy goes along one side of the matrix (C*H*W, N) for each row of
    the other, and a cache line that it fetched for one element is gone when the neighbour's turn comes. Three to five
    times as fast; numpy is quick enough for other orders.
    """
    lying = np.moveaxis(array, 0, -1) if array.ndim else array
    if array.flags.c_contiguous or array.nbytes <= BLOCK or not lying.flags.c_contiguous:
        return np.asarray(array, order="C")
    made = np.empty(array.shape, array.dtype)
    source, target = lying.reshape(-1, len(array)), made.reshape(len(array), -1)
    rows = max(BLOCK // source[0].nbytes, FEWEST_ROWS)
    for start in range(0, len(source), rows):
        target[:, start : start + rows] = source[start : start + rows].T
    return made

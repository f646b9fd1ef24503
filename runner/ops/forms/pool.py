"""Pooling in batch-last layout, for disjoint windows: one axis at a time, on whole rows of memory.

Columns first, then rows: the first maximum of the first maxima of the rows is the first one in row-major order.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, TILED, Builder, Form, physical_shape
from runner.ops.window import Windows
from runner.types import TensorType

MAX_SIDE = 16  # of windows that are processed tap by tap


def uses_taps(windows: Windows) -> bool:
    """Whether windows are processed tap by tap: they are disjoint and small."""
    return windows.tiles and max(windows.kernel) <= MAX_SIDE


def forms(lower: Callable[..., str], windows: Windows, x: TensorType, operands: int) -> tuple[Form, ...]:
    """The batch-last form of a pooling operator, if its windows allow it."""
    fits = uses_taps(windows) and x.dtype is dt.float32
    return (Form("last", partial(lower, windows, x), (LAST,) * operands, (LAST,)),) if fits else ()


def tiled_forms(lower: Callable[..., str], windows: Windows, x: TensorType, gradient: bool) -> tuple[Form, ...]:
    """The form of a 2x2 pool of a tiled image."""
    fits = windows.tiles and windows.kernel == (2, 2) and x.dtype is dt.float32
    operands, results = ((TILED, LAST, LAST), (TILED,)) if gradient else ((TILED,), (LAST,))
    return (Form("tiled", partial(lower, x), operands, results),) if fits else ()


def tiled_maximum(x: TensorType, b: Builder, name: str) -> str:
    """MaxPool: the largest of the four corners."""
    _, _, *pooled = physical_shape(x.shape, TILED)
    return b.reshape(_largest(b, _taps(b, name, (1, 4, x.size // 4))), pooled)


def tiled_maximum_gradient(x: TensorType, b: Builder, name: str, out: str, dout: str) -> str:
    """MaxPoolGrad: to the first corner that has the maximum."""
    level = 1, 4, x.size // 4
    result = _to_first(b, x.dtype, level, b.reshape(name, level), _as_tap(b, out, level), _as_tap(b, dout, level))
    return b.reshape(result, physical_shape(x.shape, TILED))


def maximum(windows: Windows, x: TensorType, b: Builder, name: str) -> str:
    """MaxPool."""
    across, down = _levels(windows, x)
    return b.reshape(_largest(b, _taps(b, _largest(b, _taps(b, name, across)), down)), _pooled(windows, x))


def maximum_gradient(windows: Windows, x: TensorType, b: Builder, name: str, out: str, dout: str) -> str:
    """MaxPoolGrad: from the pooled image to its rows, and from each row to its elements."""
    across, down = _levels(windows, x)
    rows = b.reshape(_largest(b, _taps(b, name, across)), down)
    out = _as_tap(b, out, down)
    spread = _to_first(b, x.dtype, down, rows, out, _as_tap(b, dout, down))
    # The maximum of each row, but NaN in all rows of a window with NaN, whose gradient goes to its first element.
    largest, spread = (_as_tap(b, value, across) for value in (b.node("Max", (rows, out)), spread))
    result = _to_first(b, x.dtype, across, b.reshape(name, across), largest, spread)
    return b.reshape(result, (*x.shape[1:], x.shape[0]))


def mean(windows: Windows, x: TensorType, b: Builder, name: str) -> str:
    """AvgPool."""
    (height, width), (rows, columns), batch = windows.kernel, windows.out, x.shape[0]
    split = b.reshape(name, (x.shape[1] * rows, height, columns, width, batch))
    result = b.node("ReduceMean", (split, b.const([1, 3])), keepdims=0)
    return b.reshape(result, _pooled(windows, x))


def mean_in_half(windows: Windows, divisors: np.ndarray, b: Builder, x: str) -> str:
    """AvgPool of Float16 (N, C, H, W), every sum rounded to Float16 by Casts, since the CPU adds only in Float32."""
    top, bottom, left, right = windows.pads
    single = b.node("Cast", (x,), to=dt.float32)
    padded = b.node("Pad", (single, b.const([0, 0, top, left, 0, 0, bottom, right]))) if any(windows.pads) else single
    total = ""
    for down in windows.taps(0):
        for across in windows.taps(1):
            starts, ends, steps = ([getattr(s, part) for s in (down, across)] for part in ("start", "stop", "step"))
            element = b.node("Slice", (padded, *map(b.const, (starts, ends, [2, 3], steps))))
            total = _round_to_half(b, b.node("Add", (total, element))) if total else element
    mean = b.node("Div", (total, b.const(divisors)))
    return b.node("Cast", (mean,), to=dt.float16)


def _round_to_half(b: Builder, name: str) -> str:
    return b.node("Cast", (b.node("Cast", (name,), to=dt.float16),), to=dt.float32)


def mean_gradient(windows: Windows, x: TensorType, b: Builder, dout: str) -> str:
    """AvgPoolGrad."""
    (height, width), (rows, columns), (batch, channels) = windows.kernel, windows.out, x.shape[:2]
    share = b.node("Mul", (dout, b.const(1.0 / (height * width), like=dout)))
    split = b.reshape(share, (channels * rows, 1, columns, 1, batch))
    spread = b.node("Expand", (split, b.const([channels * rows, height, columns, width, batch])))
    return b.reshape(spread, (*x.shape[1:], batch))


Level = tuple[int, int, int]  # outer elements, taps, inner elements


def _levels(windows: Windows, x: TensorType) -> tuple[Level, Level]:
    """The shapes for reducing the columns of the windows, and then their rows."""
    (batch, channels, height, _), (rows, columns) = x.shape, windows.out
    across = channels * height * columns, windows.kernel[1], batch
    return across, (channels * rows, windows.kernel[0], columns * batch)


def _taps(b: Builder, name: str, level: Level) -> tuple[str, ...]:
    if level[1] == 1:
        return (_as_tap(b, name, level),)
    return b.nodes("Split", (b.reshape(name, level),), level[1], axis=1, num_outputs=level[1])


def _as_tap(b: Builder, name: str, level: Level) -> str:
    return b.reshape(name, (level[0], 1, level[2]))


def _largest(b: Builder, taps: Sequence[str]) -> str:
    return taps[0] if len(taps) == 1 else b.node("Max", taps)


def _to_first(b: Builder, dtype: dt.DType, level: Level, x: str, largest: str, dout: str) -> str:
    """dout at the first tap of x that is not below the largest, zeros at the others, also where dout is not finite."""
    count, zero = level[1], b.const(np.zeros((), dtype.numpy))
    if count == 1:
        return dout
    whole = level[0] == 1  # else broadcasting over the taps would loop over short rows
    if whole:
        below = b.nodes("Split", (b.node("Less", (x, largest)),), count, axis=1, num_outputs=count)
    else:
        below = tuple([b.node("Less", (tap, largest)) for tap in _taps(b, x, level)])
    first, none = [b.node("Not", below[:1])], below[0]
    for miss in below[1:-1]:
        first.append(b.node("And", (none, b.node("Not", (miss,)))))
        none = b.node("And", (none, miss))
    first.append(none)
    if whole:
        return b.node("Where", (b.node("Concat", first, axis=1), dout, zero))
    return b.node("Concat", [b.node("Where", (hit, dout, zero)) for hit in first], axis=1)


def _pooled(windows: Windows, x: TensorType) -> tuple[int, ...]:
    return x.shape[1], *windows.out, x.shape[0]

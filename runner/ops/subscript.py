"""`x[key]`: the part of a value that an index selects, in operators."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.core.values import OPERATORS, Value
from runner.ops.array import Reshape
from runner.ops.index import Item, as_items
from runner.ops.index_arrays import take_arrays


def subscript(x: Value, key: object) -> Value:
    """The part of x that an index selects, as in numpy: ints, slices, `...`, None, and arrays of ints or Bool.

    Arrays are tensors, numpy's arrays or lists. The number of elements must be known before a graph runs, so a Bool
    tensor that the graph computes is no index. Raises ShapeError for other indices, for one out of range, and when
    nothing is selected.
    """
    items = as_items(key, x)
    if any(isinstance(item, np.ndarray | Value) for item in items):
        # Beside arrays, an int is an array without axes; the arrays apply to what the slices have left.
        slices = [slice(None) if not isinstance(item, slice | None) else item for item in items]
        arrays = {k: np.asarray(item) if isinstance(item, int) else item for k, item in enumerate(items)}
        return take_arrays(
            _take_slices(x, slices), {k: a for k, a in arrays.items() if not isinstance(a, slice | None)}
        )
    return _take_slices(x, items)


def _take_slices(x: Value, items: Sequence[Item]) -> Value:
    """The part that ints, slices and new axes select; an axis with a negative step is reversed afterwards."""
    ranges = [_range(item, n) for item, n in zip((i for i in items if i is not None), x.shape, strict=True)]
    bounds = [_bounds(r) for r in ranges]
    if bounds != [(0, length, 1) for length in x.shape]:
        begin, end, strides = zip(*bounds, strict=True)
        x = OPERATORS["StridedSlice"](x, begin, end, strides)
    for axis, r in enumerate(ranges):
        if r.step < 0 and len(r) > 1:
            x = OPERATORS["class"]("Gather")(axis)(x, np.arange(len(r))[::-1].copy())
    lengths, shape = iter(x.shape), list[int]()
    for item in items:
        length = 1 if item is None else next(lengths)
        if not isinstance(item, int):
            shape.append(length)
    return x if tuple(shape) == x.shape else Reshape()(x, tuple(shape))


def _bounds(r: range) -> tuple[int, int, int]:
    """Begin, end and positive step of the same positions; of none, those of an empty slice."""
    if r.step > 0:
        return r.start, r.stop, r.step
    return (r[-1], r[0] + 1, -r.step) if r else (0, 0, 1)


def _range(item: Any, length: int) -> range:
    if isinstance(item, int):
        return range(item, item + 1)
    return range(*item.indices(length))


OPERATORS["Subscript"] = subscript

"""Parts of a tensor by slices: StridedSlice with its adjoint, and what Python writes as `x[key]` and `x[key] = value`.

An index becomes one item for each axis (`as_items`). `subscript` applies slices, and operators of `gather.py` for
arrays of positions; `assigned` writes through the positions that the same index selects.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.interpreter import current, is_nested
from runner.core.lowering import ORDERED, Builder
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.source import user_line
from runner.core.values import Parameter, Symbol, Tensor, Value, as_constant, as_values, syntax
from runner.errors import ConfigError, RunnerError, ShapeError
from runner.ops.array import Cast, ExpandDims, Reshape, Transpose, require
from runner.types import Shape, TensorType, broadcast


@family
class Strided(Primitive):
    """Base: from `begin` up to `end` (not included) in steps of `strides`, which are positive.

    Negative begins and ends count from the end of the axis; axes without a begin are taken whole. Bit k of a mask is
    for axis k: `begin_mask` and `end_mask` ignore the bound, `shrink_axis_mask` takes only `begin` and removes the
    axis. A call replaces the other two masks by these: `ellipsis_mask` takes whole axes, as many as are left,
    `new_axis_mask` adds an axis of length 1.
    """

    computes: ClassVar = False

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    begin: Shape = ()
    end: Shape = ()
    strides: Shape = ()
    statics: ClassVar = ("begin", "end", "strides")

    def __post_init__(self) -> None:
        require(self.ellipsis_mask.bit_count() <= 1, "only one ellipsis is possible", ellipsis_mask=self.ellipsis_mask)

    def ranges(self, shape: Shape) -> tuple[range, ...]:
        """The positions along each axis. Raises ShapeError when there are none."""
        named = len(self.begin) == len(self.end) == len(self.strides) <= len(shape)
        rows = {"begin": self.begin, "end": self.end, "strides": self.strides}
        require(named, "begin, end and strides must name the same leading axes", shape=shape, **rows)
        require(all(s >= 1 for s in self.strides), "strides must be positive", strides=self.strides)
        given = zip(range(len(shape)), self.begin, self.end, self.strides, shape, strict=False)
        taken = [self._range(*numbers) for numbers in given]
        require(all(taken), "the slice is empty", shape=shape, **rows)
        return *taken, *map(range, shape[len(taken) :])

    def _range(self, axis: int, begin: int, end: int, stride: int, length: int) -> range:
        bit = 1 << axis
        if self.shrink_axis_mask & bit:
            return range(length)[begin : begin + 1 or None]
        low = None if self.begin_mask & bit else begin
        high = None if self.end_mask & bit else end
        return range(length)[low:high:stride]

    def block(self, x: TensorType) -> TensorType:
        """Type of the slice of x."""
        removed = {k for k in range(len(self.begin)) if self.shrink_axis_mask >> k & 1}
        return x.with_shape(*(len(r) for k, r in enumerate(self.ranges(x.shape)) if k not in removed))

    def index(self, shape: Shape) -> tuple[slice, ...]:
        """The slice as an index of numpy."""
        return tuple(slice(r.start, r.stop, r.step) for r in self.ranges(shape))


@primitive
class StridedSlice(Strided):
    """A slice of x with a stride for each axis."""

    def __call__(self, *operands: Any) -> Value:
        if not self.ellipsis_mask | self.new_axis_mask:
            return super().__call__(*operands)
        op, (x, *_) = self._with_statics(operands) if len(operands) > 1 else (self, operands)
        plain, new_axes = op.without_axes(as_values((x,))[0].ndim)
        result = plain(x)
        for axis in new_axes:
            result = ExpandDims(axis)(result)
        return result

    def without_axes(self, ndim: int) -> tuple["StridedSlice", list[int]]:
        """The slice without the two masks, for an operand with `ndim` axes, and where its result gets new axes."""
        bounds: list[tuple[int, int, int]] = []
        masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
        new_axes, length = list[int](), 0
        named = sum(not (self.ellipsis_mask | self.new_axis_mask) >> k & 1 for k in range(len(self.begin)))
        for k, bound in enumerate(zip(self.begin, self.end, self.strides, strict=True)):
            if self.ellipsis_mask >> k & 1:
                masks = {
                    m: v | (2 ** (ndim - named) - 1 << len(bounds)) * (m != "shrink_axis_mask")
                    for m, v in masks.items()
                }
                bounds += [(0, 0, 1)] * (ndim - named)
                length += ndim - named
            elif self.new_axis_mask >> k & 1:
                new_axes.append(length)
                length += 1
            else:
                masks = {m: v | (getattr(self, m) >> k & 1) << len(bounds) for m, v in masks.items()}
                bounds.append(bound)
                length += not self.shrink_axis_mask >> k & 1
        begin, end, strides = zip(*bounds, strict=True) if bounds else ((), (), ())
        return StridedSlice(**masks, begin=begin, end=end, strides=strides), new_axes

    def infer(self, x: TensorType) -> TensorType:
        return self.block(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x[self.index(x.shape)].reshape(self.block(TensorType.of(x)).shape)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (StridedSliceGrad(**self.attributes(), x_shape=inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        taken = self.ranges(b.type(x).shape)
        starts, stops, steps = ([getattr(r, name) for r in taken] for name in ("start", "stop", "step"))
        axes = list(range(len(taken)))
        block = b.node("Slice", (x, b.const(starts), b.const(stops), b.const(axes), b.const(steps)))
        return b.reshape(block, self.block(b.type(x)).shape)


@primitive
class StridedSliceGrad(Strided):
    """Adjoint of StridedSlice: the elements of dout at their positions in zeros of `x_shape`."""

    wider: ClassVar = ORDERED

    x_shape: Shape = ()

    def infer(self, dout: TensorType) -> TensorType:
        x = dout.with_shape(*self.x_shape)
        expected = self.block(x)
        require(dout == expected, "the shape of dout does not match the attributes", dout=dout, expected=expected)
        return x

    def kernel(self, dout: np.ndarray) -> np.ndarray:
        result, taken = np.zeros(self.x_shape, dout.dtype), self.ranges(self.x_shape)
        result[self.index(self.x_shape)] = dout.reshape([len(r) for r in taken])
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        same = {name: value for name, value in self.attributes().items() if name != "x_shape"}
        return (StridedSlice(**same)(douts[0]),)

    def lower(self, b: Builder, dout: str) -> str:
        taken = self.ranges(self.x_shape)
        if any(r.step > 1 for r in taken):
            # Each element gets an axis of its own, which is padded with zeros to the length of a step.
            separated = b.reshape(dout, [k for r in taken for k in (len(r), 1)])
            gaps = [k for r in taken for k in (0, r.step - 1)]
            filled = b.node("Pad", (separated, b.const([0] * len(gaps) + gaps)))
            dout = b.reshape(filled, [len(r) * r.step for r in taken])
        else:
            dout = b.reshape(dout, [len(r) for r in taken])
        ends = [n - r.start - len(r) * r.step for r, n in zip(taken, self.x_shape, strict=True)]
        # The zeros after the last element may be outside: negative padding removes them.
        return b.node("Pad", (dout, b.const([r.start for r in taken] + ends)))


# An index as one item for each axis.

Item = int | slice | None | np.ndarray | Value  # None is a new axis; arrays are of Int64, values of ints


def as_items(key: object, x: Value) -> list[Item]:
    """The index with one item for each axis of x, and None for each new axis; ints count from 0.

    A Bool array is replaced by one array of positions for each of its axes. Raises ShapeError for what is no index,
    for too many indices, and for ints out of range.
    """
    try:
        return _items(key, x)
    except RunnerError as error:
        raise located(error, x) from None


def located(error: RunnerError, x: Value) -> RunnerError:
    """An error with the operand, the scope and the line of the user's code."""
    return error.add(operand=x.type, scope=current().current_scope(), line=user_line(current().source()))


def _items(key: object, x: Value) -> list[Item]:
    given = list(key) if isinstance(key, tuple) else [key]
    given = [_checked(item) for item in given]
    axes = sum(_axes(item) for item in given)
    ellipses = [k for k, item in enumerate(given) if item is Ellipsis]
    if axes > x.ndim or len(ellipses) > 1:
        raise ShapeError("too many indices", given=len(given), axes=x.ndim)
    place = ellipses[0] if ellipses else len(given)
    given[place : place + 1] = [slice(None)] * (x.ndim - axes)
    return list(_by_axis(given, x))


def _checked(item: Any) -> Any:
    """An item as None, int, slice, `...`, array of ints or Bool, or value; a list as an array."""
    if isinstance(item, bool | np.bool_):
        if item:
            return None  # as in numpy: x[True] is x[None]
        raise ShapeError("nothing is selected", given=item, repair="an index that selects at least one element")
    if isinstance(item, int | np.integer | slice | EllipsisType | None):
        return item
    if isinstance(item, list) and any(isinstance(element, Value) for element in item):
        repair = "a tensor of them, ops.Stack()([...])"
        raise ShapeError("an index has no list of tensors", given=_name(item), repair=repair)
    array: Any = item if isinstance(item, Value) else _array(item)
    kind = array.dtype.numpy.kind if isinstance(array, Value) else array.dtype.kind
    if kind not in "iub" or array.size == 0:
        raise _no_index(item)
    if kind == "b":
        return _known_mask(array)
    return array if isinstance(array, Value) else array.astype(np.int64)


def _array(item: Any) -> np.ndarray:
    if not isinstance(item, list | np.ndarray):
        raise _no_index(item)
    try:
        return np.asarray(item)
    except ValueError:  # lists of different lengths
        raise _no_index(item) from None


def _no_index(item: Any) -> ShapeError:
    allowed = "ints, slices, ..., None, and arrays of ints or Bool"
    given = f"{_name(item)} of {item.dtype}" if hasattr(item, "dtype") else _name(item)
    repair = "index.astype(dtype.int32)" if hasattr(item, "dtype") else None
    return ShapeError("not an index of a tensor", given=given, allowed=allowed, repair=repair)


def _name(item: object) -> str:
    return type(item).__name__


def _known_mask(mask: Any) -> np.ndarray:
    """The elements of a Bool array. Raises ShapeError for a value that is only known when the graph runs."""
    if isinstance(mask, np.ndarray):
        return mask
    handle = mask if isinstance(mask, Tensor) and not isinstance(mask, Parameter) else current().lift(mask)
    if isinstance(handle, Symbol):
        what = "graph mode cannot select by a condition that is only known when the graph runs"
        why = "the number of elements would differ from run to run"
        raise ShapeError(what, given=mask.type, reason=why, repair="ops.Select, or mode=pynative")
    return np.asarray(mask.asnumpy())


def _axes(item: Any) -> int:
    """The number of axes of x that an item is for."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else 1


def _by_axis(given: list[Any], x: Value) -> Iterator[Item]:
    axis = 0
    for item in given:
        length = 0 if item is None else x.shape[axis]
        if isinstance(item, np.ndarray) and item.dtype.kind == "b":
            yield from _positions(item, x.type, axis)
        elif isinstance(item, np.ndarray):
            yield _from_zero(item, length)
        elif item is None or isinstance(item, slice | Value):
            yield item
        else:
            yield int(_from_zero(np.asarray(item), length))
        axis += _axes(item)


def _from_zero(item: np.ndarray, length: int) -> np.ndarray:
    outside = item[(item < -length) | (item >= length)]
    if outside.size:
        raise ShapeError("index out of range", given=int(outside[0]), allowed=f"{-length} to {length - 1}")
    return np.where(item < 0, item + length, item).astype(np.int64)


def _positions(mask: np.ndarray, x: TensorType, axis: int) -> tuple[np.ndarray, ...]:
    part = x.shape[axis : axis + mask.ndim]
    if mask.shape != part:
        raise ShapeError("a condition has the shape of the axes that it selects from", given=mask.shape, axes=part)
    if not mask.any():
        raise ShapeError("nothing is selected", given=f"{dt.bool_}{list(mask.shape)} without a true element")
    return tuple(positions.astype(np.int64) for positions in np.nonzero(mask))


# `x[key] = value`: a value with other elements at the positions that an index selects.


def assign(x: Value, key: object, value: Any) -> None:
    """Give the elements that an index selects another value: `assigned`, for which x stands from then on.

    Gradients pass through it in both modes. Raises ConfigError for a parameter inside of a network.
    """
    if not isinstance(x, Parameter):
        current().rebind(x, assigned(x, key, value))
        return
    if is_nested():
        what = "a network does not change elements of a parameter"
        repair = "a new value of the whole parameter: ops.TensorScatterUpdate, then self.assign(parameter, value)"
        raise ConfigError(what, parameter=x.name, line=user_line(current().source()), repair=repair)
    x.set_data(assigned(x, key, value))


def assigned(x: Value, key: object, value: Any) -> Value:
    """x with `value`, broadcast and cast to its element type, in place of what `x[key]` selects.

    A condition that only a running graph knows takes a single value. Where an index repeats a position, one of the
    values remains. Raises ShapeError for indices as in `x[key]`, and when the value does not fit.
    """
    operator = syntax.operator
    given = value if isinstance(value, Value) else as_constant(value, x)
    given = given if given.dtype is x.dtype else Cast(x.dtype)(given)
    if isinstance(key, Value) and key.dtype is dt.bool_ and key.shape == x.shape[: key.ndim] and given.size == 1:
        condition = Reshape((*key.shape, *(1,) * (x.ndim - key.ndim)))(key)
        result: Value = operator("Select")()(condition, Reshape(())(given), x)
        return result
    items, lead = _leading(as_items(key, x), x.shape)
    rows = math.prod(x.shape[:lead])
    positions = _selected_rows(np.arange(rows).reshape(x.shape[:lead]), items)
    block = x.shape[lead:]
    updates = operator("BroadcastTo")((*positions.shape, *block))(
        _without_leading_ones(given, positions.ndim + len(block))
    )
    flat = operator("TensorScatterUpdate")()(
        Reshape((rows, *block))(x), Reshape((-1, 1))(positions), Reshape((positions.size, *block))(updates)
    )
    return Reshape(x.shape)(flat)


def _leading(items: list[Item], shape: Shape) -> tuple[list[Item], int]:
    """The items without the slices at the end that take whole axes, and the number of axes that the others are for."""
    axes = len(shape)
    while items and isinstance(items[-1], slice) and items[-1].indices(shape[axes - 1]) == (0, shape[axes - 1], 1):
        items, axes = items[:-1], axes - 1
    return items, axes


def _selected_rows(places: np.ndarray, items: list[Item]) -> Any:
    """The row numbers that the items select: an array, or a value if they include one."""
    if any(isinstance(item, Value) for item in items):
        return syntax.subscript(as_constant(places, None), tuple(items))
    known: Any = tuple(items)
    return np.asarray(places[known])


def _without_leading_ones(value: Value, ndim: int) -> Value:
    """The value without axes of length 1 that are more than it may have, as numpy allows."""
    extra = value.ndim - ndim
    return Reshape(value.shape[extra:])(value) if extra > 0 and set(value.shape[:extra]) == {1} else value


# Selection by arrays of positions, as in numpy: `x[rows]`, `x[rows, columns]`, `x[:, rows, None, columns]`.

Array = np.ndarray | Value


def take_arrays(x: Value, arrays: Mapping[int, Any]) -> Value:
    """The elements of x at the positions that the arrays, by axis, have after they are broadcast against each other.

    Their common axes replace the axes of adjacent arrays; if there are others between these, they come first.
    """
    operator = syntax.operator
    axes = list(arrays)
    if len(axes) == 1:
        result: Value = operator("Gather")(axes[0])(x, _as_operand(arrays[axes[0]]))
        return result
    rest = [axis for axis in range(x.ndim) if axis not in arrays]
    common = broadcast(*map(_type, arrays.values()))
    blocks: Value = operator("GatherNd")()(_moved(x, (*axes, *rest)), _stacked([*arrays.values()], common))
    is_adjacent = axes == list(range(axes[0], axes[-1] + 1))
    before = sum(axis < axes[0] for axis in rest) if is_adjacent else 0
    count = len(common)
    return _moved(blocks, (*range(count, count + before), *range(count), *range(count + before, blocks.ndim)))


def _type(array: Array) -> TensorType:
    return array.type if isinstance(array, Value) else TensorType.of(array)


def _moved(x: Value, order: tuple[int, ...]) -> Value:
    return x if order == tuple(range(x.ndim)) else Transpose(order)(x)


def _as_operand(array: Array) -> Array:
    is_index = not isinstance(array, Value) or array.dtype in (dt.int32, dt.int64)
    return array if is_index else Cast(dt.int64)(array)


def _stacked(arrays: Sequence[Array], shape: Shape) -> Any:
    """The positions along a new last axis, as GatherNd takes them."""
    known = [array for array in arrays if not isinstance(array, Value)]
    if len(known) == len(arrays):
        return np.stack(np.broadcast_arrays(*known), -1)
    operator = syntax.operator
    columns = [Cast(dt.int64)(array) if isinstance(array, Value) else array for array in arrays]
    return operator("Stack")(-1)([operator("BroadcastTo")(shape)(column) for column in columns])


# `x[key]`: the part of a value that an index selects, in operators.


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
        x = StridedSlice()(x, begin, end, strides)
    for axis, r in enumerate(ranges):
        if r.step < 0 and len(r) > 1:
            x = syntax.operator("Gather")(axis)(x, np.arange(len(r))[::-1].copy())
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

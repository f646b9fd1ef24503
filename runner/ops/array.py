"""Operators that move elements without computing with them: other shapes, orders and element types, parts, and joins.

First what all operators use: the checks of operands, and `known`.
"""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import (
    LAST,
    ORDERED,
    Builder,
    Lowering,
    axis_last,
    elementwise_lowerings,
    physical_shape,
)
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.parts import Axes, PartRule, Parts, apart_from, each_sample, replaced
from runner.core.precision import OperandPrecision
from runner.core.values import Parameter, Tensor, Value, as_constant, require_writable
from runner.errors import ConfigError, ShapeError
from runner.types import Shape, TensorType, resolve_axes


def require(holds: bool, what: str, **rows: object) -> None:
    """Raise ShapeError with a sentence and labelled values unless the condition holds."""
    if not holds:
        raise ShapeError(what, **rows)


def require_nchw(data_format: str) -> None:
    """Raise ShapeError for another order of axes than that of MindSpore's default."""
    repair = "ops.Transpose changes the order of axes"
    require(data_format == "NCHW", "unknown data_format", given=data_format, allowed="NCHW", repair=repair)


def as_tuples(value: Any) -> Any:
    """Lists, also inner ones, as tuples: attributes are compared and hashed."""
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def known(value: Any, what: str) -> Any:
    """The number of an operand on which a shape depends. Raises ConfigError for one that only a running graph has."""
    if isinstance(value, Value) and not isinstance(value, Tensor):
        repair = "pass a Python number, or run this network with mode=pynative"
        raise ConfigError(f"{what} determines a shape, so it must be known before the graph runs", repair=repair)
    return value.asnumpy().item() if isinstance(value, Tensor) else value


# The same elements in another shape.


class Reshaping(Primitive):
    """Base: the elements of the operand, in row-major order, in the shape that `infer` returns."""

    computes: ClassVar = False

    def infer(self, x: TensorType) -> TensorType:
        raise NotImplementedError

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        """Of the axis that the result has with as many elements before it, if that has rows for each sample too."""
        ((axis,), (x,), shape) = axes, types, self.infer(types[0]).shape
        assert axis is not None
        before = math.prod(x.shape[:axis])
        places = [k for k in range(len(shape)) if math.prod(shape[:k]) == before and parts.divides(shape[k])]
        if not places or not parts.divides(x.shape[axis]):
            return None
        return PartRule(self.resized(replaced(shape, places[-1], parts), x), (axis,), (places[-1],))

    def resized(self, shape: Shape, x: TensorType) -> "Reshaping":
        """The operator with results of this shape, where x is the type of the operand of this one."""
        return self

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Reshape(inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.reshape(x, self.infer(b.type(x)).shape)

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return reshape_lowerings(x, self.infer(x).shape)


@primitive
class Reshape(Reshaping):
    """The same elements, in row-major order, in another shape; one -1 in `shape` is inferred."""

    shape: Shape = ()
    statics: ClassVar = ("shape",)

    def infer(self, x: TensorType) -> TensorType:
        known = math.prod(n for n in self.shape if n != -1)
        free = self.shape.count(-1)
        fits = x.size == known if free == 0 else free == 1 and known > 0 and x.size % known == 0
        fits = fits and all(n >= -1 for n in self.shape)
        require(fits, "the elements do not fill the shape", elements=x.size, shape=self.shape)
        return x.with_shape(*(x.size // known if n == -1 else n for n in self.shape))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.shape)

    def resized(self, shape: Shape, x: TensorType) -> Reshaping:
        return Reshape(shape)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if types[0].shape == self.infer(types[0]).shape else None


@primitive
class Flatten(Reshaping):
    """(N, ...) to (N, product of the other axes), in row-major order."""

    def infer(self, x: TensorType) -> TensorType:
        require(x.ndim >= 1, "needs at least one axis", x=x)
        return x.with_shape(x.shape[0], math.prod(x.shape[1:]))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), math.prod(x.shape[1:]))


@primitive
class ExpandDims(Reshaping):
    """x with a new axis of length 1 at `axis`."""

    axis: int = 0
    statics: ClassVar = ("axis",)

    def infer(self, x: TensorType) -> TensorType:
        require(-x.ndim - 1 <= self.axis <= x.ndim, "axis out of range", axis=self.axis, x=x)
        at = self.axis % (x.ndim + 1)
        return x.with_shape(*x.shape[:at], 1, *x.shape[at:])

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.expand_dims(x, self.axis)


@primitive
class Squeeze(Reshaping):
    """x without the axes in `axis`, which must have length 1; () removes all axes of length 1."""

    axis: int | tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "axis", as_tuples(self.axis))

    def infer(self, x: TensorType) -> TensorType:
        ones = tuple(k for k, n in enumerate(x.shape) if n == 1)
        removed = ones if self.axis == () else resolve_axes(self.axis, x.ndim)
        require(set(removed) <= set(ones), "only axes of length 1 can be removed", x=x, axis=self.axis)
        return x.with_shape(*(n for k, n in enumerate(x.shape) if k not in removed))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.infer(TensorType.of(x)).shape)

    def resized(self, shape: Shape, x: TensorType) -> Reshaping:
        """A part may have one sample, whose axis stays."""
        ones = tuple(k for k, n in enumerate(x.shape) if n == 1)
        return self if self.axis else Squeeze(ones) if ones else Reshape(shape)

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return (Lowering("plain", self.lower),)


def reshape_lowerings(x: TensorType, shape: Shape) -> tuple[Lowering, ...]:
    """The lowerings of an operator that only reshapes: batch last only if the first axis stays."""
    plain = Lowering("plain", lambda b, name: b.reshape(name, shape))
    if not shape or not x.shape or x.shape[0] != shape[0]:
        return (plain,)
    return plain, Lowering("last", lambda b, name: b.reshape(name, physical_shape(shape, LAST)), (LAST,), (LAST,))


# Axes in another order, or read backwards.


@primitive
class Transpose(Primitive):
    """x with its axes in the order `perm`."""

    computes: ClassVar = False

    perm: tuple[int, ...] = ()
    statics: ClassVar = ("perm",)

    def infer(self, x: TensorType) -> TensorType:
        require(sorted(self.perm) == list(range(x.ndim)), "perm must name each axis once", perm=self.perm, x=x)
        return x.with_shape(*(x.shape[p] for p in self.perm))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(self.perm)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        (axis,) = axes
        return PartRule(self, (axis,), (self.perm.index(axis),)) if axis is not None else None

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        back = tuple(self.perm.index(axis) for axis in range(len(self.perm)))
        return (Transpose(back)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Transpose", (x,), perm=self.perm) if self.perm else b.node("Identity", (x,))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if self.perm == tuple(range(len(self.perm))) else None


@primitive
class ReverseV2(Primitive):
    """x with the axes in `axis`, a number or a tuple, in reverse order."""

    computes: ClassVar = False

    axis: int | tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "axis", as_tuples(self.axis))

    def infer(self, x: TensorType) -> TensorType:
        if self.axis != ():
            resolve_axes(self.axis, x.ndim)
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.flip(x, self.axis)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.axis] if isinstance(self.axis, int) else self.axis)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        axes = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        if not axes:
            return b.node("Identity", (x,))
        ends = b.const([np.iinfo(np.int64).min] * len(axes))
        return b.node("Slice", (x, b.const([-1] * len(axes)), ends, b.const(axes), b.const([-1] * len(axes))))


# Blocks of a tensor, and elements around it.


@primitive
class Slice(Primitive):
    """The block of `size` elements per axis that starts at `begin`."""

    computes: ClassVar = False

    begin: Shape = ()
    size: Shape = ()
    statics: ClassVar = ("begin", "size")

    def infer(self, x: TensorType) -> TensorType:
        fits = len(self.begin) == len(self.size) == x.ndim and all(
            b >= 0 and s >= 0 and b + s <= n for b, s, n in zip(self.begin, self.size, x.shape, strict=True)
        )
        require(fits, "the block is not inside of the tensor", x=x, begin=self.begin, size=self.size)
        return x.with_shape(*self.size)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x[tuple(slice(b, b + s) for b, s in zip(self.begin, self.size, strict=True))]

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        (axis,) = axes
        if axis is None or self.size[axis] != types[0].shape[axis]:
            return None
        return PartRule(Slice(self.begin, replaced(self.size, axis, parts)), (axis,), (axis,))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        ends = zip(inputs[0].shape, self.begin, self.size, strict=True)
        return (Pad(tuple((b, n - b - s) for n, b, s in ends))(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        ends = [start + size for start, size in zip(self.begin, self.size, strict=True)]
        return b.node("Slice", (x, b.const(list(self.begin)), b.const(ends)))

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        moved = Slice((*self.begin[1:], *self.begin[:1]), (*self.size[1:], *self.size[:1]))
        last = Lowering("last", moved.lower, (LAST,), (LAST,))
        return (Lowering("plain", self.lower), *[last] * (x.ndim > 1))


@primitive
class Pad(Primitive):
    """x padded with zeros, or with another `value`; `paddings` has (before, after) for each axis."""

    computes: ClassVar = False
    wider: ClassVar = ORDERED

    paddings: tuple[tuple[int, int], ...] = ()
    value: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "paddings", as_tuples(self.paddings))

    def infer(self, x: TensorType) -> TensorType:
        fits = len(self.paddings) == x.ndim and all(low >= 0 and high >= 0 for low, high in self.paddings)
        require(fits, "one pair of non-negative paddings per axis", x=x, paddings=self.paddings)
        if x.dtype.numpy.kind in "iu":
            limits = np.iinfo(x.dtype.numpy)
            allowed = f"{limits.min} to {limits.max}"
            require(limits.min <= self.value <= limits.max, "no value of x", x=x, value=self.value, allowed=allowed)
        return x.with_shape(*(low + n + high for n, (low, high) in zip(x.shape, self.paddings, strict=True)))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, self.paddings, constant_values=x.dtype.type(self.value))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [k for k, pair in enumerate(self.paddings) if pair != (0, 0)])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Slice(tuple(low for low, _ in self.paddings), inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        pads = b.const([low for low, _ in self.paddings] + [high for _, high in self.paddings])
        value = (b.const(np.array(self.value, b.type(x).dtype.numpy)),) if self.value else ()
        return b.node("Pad", (x, pads, *value))

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        moved = Pad((*self.paddings[1:], *self.paddings[:1]), value=self.value)
        last = Lowering("last", moved.lower, (LAST,), (LAST,))
        return (Lowering("plain", self.lower), *[last] * (x.ndim > 1))


# Tensors joined along an axis, and split.


@primitive
class Concat(Primitive):
    """Tensors concatenated along `axis`."""

    computes: ClassVar = False

    axis: int = 0

    def infer(self, *xs: TensorType) -> TensorType:
        require(len(xs) > 0, "needs at least one tensor")
        require(-xs[0].ndim <= self.axis < xs[0].ndim, "axis out of range", axis=self.axis, x=xs[0])
        at = self.axis % xs[0].ndim
        rest = {(x.dtype, x.ndim, x.shape[:at], x.shape[at + 1 :]) for x in xs}
        require(len(rest) == 1, "other axes and element types must agree", axis=self.axis)
        return xs[0].with_shape(*xs[0].shape[:at], sum(x.shape[at] for x in xs), *xs[0].shape[at + 1 :])

    def kernel(self, *xs: np.ndarray) -> np.ndarray:
        return np.concatenate(xs, self.axis)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.axis])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        at = self.axis % inputs[0].ndim
        ends = np.cumsum([x.shape[at] for x in inputs]).tolist()
        starts = [0, *ends[:-1]]
        return [_slice_gradient(douts[0], at, start, x) for start, x in zip(starts, inputs, strict=True)]

    def lower(self, b: Builder, *xs: str) -> str:
        return b.node("Concat", xs, axis=self.axis)

    def lowerings(self, *xs: TensorType) -> Sequence[Lowering]:
        plain, ndim = Lowering("plain", self.lower), xs[0].ndim
        if ndim < 2:
            return (plain,)
        moved = Concat(axis_last(self.axis, ndim))
        return plain, Lowering("last", moved.lower, (LAST,) * len(xs), (LAST,))


def _slice_gradient(dout: Value, axis: int, start: int, like: Value) -> Gradient:
    begin = tuple(start if k == axis else 0 for k in range(like.ndim))
    return lambda: Slice(begin, like.shape)(dout)


@primitive
class Stack(Primitive):
    """Tensors of one type joined along a new axis."""

    computes: ClassVar = False

    axis: int = 0

    def infer(self, *xs: TensorType) -> TensorType:
        require(len(xs) > 0, "needs at least one tensor")
        require(len(set(xs)) == 1, "all tensors must have one type", given=", ".join(map(str, xs)))
        at = self._at(xs[0].ndim)
        return xs[0].with_shape(*xs[0].shape[:at], len(xs), *xs[0].shape[at:])

    def kernel(self, *xs: np.ndarray) -> np.ndarray:
        return np.stack(xs, self.axis)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        axis = next(axis for axis in axes if axis is not None)
        return each_sample(self, axes, (axis,) * len(axes), (axis + (self._at(types[0].ndim) <= axis),))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return tuple(Unstack(self.axis)(douts[0]))

    def lower(self, b: Builder, *xs: str) -> str:
        shape, at = b.type(xs[0]).shape, self._at(b.type(xs[0]).ndim)
        return b.node("Concat", [b.reshape(x, (*shape[:at], 1, *shape[at:])) for x in xs], axis=at)

    def _at(self, ndim: int) -> int:
        require(-ndim - 1 <= self.axis <= ndim, "axis out of range", axis=self.axis, allowed=f"{-ndim - 1} to {ndim}")
        return self.axis % (ndim + 1)


class TupleOutput(Primitive):
    """Base of operators that always return a tuple, even of a single tensor."""

    computes: ClassVar = False

    def __call__(self, *operands: Any) -> Any:
        outputs = super().__call__(*operands)
        return outputs if isinstance(outputs, tuple) else (outputs,)


@primitive
class Split(TupleOutput):
    """A tuple of `output_num` equal parts of a tensor along `axis`. The adjoint is Concat."""

    axis: int = 0
    output_num: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (axis,) = resolve_axes(self.axis, x.ndim)
        fits = self.output_num >= 1 and x.shape[axis] % self.output_num == 0
        require(fits, "the axis does not split evenly", x=x, axis=self.axis, output_num=self.output_num)
        part = x.with_shape(*x.shape[:axis], x.shape[axis] // self.output_num, *x.shape[axis + 1 :])
        return (part,) * self.output_num

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(x, self.output_num, self.axis))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.axis], self.output_num)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Concat(self.axis)(*douts),)

    def lower(self, b: Builder, x: str) -> tuple[str, ...]:
        return split_evenly(b, x, self.axis % b.type(x).ndim, self.output_num)


@primitive
class Unstack(TupleOutput):
    """A tuple of the tensors along `axis`, without that axis. The adjoint is Stack."""

    axis: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (axis,) = resolve_axes(self.axis, x.ndim)
        require(x.shape[axis] >= 1, "the axis has length 0", x=x, axis=self.axis)
        return (x.with_shape(*x.shape[:axis], *x.shape[axis + 1 :]),) * x.shape[axis]

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.moveaxis(x, self.axis, 0))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        ((axis,), (unstacked,)) = axes, resolve_axes(self.axis, types[0].ndim)
        if axis is None or axis == unstacked:
            return None
        return PartRule(self, (axis,), (axis - (unstacked < axis),) * types[0].shape[unstacked])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Stack(self.axis % inputs[0].ndim)(*douts),)

    def lower(self, b: Builder, x: str) -> tuple[str, ...]:
        types = self.infer(b.type(x))
        axis = self.axis % b.type(x).ndim
        return tuple(b.reshape(part, types[0].shape) for part in split_evenly(b, x, axis, len(types)))


def split_evenly(b: Builder, x: str, axis: int, count: int) -> tuple[str, ...]:
    """Lower a split into `count` equal parts, by Slices: unused ones can be removed, unused outputs of a Split not."""
    length = b.type(x).shape[axis] // count
    ends = [(k * length, (k + 1) * length) for k in range(count)]
    return tuple(b.node("Slice", (x, b.const([low]), b.const([high]), b.const([axis]))) for low, high in ends)


# The same elements in the same places: another type, another handle, only the shape.


@primitive
class Cast(Primitive):
    """The values converted to another element type; floats are truncated to ints."""

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False

    elementwise: ClassVar = True

    dtype: dt.DType = dt.float32
    statics: ClassVar = ("dtype",)

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(dt.of(self.dtype))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.astype(self.dtype.numpy)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Cast(inputs[0].dtype)(douts[0]) if inputs[0].dtype.is_float else None,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Cast", (x,), to=self.dtype)

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return elementwise_lowerings(self.lower, x)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if types[0].dtype is self.dtype else None


@primitive
class DynamicShape(Primitive):
    """The lengths of the axes of x as Int64 (ndim,), read when the graph is executed."""

    onnx: ClassVar = "Shape"
    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False
    is_flat: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(dt.int64, (x.ndim,))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.array(x.shape, np.int64)

    def lower(self, b: Builder, x: str) -> str:
        return b.node(self.onnx, (x,))


@primitive
class Identity(Primitive):
    """x itself."""

    elementwise: ClassVar = True
    computes: ClassVar = False
    precision: ClassVar = OperandPrecision.NOTHING

    def infer(self, x: TensorType) -> TensorType:
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0],)

    def lower(self, b: Builder, x: str) -> str:
        """A node that optimised graphs do not contain."""
        return b.node("Identity", (x,))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0


# Operands of composed operators: as values, and what composed operators require of them.


def as_value(operand: Any) -> Value:
    """A tensor of a number, an array or a list; values unchanged."""
    return operand if isinstance(operand, Value) else as_constant(operand, None)


def as_tensors(operands: tuple[Any, ...]) -> list[Value]:
    """Operands that are given one by one, or as one tuple or list, as in MindSpore. Raises ShapeError for none."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    require(len(given) > 0, "needs at least one tensor")
    return [as_value(operand) for operand in given]


def require_floats(**values: Value) -> None:
    """Raise ShapeError unless all values are floats of one element type."""
    dtypes = {value.dtype for value in values.values()}
    types = {name: value.type for name, value in values.items()}
    require(len(dtypes) == 1 and dtypes.pop().is_float, "needs floats of one element type", **types)


def as_written(parameter: Parameter, value: Any) -> Value:
    """A value in the element type of the parameter that it changes. Raises ShapeError when it is not converted."""
    given = value if isinstance(value, Value) else as_constant(value, parameter)
    require_writable(parameter.name, parameter.type, given.type)
    return given.astype(parameter.dtype, copy=False)


def require_parameter(operand: Any) -> Parameter:
    """The parameter that an operator updates. Raises ShapeError for other operands."""
    given = getattr(operand, "type", type(operand).__name__)
    require(isinstance(operand, Parameter), "the first operand must be a Parameter, which it updates", given=given)
    assert isinstance(operand, Parameter)
    return operand

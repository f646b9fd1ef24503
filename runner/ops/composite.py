"""Functions composed of operators: MindSpore's `ops.composite`."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.interpreter import current
from runner.core.values import Operand, Parameter, Tensor, Value, require_writable
from runner.errors import ConfigError, ShapeError
from runner.host.lazy import reference_attribute
from runner.ops.array import Cast, ExpandDims, Reshape, Transpose, as_value, require
from runner.ops.distributions import (
    Gamma,
    Multinomial,
    Poisson,
    StandardLaplace,
    StandardNormal,
    UniformInt,
    UniformReal,
    full_shape,
)
from runner.ops.elementwise.arithmetic import Log, Sqrt, Square
from runner.ops.elementwise.compare import Greater, Less, Maximum, Minimum, Select
from runner.ops.elementwise.division import without_zeros
from runner.ops.gradient import StopGradient
from runner.ops.indexing.gather import TopK
from runner.ops.matrices import BatchMatMul, MatMul
from runner.ops.random import uniform as draws
from runner.ops.reduce import BroadcastTo, ReduceSum
from runner.types import Shape, broadcast, resolve_axes

__getattr__ = partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has modules below it: runner/mindspore/addresses.py


def clip_by_value(x: Value, clip_value_min: Operand, clip_value_max: Operand) -> Value:
    """x limited to the range of the two bounds (numbers, or tensors that broadcast against x).

    Where x equals a bound the gradient goes to x. If `clip_value_min` is larger than `clip_value_max`, it takes
    precedence.
    """
    return Maximum()(Minimum()(x, clip_value_max), clip_value_min)


def clip_by_global_norm(
    x: Sequence[Value], clip_norm: float = 1.0, use_norm: Value | float | None = None
) -> tuple[Value, ...]:
    """Tensors scaled so that the root of the sum of all their squares is at most `clip_norm`.

    `use_norm` is that root, if it is known. Raises ShapeError when `clip_norm` is not positive, or x is empty.
    """
    require(clip_norm > 0, "clip_norm must be positive", given=clip_norm)
    require(len(x) > 0, "needs at least one tensor")
    norm = use_norm
    if norm is None:
        squares = [ReduceSum()(Square()(Cast(dt.float32)(value))) for value in x]
        norm = Sqrt()(sum(squares[1:], squares[0]))
    share = clip_norm / Maximum()(norm, float(clip_norm))
    return tuple(value * Cast(value.dtype)(share) for value in x)


def count_nonzero(
    x: Value, axis: int | tuple[int, ...] = (), keep_dims: bool = False, dtype: dt.DType = dt.int32
) -> Value:
    """The number of elements that are not 0 over `axis` (all axes by default)."""
    return Cast(dtype)(ReduceSum(keep_dims, axis)(Cast(dt.float32)(x != 0)))


def repeat_elements(x: Value, rep: int, axis: int = 0) -> Value:
    """Each element along `axis` repeated `rep` times, as `numpy.repeat`."""
    require(isinstance(rep, int) and rep >= 1, "rep must be a positive number", given=rep)
    (at,) = resolve_axes(axis, x.ndim)
    spread = BroadcastTo((*x.shape[: at + 1], rep, *x.shape[at + 1 :]))(ExpandDims(at + 1)(x))
    return Reshape((*x.shape[:at], x.shape[at] * rep, *x.shape[at + 1 :]))(spread)


def sequence_mask(lengths: Value, maxlen: int | None = None) -> Value:
    """Bool (*lengths.shape, maxlen): whether a position lies within the length.

    Without `maxlen`, the largest of the lengths, which must be known before the graph runs. Raises ConfigError.
    """
    longest = int(lengths.asnumpy().max(initial=0)) if maxlen is None else int(maxlen)  # type: ignore[attr-defined]
    steps = Tensor(np.arange(longest, dtype=lengths.dtype.numpy))
    return Less()(steps, ExpandDims(lengths.ndim)(lengths))


def matmul(x1: Operand, x2: Operand, dtype: dt.DType | None = None) -> Value:
    """The matrix product with the rules of `numpy.matmul`: leading axes are broadcast, vectors are rows or columns."""
    first, second = as_value(x1), as_value(x2)
    require(first.ndim > 0 and second.ndim > 0, "scalars have no matrix product", x1=first.type, x2=second.type)
    rows = first if first.ndim > 1 else ExpandDims(0)(first)
    columns = second if second.ndim > 1 else ExpandDims(1)(second)
    product = MatMul()(rows, columns) if rows.ndim == columns.ndim == 2 else _stacks(rows, columns)
    if first.ndim == 1:
        product = Reshape((*product.shape[:-2], product.shape[-1]))(product)
    if second.ndim == 1:
        product = Reshape(product.shape[:-1])(product)
    return Cast(dtype)(product) if dtype is not None else product


def _stacks(x: Value, y: Value) -> Value:
    """The product of two stacks of matrices whose leading axes are broadcast."""
    lead = broadcast(x.type.with_shape(*x.shape[:-2]), x.type.with_shape(*y.shape[:-2]))
    stacks = [BroadcastTo((*lead, *v.shape[-2:]))(v) if v.shape[:-2] != lead else v for v in (x, y)]
    return BatchMatMul()(*stacks)


def tensor_dot(x1: Value, x2: Value, axes: int | Sequence[Any]) -> Value:
    """The sum of products over axes of both, as `numpy.tensordot`.

    `axes` is a number n, for the last n axes of x1 and the first n of x2, or the axes of each.
    """
    if isinstance(axes, int):
        require(0 <= axes <= min(x1.ndim, x2.ndim), "too many axes", axes=axes, x1=x1.type, x2=x2.type)
        summed = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        first, second = ((one,) if isinstance(one, int) else tuple(one) for one in axes)
        summed = tuple(a % x1.ndim for a in first), tuple(a % x2.ndim for a in second)
    lengths = tuple(tuple(x.shape[a] for a in part) for x, part in zip((x1, x2), summed, strict=True))
    require(lengths[0] == lengths[1], "the summed axes differ", axes=axes, x1=x1.type, x2=x2.type)
    left, right = (tuple(k for k in range(x.ndim) if k not in part) for x, part in zip((x1, x2), summed, strict=True))
    rows = Reshape((_size(x1, left), math.prod(lengths[0])))(Transpose((*left, *summed[0]))(x1))
    columns = Reshape((math.prod(lengths[0]), _size(x2, right)))(Transpose((*summed[1], *right))(x2))
    shape = (*(x1.shape[a] for a in left), *(x2.shape[a] for a in right))
    return Reshape(shape)(MatMul()(rows, columns))


def _size(x: Value, axes: Shape) -> int:
    return math.prod(x.shape[a] for a in axes)


def dot(x1: Value, x2: Value) -> Value:
    """The sum of products over the last axis of x1 and the last but one of x2; both have two axes or more."""
    require(x1.ndim >= 2 and x2.ndim >= 2, "needs two axes or more", x1=x1.type, x2=x2.type)
    return tensor_dot(x1, x2, ((x1.ndim - 1,), (x2.ndim - 2,)))


def batch_dot(x1: Value, x2: Value, axes: int | Sequence[int] | None = None) -> Value:
    """Of each sample, the sum of products over one axis of x1 and one of x2: (N, ...), (N, ...) to (N, rest, rest).

    `axes` are the two axes, not 0; by default the last of x1, and the last but one of x2 (the last, if it has two).
    Vectors give (N, 1).
    """
    default = x1.ndim - 1, x2.ndim - 1 if x2.ndim == 2 else x2.ndim - 2
    pair = default if axes is None else (axes, axes) if isinstance(axes, int) else tuple(axes)
    rows = {"x1": x1.type, "x2": x2.type, "axes": axes}
    require(x1.ndim >= 2 and x2.ndim >= 2 and len(pair) == 2, "needs (N, ...) and two axes", **rows)
    a, b = pair[0] % x1.ndim, pair[1] % x2.ndim
    fits = a > 0 and b > 0 and x1.shape[0] == x2.shape[0] and x1.shape[a] == x2.shape[b]
    require(fits, "batch or summed axes differ, or the batch is summed", **rows)
    left, right = (tuple(k for k in range(1, x.ndim) if k != at) for x, at in ((x1, a), (x2, b)))
    count, depth = x1.shape[0], x1.shape[a]
    first = Reshape((count, _size(x1, left), depth))(Transpose((0, *left, a))(x1))
    second = Reshape((count, depth, _size(x2, right)))(Transpose((0, b, *right))(x2))
    shape = (count, *(x1.shape[k] for k in left), *(x2.shape[k] for k in right))
    return Reshape(shape if len(shape) > 1 else (count, 1))(BatchMatMul()(first, second))


def normal(shape: Shape, mean: Operand, stddev: Operand, seed: int | None = None) -> Value:
    """Numbers of the normal distribution: Float32, in `shape` broadcast with mean and deviation."""
    return StandardNormal(seed or 0)(full_shape(shape, mean, stddev)) * as_value(stddev) + as_value(mean)


def uniform(
    shape: Shape, minval: Operand, maxval: Operand, seed: int | None = None, dtype: dt.DType = dt.float32
) -> Value:
    """Numbers from minval up to, not including, maxval: Float32 or, with `dtype` Int32, whole ones."""
    allowed = "Float32, Int32"
    require(dtype in (dt.float32, dt.int32), "unknown element type of random numbers", dtype=dtype, allowed=allowed)
    full = full_shape(shape, minval, maxval)
    if dtype is dt.int32:
        return UniformInt(seed or 0)(full, minval, maxval)
    low, high = as_value(minval), as_value(maxval)
    return UniformReal(seed or 0)(full) * (high - low) + low


def laplace(shape: Shape, mean: Operand, lambda_param: Operand, seed: int | None = None) -> Value:
    """Numbers of the Laplace distribution: Float32, in `shape` broadcast with mean and scale."""
    drawn: Value = StandardLaplace(seed or 0)(full_shape(shape, mean, lambda_param)) * as_value(lambda_param)
    return drawn + as_value(mean)


def gamma(shape: Shape, alpha: Operand, beta: Operand, seed: int | None = None) -> Value:
    """Numbers of the gamma distribution of shape alpha and scale beta: Float32, in `shape` broadcast with both."""
    return Gamma(seed or 0)(shape, alpha, beta)


def poisson(shape: Shape, mean: Operand, seed: int | None = None) -> Value:
    """Numbers of the Poisson distribution: Int32, in `shape` broadcast with the mean."""
    return Poisson(seed or 0)(shape, mean)


def multinomial(inputs: Value, num_sample: int, replacement: bool = True, seed: int | None = None) -> Value:
    """`num_sample` class numbers (Int32) for each row of probabilities (C,) or (N, C), which need not add to 1.

    Without replacement, different ones: those that come first when each class waits for a time of its rate.
    """
    if replacement:
        return Multinomial(seed or 0)(inputs, num_sample)
    few = num_sample <= inputs.shape[-1]
    require(few, "without replacement, there are as many as classes", num_sample=num_sample, inputs=inputs.type)
    waits = Log()(1.0 - draws(inputs.shape, seed or 0)) / without_zeros(inputs)  # negative
    possible = Select()(Greater()(inputs, 0.0), waits, Tensor(-math.inf, dt.float32))
    return TopK()(possible, num_sample)[1]


# Assignments of parameters, and the order of what a step does.
#
# Operators run in the order of the program, so a read after an assignment sees the new value
# (`runner/core/interpreter.py`). `depend` is for scripts that state this order themselves.


class Assign:
    """(variable, value) to the new value of the variable, a Parameter, which the call assigns: the value itself.

    The value is a tensor of the variable's shape, or a number; its element type is converted to that of the variable.
    No gradient passes through an assignment. Raises ConfigError when the variable is no Parameter, ShapeError for a
    value of another shape, or of an element type that is not converted, such as Float32 for Float16.
    """

    def __call__(self, variable: Parameter, value: Operand) -> Value:
        if not isinstance(variable, Parameter):
            repair = "pass the Parameter itself, such as self.weight"
            what = f"{type(self).__name__} takes a Parameter and its value"
            raise ConfigError(what, given=type(variable).__name__, repair=repair)
        with current().use_precision(None):
            new: Value = StopGradient()(self.new_value(variable, _like(variable, value)))
        if new.shape != variable.shape:
            rows = {"parameter": variable.name, "has": variable.type, "given": getattr(value, "type", value)}
            raise ShapeError(f"{type(self).__name__} keeps the shape of the parameter", **rows)
        current().assign(variable, new)
        return new

    def new_value(self, variable: Value, value: Operand) -> Operand:
        """The value that is assigned."""
        return value


class AssignAdd(Assign):
    """As `Assign`: variable + value."""

    def new_value(self, variable: Value, value: Operand) -> Operand:
        return variable + value


class AssignSub(Assign):
    """As `Assign`: variable - value."""

    def new_value(self, variable: Value, value: Operand) -> Operand:
        return variable - value


def _like(variable: Parameter, value: Operand) -> Any:
    """The value in the type of the variable, a number in its shape too."""
    if isinstance(value, Value):
        require_writable(variable.name, variable.type, value.type)
        return value if value.dtype is variable.dtype else Cast(variable.dtype)(value)
    array = np.asarray(value, variable.dtype.numpy)
    return array if array.shape else np.full(variable.shape, array)


def assign(variable: Parameter, value: Operand) -> Value:
    """Assign a parameter, and return its new value."""
    return Assign()(variable, value)


class Depend:
    """(value, expr) to the value. What `expr` has computed or assigned was done before: Python evaluates it first."""

    def __call__(self, value: Any, *expr: Any) -> Any:
        return value


class ControlDepend:
    """(src, dst) to True: `src` was executed before `dst`, because the program has them in this order."""

    def __init__(self, depend_mode: int = 0) -> None:
        self.depend_mode = depend_mode

    def __call__(self, src: Any, dst: Any) -> bool:
        return True


depend = Depend()
control_depend = ControlDepend()

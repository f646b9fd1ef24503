"""`mindspore.numpy`: products of tensors, and functions of neighbouring elements."""

from typing import Any

from runner import dtype as dt
from runner.core.value import Value
from runner.errors import ShapeError
from runner.mindspore.numpy.array_ops import broadcast_to, expand_dims, flip, moveaxis
from runner.mindspore.numpy.concatenation import concatenate
from runner.mindspore.numpy.conversion import cast, in_floats, promoted, tensor
from runner.mindspore.numpy.reductions import average
from runner.ops import composite
from runner.ops.conv import Conv2D
from runner.types import resolve_axes

__all__ = [
    "convolve",
    "cov",
    "cross",
    "diff",
    "dot",
    "ediff1d",
    "inner",
    "kron",
    "matmul",
    "outer",
    "tensordot",
    "trapz",
]


def _floats(*operands: Any) -> tuple[list[Value], dt.DType]:
    """Operands in floats, and the element type of their product."""
    kept = promoted(*operands)[0].dtype
    return in_floats(*operands), kept


def matmul(x1: Any, x2: Any, dtype: Any = None) -> Value:
    """The matrix product with the rules of `numpy.matmul`: leading axes broadcast, vectors are rows or columns."""
    (first, second), kept = _floats(x1, x2)
    return cast(composite.matmul(first, second), kept if dtype is None else dtype)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Value:
    """The sum of products over axes: the last n of a and the first n of b, or the axes of each."""
    (first, second), kept = _floats(a, b)
    if not first.ndim or not second.ndim:
        return cast(first * second, kept)
    return cast(composite.tensor_dot(first, second, axes), kept)


def inner(a: Any, b: Any) -> Value:
    """The sum of products over the last axis of both; scalars multiply."""
    axes = (-1,), (-1,)
    return tensordot(a, b, axes)


def dot(a: Any, b: Any) -> Value:
    """The sum of products over the last axis of a and the last but one of b (the only one of a vector)."""
    return tensordot(a, b, ((-1,), (-2 if tensor(b).ndim > 1 else -1,)))


def outer(a: Any, b: Any) -> Value:
    """The products of all elements of a (rows) with all of b (columns)."""
    return tensor(a).reshape(-1, 1) * tensor(b).reshape(1, -1)


def kron(a: Any, b: Any) -> Value:
    """The Kronecker product: b in place of every element of a, multiplied by it."""
    first, second = promoted(a, b)
    ndim = first.ndim if first.ndim > second.ndim else second.ndim
    shapes = [(1,) * (ndim - x.ndim) + x.shape for x in (first, second)]
    rows = first.reshape([length for one in shapes[0] for length in (one, 1)])
    columns = second.reshape([length for one in shapes[1] for length in (1, one)])
    return (rows * columns).reshape([m * n for m, n in zip(*shapes, strict=True)])


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Value:
    """The vector product along the axes, which have 2 or 3 elements; of pairs only its third component.

    Raises ShapeError for other lengths.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    (first, second), kept = _floats(a, b)
    first, second = moveaxis(first, axisa, -1), moveaxis(second, axisb, -1)
    lengths = first.shape[-1], second.shape[-1]
    if not set(lengths) <= {2, 3}:
        raise ShapeError("vectors have 2 or 3 elements", a=first.type, b=second.type)
    x, y = ([v[..., k] for k in range(v.shape[-1])] + [v[..., 0] * 0] for v in (first, second))
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    if lengths == (2, 2):
        return cast(parts[2], kept)
    return cast(moveaxis(concatenate([expand_dims(part, -1) for part in parts], -1), -1, axisc), kept)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Value:
    """The n-th differences of neighbours along an axis, between `prepend` and `append`; with n = 0 the tensor itself.

    Raises ShapeError when n is negative, or the axis too short.
    """
    x = tensor(a)
    if n == 0:
        return x
    (axis,) = resolve_axes(axis, x.ndim)
    parts = [tensor(part) for part in (prepend, x, append) if part is not None]
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    joined = concatenate([part if part.ndim else broadcast_to(part, one) for part in parts], axis)
    if not 0 < n < joined.shape[axis]:
        raise ShapeError("there are no such differences", n=n, axis=axis, x=joined.type)
    for _ in range(n):
        before = (slice(None),) * axis
        joined = joined[(*before, slice(1, None))] - joined[(*before, slice(None, -1))]
    return cast(joined, x.dtype)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Value:
    """The differences of neighbours of all elements in order, between `to_begin` and `to_end`."""
    x = tensor(ary)
    parts = [None if part is None else tensor(part) for part in (to_begin, diff(x.reshape(-1)), to_end)]
    return concatenate([cast(part, x.dtype).reshape(-1) for part in parts if part is not None])


def trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Value:
    """The integral along an axis by the trapezoidal rule, with the places x or the distance dx."""
    (values,) = in_floats(y)
    (axis,) = resolve_axes(axis, values.ndim)
    values = moveaxis(values, axis, -1)
    widths = tensor(dx) if x is None else tensor(x)
    if x is not None:
        widths = diff(widths if widths.ndim == 1 else moveaxis(widths, axis, -1))
    areas = (values[..., 1:] + values[..., :-1]) / 2.0 * cast(widths, values.dtype)
    return areas.sum(-1)


def convolve(a: Any, v: Any, mode: str = "full") -> Value:
    """The convolution of two vectors: all places ("full"), as many as the longer has ("same"), or complete ones.

    Raises ShapeError for another mode.
    """
    if mode not in ("full", "same", "valid"):
        raise ShapeError("no such mode", mode=mode, allowed="full, same, valid")
    (first, second), kept = _floats(a, v)
    first, second = first.reshape(-1), second.reshape(-1)
    if first.size < second.size:
        first, second = second, first
    length = second.size
    sides = {"full": (length - 1, length - 1), "same": (length // 2, length - 1 - length // 2), "valid": (0, 0)}
    before, after = ([cast(tensor([0.0] * count), first.dtype)] if count else [] for count in sides[mode])
    padded = concatenate([*before, first, *after])
    kernel = flip(second).reshape((1, 1, 1, length))
    result = Conv2D(1, (1, length), pad_mode="valid")(padded.reshape((1, 1, 1, padded.size)), kernel)
    return cast(result.reshape(-1), kept)


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Value:
    """The covariances of the rows of m and y, or of their columns if `rowvar` is false.

    `fweights` says how often an observation counts, `aweights` how much. Sums are divided by the number of
    observations less `ddof`: 1 by default, 0 with `bias`.
    """
    given = [cast(tensor(each), dt.float32) for each in (m, y) if each is not None]
    rows = [x.reshape(1, -1) if x.ndim < 2 else x if rowvar else x.T for x in given]
    variables = concatenate(rows, 0)
    often, much = (None if w is None else cast(tensor(w), dt.float32) for w in (fweights, aweights))
    weights = tensor([1.0] * variables.shape[1])
    for each in (often, much):
        weights = weights if each is None else weights * each
    less = (0 if bias else 1) if ddof is None else ddof
    total = weights.sum()
    divisor = total - less * (1.0 if much is None else (weights * much).sum() / total)
    centred = variables - expand_dims(average(variables, 1, weights), -1)
    return cast(matmul(centred, (centred * weights).T) / divisor, dtype).squeeze()

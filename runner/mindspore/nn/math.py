"""Mathematical functions as layers: sums of exponentials, moments, gamma functions, norms, and matrices."""

import math

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.validation.arguments import above, flag, whole

Axis = int | tuple[int, ...] | list[int]

# Lanczos, "A precision approximation of the gamma function" (1964), with g = 7 and nine terms (Godfrey's numbers).
LANCZOS = 7.0
FIRST = 0.99999999999980993227684700473478
TERMS = (
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
)


class ReduceLogSumExp(Cell):
    """Logarithm of the sum of exp(x) over `axis`, () for all axes, computed without overflow."""

    def __init__(self, axis: Axis, keep_dims: bool = False) -> None:
        super().__init__()
        flag({"layer": type(self).__name__}, keep_dims=keep_dims)
        self.axis = tuple(axis) if isinstance(axis, list) else axis
        self.exp, self.log, self.largest = ops.Exp(), ops.Log(), ops.ReduceMax(True, self.axis)
        self.sum_kept, self.sum = ops.ReduceSum(True, self.axis), ops.ReduceSum(keep_dims, self.axis)

    def construct(self, x: Value) -> Value:
        largest = self.largest(x)
        total = self.log(self.sum_kept(self.exp(x - largest))) + largest
        return total if self.sum.keep_dims else ops.Reshape()(total, self.sum.infer(x.type).shape)


class Range(Cell):
    """start, start + delta, ... below `limit`, Int32 if all three are ints, else Float32; no operands.

    With one number, from 0 up to it. Raises ConfigError for a `delta` of 0 and when there are no numbers.
    """

    def __init__(self, start: float, limit: float | None = None, delta: float = 1) -> None:
        super().__init__()
        first, last = (0, start) if limit is None else (start, limit)
        numbers = {"start": start, "limit": limit, "delta": delta}
        count = math.ceil((last - first) / delta) if delta else 0
        if count < 1:
            raise ConfigError("the range has no numbers", layer="Range", **numbers)
        whole = all(isinstance(n, int) for n in (first, last, delta))
        self.dtype = dt.int32 if whole else dt.float32
        self.numbers = Tensor((first + np.arange(count) * delta).astype(self.dtype.numpy))

    def construct(self) -> Value:
        return self.numbers


class Moments(Cell):
    """Mean and biased variance over `axis`, by default all axes; in Float32 for Float16, then rounded."""

    def __init__(self, axis: Axis | None = None, keep_dims: bool | None = None) -> None:
        super().__init__()
        self.axis = () if axis is None else tuple(axis) if isinstance(axis, list) else axis
        self.keep_dims = bool(keep_dims)
        self.mean_kept, self.mean = ops.ReduceMean(True, self.axis), ops.ReduceMean(self.keep_dims, self.axis)
        self.square = ops.Square()

    def construct(self, x: Value) -> tuple[Value, Value]:
        wide = x.astype(dt.float32) if x.dtype is dt.float16 else x
        variance = self.mean(self.square(wide - self.mean_kept(wide)))
        return self.mean(wide).astype(x.dtype), variance.astype(x.dtype)


class LGamma(Cell):
    """Logarithm of |gamma(x)|, infinite at 0, -1, -2, ... and at both infinities."""

    def construct(self, x: Value) -> Value:
        _require_floats(self, x)
        size, one = ops.Abs()(x), Tensor(1.0, x.dtype)
        is_pole = ops.LogicalOr()(ops.LogicalAnd()(x <= 0.0, ops.Equal()(ops.Floor()(x), x)), size > 1e37)
        x = ops.Select()(is_pole, one, x)
        mirrored, z = _reflected(x)
        series = Tensor(FIRST, x.dtype) + _terms(z, 1)
        t = z + (LANCZOS + 0.5)
        log_t = ops.Log()(t)
        above = ops.Log()(series) + (z + 0.5 - t / log_t) * log_t + 0.5 * math.log(2 * math.pi)
        size = ops.Abs()(x)
        part = size - ops.Floor()(size)
        part = ops.Minimum()(part, 1.0 - part)  # the sine of pi times it is that of x, but for the sign
        height = ops.Select()(part > 0.0, ops.Sin()(part * math.pi), one)  # 0 only where it is not used
        below = math.log(math.pi) - ops.Log()(height) - above
        result = ops.Select()(mirrored, below, above)
        return ops.Select()(is_pole, Tensor(math.inf, x.dtype), result)


class DiGamma(Cell):
    """Derivative of the logarithm of gamma(x); -inf at 0, NaN at -1, -2, ..."""

    def construct(self, x: Value) -> Value:
        _require_floats(self, x)
        is_pole = ops.LogicalAnd()(x <= 0.0, ops.Equal()(ops.Floor()(x), x))
        at_pole = ops.Select()(x < 0.0, Tensor(math.nan, x.dtype), Tensor(-math.inf, x.dtype))
        x = ops.Select()(is_pole, Tensor(1.0, x.dtype), x)
        mirrored, z = _reflected(x)
        ratio = -_terms(z, 2) / (Tensor(FIRST, x.dtype) + _terms(z, 1))
        t = z + (LANCZOS + 0.5)
        above = ops.Log()(t) + ratio - LANCZOS / t
        place = (x + ops.Abs()(ops.Floor()(x + 0.5))) * math.pi
        result = ops.Select()(mirrored, above - ops.Cos()(place) / ops.Sin()(place) * math.pi, above)
        return ops.Select()(is_pole, at_pole, result)


class LBeta(Cell):
    """Logarithm of the beta function: lgamma(x) + lgamma(y) - lgamma(x + y), for positive x and y."""

    def __init__(self) -> None:
        super().__init__()
        self.lgamma = LGamma()

    def construct(self, x: Value, y: Value) -> Value:
        """With Stirling's series above 8, whose large terms cancel before they are computed."""
        low, high = ops.Minimum()(x, y), ops.Maximum()(x, y)
        ratio = _log1p(low / high)
        corrected = _stirling(high) - _stirling(low + high)
        one_large = self.lgamma(low) + corrected + low - (low + high - 0.5) * ratio - low * ops.Log()(high)
        both_large = (
            ops.Log()(high) * -0.5
            + 0.5 * math.log(2 * math.pi)
            + _stirling(low)
            + corrected
            + (low - 0.5) * ops.Log()(low / (low + high))
            - high * ratio
        )
        small = self.lgamma(low) + self.lgamma(high) - self.lgamma(low + high)
        return ops.Select()(low < 8.0, ops.Select()(high < 8.0, small, one_large), both_large)


def _require_floats(layer: Cell, x: Value) -> None:
    require(x.dtype.is_float, f"{type(layer).__name__} needs floats", x=x.type)


def _reflected(x: Value) -> tuple[Value, Value]:
    """Where x is below 1/2, and z of gamma(z + 1) on the side where the series holds."""
    mirrored = x < 0.5
    return mirrored, ops.Select()(mirrored, -x, x - 1.0)


def _terms(z: Value, power: int) -> Value:
    """Sum of TERMS[k] / (z + k + 1) ** power."""
    total: Value | None = None
    for k, number in enumerate(TERMS, start=1):
        below = z + float(k)
        term = Tensor(number, z.dtype) / (below if power == 1 else below * below)
        total = term if total is None else total + term
    assert total is not None
    return total


def _log1p(x: Value) -> Value:
    """Logarithm of 1 + x with all digits, also for small x: what 1 + x loses is divided out again."""
    u = x + 1.0
    lost = ops.Equal()(u, 1.0)
    quotient = ops.Log()(u) / ops.Select()(lost, Tensor(1.0, x.dtype), u - 1.0)
    return ops.Select()(lost, x, x * quotient)


def _stirling(x: Value) -> Value:
    """What Stirling's formula misses of the logarithm of gamma(x), for x from 8: 1/12x - 1/360x^3 + ..."""
    inverse = 1.0 / x
    square = inverse * inverse
    total: Value = Tensor(-691.0 / 360360.0, x.dtype)
    for number in (1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0):
        total = total * square + number
    return total * inverse


# Layers of matrices, and of stacks of matrices in the last two axes.


def where(mask: np.ndarray, x: Value, y: Value | None = None) -> Value:
    """x where the mask holds, else y, or 0 in the type of x."""
    other = Tensor(np.zeros((), x.dtype.numpy)) if y is None else y
    return ops.Select()(Tensor(mask), x, other)


class Tril(Cell):
    """x with zeros above diagonal `k` of its last two axes."""

    def construct(self, x: Value, k: int = 0) -> Value:
        return where(_up_to_diagonal(self, x, k), x)


class Triu(Cell):
    """x with zeros below diagonal `k` of its last two axes."""

    def construct(self, x: Value, k: int = 0) -> Value:
        return where(~_up_to_diagonal(self, x, k - 1), x)


def _up_to_diagonal(layer: Cell, x: Value, k: int) -> np.ndarray:
    require(x.ndim >= 2, f"{type(layer).__name__} needs at least two axes", x=x.type)
    whole({"layer": type(layer).__name__}, -(2**31), k=k)
    lower: np.ndarray = np.tri(x.shape[-2], x.shape[-1], k, dtype=bool)
    return lower


class MatrixDiag(Cell):
    """Matrices with the last axis of x on the diagonal, else 0: (..., N) to (..., N, N)."""

    def construct(self, x: Value) -> Value:
        require(x.ndim >= 1, "MatrixDiag needs at least one axis", x=x.type)
        return where(np.eye(x.shape[-1], dtype=bool), x[..., None])


class MatrixDiagPart(Cell):
    """The diagonals of matrices: (..., M, N) to (..., min(M, N))."""

    def construct(self, x: Value) -> Value:
        require(x.ndim >= 2, "MatrixDiagPart needs at least two axes", x=x.type)
        rows, columns = x.shape[-2:]
        count, flat = min(rows, columns), ops.Reshape()(x, (*x.shape[:-2], rows * columns))
        return ops.Gather(x.ndim - 2)(flat, Tensor(np.arange(count) * (columns + 1)))


class MatrixSetDiag(Cell):
    """Matrices x (..., M, N) with their diagonal replaced by `diagonal` (..., min(M, N))."""

    def construct(self, x: Value, diagonal: Value) -> Value:
        require(x.ndim >= 2, "MatrixSetDiag needs at least two axes", x=x.type)
        rows, columns = x.shape[-2:]
        expected = x.type.with_shape(*x.shape[:-2], min(rows, columns))
        require(diagonal.type == expected, "not the diagonal of x", diagonal=diagonal.type, expected=expected)
        # One number for each column, or for each row: whichever is the shorter side of x.
        spread = diagonal[..., None, :] if columns <= rows else diagonal[..., None]
        return where(np.eye(rows, columns, dtype=bool), spread, x)


class MatMul(Cell):
    """Product of matrices, of stacks that are broadcast, or of vectors, as numpy's `matmul`.

    `transpose_x1` and `transpose_x2` transpose the last two axes of an operand; a vector is not transposed.
    """

    def __init__(self, transpose_x1: bool = False, transpose_x2: bool = False) -> None:
        super().__init__()
        flag({"layer": "MatMul"}, transpose_x1=transpose_x1, transpose_x2=transpose_x2)
        self.transpose_x1, self.transpose_x2 = transpose_x1, transpose_x2

    def construct(self, x1: Value, x2: Value) -> Value:
        require(min(x1.ndim, x2.ndim) >= 1, "MatMul needs operands with axes", x1=x1.type, x2=x2.type)
        turns = self.transpose_x1 and x1.ndim > 1, self.transpose_x2 and x2.ndim > 1
        a, b = x1[None] if x1.ndim == 1 else x1, x2[:, None] if x2.ndim == 1 else x2
        if a.ndim == b.ndim == 2:
            product: Value = ops.MatMul(*turns)(a, b)
        else:
            lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            a, b = (ops.BroadcastTo((*lead, *x.shape[-2:]))(x) for x in (a, b))
            product = ops.BatchMatMul(*turns)(a, b)
        product = product[..., 0] if x2.ndim == 1 else product
        return product if x1.ndim > 1 else product[..., 0] if x2.ndim == 1 else product[..., 0, :]


class MatInverse(Cell):
    """Inverses of positive definite matrices (N, N), or of stacks of them, by elimination without row exchange."""

    def construct(self, x: Value) -> Value:
        _require_square(x)
        n = x.shape[-1]
        unit = ops.BroadcastTo(x.shape)(Tensor(np.eye(n, dtype=x.dtype.numpy)))
        both: Value = ops.Concat(-1)([x, unit])
        for k in range(n):
            pivot = both[..., k : k + 1, :] / both[..., k : k + 1, k : k + 1]
            others = where(np.arange(n)[:, None] != k, both[..., :, k : k + 1])
            both = where(np.arange(n)[:, None] == k, ops.BroadcastTo(both.shape)(pivot), both - others * pivot)
        return both[..., n:]


class MatDet(Cell):
    """Determinants of positive definite matrices (N, N), or of stacks of them, by elimination."""

    def construct(self, x: Value) -> Value:
        _require_square(x)
        determinant = x[..., 0, 0]
        while x.shape[-1] > 1:
            x = x[..., 1:, 1:] - x[..., 1:, :1] * (x[..., :1, 1:] / x[..., :1, :1])
            determinant = determinant * x[..., 0, 0]
        return determinant


def _require_square(x: Value) -> None:
    square = x.ndim >= 2 and x.shape[-1] == x.shape[-2] and x.dtype.is_float
    require(square, "needs square matrices of floats", x=x.type)


class Norm(Cell):
    """Euclidean norm over `axis`, by default all axes; `keep_dims` keeps them with length 1."""

    def __init__(self, axis: int | tuple[int, ...] = (), keep_dims: bool = False) -> None:
        super().__init__()
        flag({"layer": type(self).__name__}, keep_dims=keep_dims)
        self.axis, self.keep_dims = axis, keep_dims
        self.reduce_sum, self.sqrt, self.square = ops.ReduceSum(keep_dims, axis), ops.Sqrt(), ops.Square()

    def construct(self, x: Value) -> Value:
        return self.sqrt(self.reduce_sum(self.square(x)))

    def extend_repr(self) -> str:
        return f"axis={self.axis}, keep_dims={self.keep_dims}"


class ClipByNorm(Cell):
    """x scaled so that its Euclidean norm over `axis`, by default all axes, is at most `clip_norm`; in Float32.

    `clip_norm` is a tensor of one element, or one that broadcasts to x.
    """

    def __init__(self, axis: int | tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.axis = () if axis is None else axis
        self.reduce_sum, self.sqrt, self.square = ops.ReduceSum(True, self.axis), ops.Sqrt(), ops.Square()
        self.select, self.maximum = ops.Select(), ops.Maximum()

    def construct(self, x: Value, clip_norm: Value) -> Value:
        wide, limit = x.astype(dt.float32), clip_norm.astype(dt.float32)
        total = self.reduce_sum(self.square(wide))
        is_positive = total > 0.0  # the root has no slope at 0
        one, zero = Tensor(1.0, dt.float32), Tensor(0.0, dt.float32)
        norm = self.select(is_positive, self.sqrt(self.select(is_positive, total, one)), zero)
        return wide * limit / self.maximum(norm, limit)


class L1Regularizer(Cell):
    """`scale` times the sum of the absolute values of the weights."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        above({"layer": type(self).__name__}, 0.0, scale=scale)
        self.scale = Tensor(float(scale), dt.float32)
        self.abs, self.reduce_sum = ops.Abs(), ops.ReduceSum()

    def construct(self, weights: Value) -> Value:
        return self.scale * self.reduce_sum(self.abs(weights))

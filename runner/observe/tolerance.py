"""Tolerances, and `measure`: distance metrics of two tensors, computed in float64 and in small chunks.

An element of A is outside of tolerance if |a - b| > atol + rtol * max(|b|, rms(B), smallest normal number). The second
term is relative to the element or to the root mean square of its tensor, whichever is larger: an element near zero is
often a sum whose terms cancel, and its rounding error is as large as that of its neighbours, so that a purely relative
bound would report noise. The mean and not the maximum is used so that one huge element does not hide others. Below the
smallest normal number (6e-5 in float16) relative precision is lost; the coarser of both types counts. `atol` is 0 by
default: gradients of first layers may be 1e-7, and an absolute bound that is small for activations would hide a wrong
factor in them. NaN equals NaN, an infinity equals itself, integers and booleans must be equal.
"""

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runner import dtype as dt
from runner.dtype import DType
from runner.errors import ShapeError
from runner.types import TensorType

# Iteration over two tensors in chunks, with memory use independent of their size.

RELEASE_BYTES = 1 << 24  # of a mapped file that are read before their pages are released
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)  # not on every system


def chunks(a: np.ndarray, b: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Iterate over two arrays in C order, independent of their memory order, `size` elements at a time.

    Yields two vectors in native byte order and the flat index of their first element; the next chunk may overwrite
    them. Pages of mapped files that are in C order are released as the iteration proceeds.
    """
    both = np.nditer(
        [a, b],
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=[["readonly", "aligned"], ["readonly", "aligned"]],
        op_dtypes=[x.dtype.newbyteorder("=") for x in (a, b)],
        order="C",
        casting="equiv",
        buffersize=size,
    )
    maps = [found for x in (a, b) if (found := _memory_map(x)) is not None]
    interval = RELEASE_BYTES // max(a.itemsize, b.itemsize)
    first, due = 0, interval
    for x, y in both:
        yield np.ascontiguousarray(x), np.ascontiguousarray(y), first
        first += x.size
        if first >= due and _DONTNEED is not None:
            due += interval
            for memory_map in maps:
                memory_map.madvise(_DONTNEED)


def _memory_map(array: np.ndarray) -> mmap.mmap | None:
    """The memory map that an array is a view of, if any."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None


# The metrics.

# Elements. Larger arrays of float64 are allocated as new pages with a page fault each (four times slower), and their
# dot products start threads.
CHUNK = 1 << 13
RTOL = {dt.float16: 1e-2, dt.float32: 1e-4, dt.float64: 1e-9}  # 20 roundings of float16, 1,700 of float32


@dataclass(frozen=True)
class Tolerance:
    """Relative and absolute tolerance. `rtol` None means the default of the coarser of the two element types.

    `coarser` is a type that earlier operators compute in: rounding to it, and below its smallest normal number, is in
    all later values, whatever their types are.
    """

    rtol: float | None = None
    atol: float = 0.0
    coarser: DType | None = None

    def relative(self, a: DType, b: DType) -> float:
        """The relative tolerance for tensors of these types; 0 for integers and booleans.

        >>> Tolerance().relative(dt.float32, dt.float16), Tolerance(1e-3).relative(dt.int32, dt.int32)
        (0.01, 0.0)
        """
        if not a.is_float:
            return 0.0
        if self.rtol is not None:
            return self.rtol
        return max(RTOL[kind] for kind in (a, b, self.coarser) if kind is not None)


DEFAULT = Tolerance()
UNSCALED = (1.0, 1.0)


@dataclass(frozen=True)
class Measures:
    """Distance metrics of A relative to B.

    `elements` is their total number, `outside` the number outside of tolerance. Over elements that are finite in both:
    `max_abs` of |a - b|, `max_rel` of |a - b| / |b| where b is not 0, `max_ulp` in units in the last place of the
    coarser type (None for integers), `cosine` similarity (1 if both are zero), `l2` is |A - B| / |B| of the whole
    tensors (infinite if a NaN or infinity is in one of them only). `nan` and `inf` are counts in A and in B.
    `worst` is the index at which |a - b| relative to its bound is largest, `values` are a and b there, and `bound` is
    the bound (all None if the bits are equal: `identical`).
    """

    elements: int
    outside: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: int | None = None
    cosine: float = 1.0
    l2: float = 0.0
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    worst: tuple[int, ...] | None = None
    values: tuple[float, float] | None = None
    bound: float | None = None
    identical: bool = False


def comparable(a: TensorType, b: TensorType) -> bool:
    """Whether two tensors can be compared: equal shapes, and both floating, both integers or both booleans."""
    kinds = [{"u": "i"}.get(x.dtype.numpy.kind, x.dtype.numpy.kind) for x in (a, b)]
    return a.shape == b.shape and kinds[0] == kinds[1]


def measure(
    a: np.ndarray,
    b: np.ndarray,
    tolerance: Tolerance = DEFAULT,
    chunk: int = CHUNK,
    factors: tuple[float, float] = UNSCALED,
) -> Measures:
    """Compare `a` with `b`, `chunk` elements at a time; they may be in memory or mapped, in any memory order.

    Elements of A and B are multiplied by `factors`, in Float64, before they are compared. Raises ShapeError if they are
    not comparable.
    """
    types = TensorType.of(a), TensorType.of(b)
    if not comparable(*types):
        raise ShapeError("tensors that cannot be compared", a=types[0], b=types[1])
    is_float = types[0].dtype.is_float
    if factors == UNSCALED and all(_same_bits(x, y) for x, y, _ in chunks(a, b, chunk)):
        nan, inf = _not_finite(a, chunk) if is_float else (0, 0)
        return Measures(a.size, 0, max_ulp=0 if is_float else None, nan=(nan, nan), inf=(inf, inf), identical=True)
    with np.errstate(all="ignore"):
        sums = _Sums(*types)
        for x, y, _ in chunks(a, b, chunk):
            sums.add(*_scaled(x, y, factors))
        differences = _Differences(*types, tolerance, sums.rms)
        for x, y, first in chunks(a, b, chunk):
            differences.add(*_scaled(x, y, factors), first)
    return differences.result(a, b, sums, factors)


def _scaled(a: np.ndarray, b: np.ndarray, factors: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    if factors == UNSCALED:
        return a, b
    return a.astype(np.float64) * factors[0], b.astype(np.float64) * factors[1]


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8))


def _not_finite(a: np.ndarray, chunk: int) -> tuple[int, int]:
    """The number of NaNs and of infinities in a floating tensor."""
    nan = inf = 0
    for x, _, _ in chunks(a, a, chunk):
        if not np.isfinite(x).all():
            nan, inf = nan + int(np.isnan(x).sum()), inf + int(np.isinf(x).sum())
    return nan, inf


class _Sums:
    """First pass, over elements that are finite in both: norms and dot product.

    Squares of float64 are summed in units of the largest element so far to avoid overflow.
    """

    def __init__(self, a: TensorType, b: TensorType) -> None:
        wide = a.dtype is dt.float64, b.dtype is dt.float64
        self._units: list[float | None] = [0.0 if is_wide else None for is_wide in wide]
        self._squares, self._product, self._count = [0.0, 0.0], 0.0, 0

    def add(self, a: np.ndarray, b: np.ndarray) -> None:
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not math.isfinite(np.abs(x).sum() + np.abs(y).sum()):  # cheaper than isfinite of each element
            finite = np.isfinite(x) & np.isfinite(y)
            x, y = x[finite], y[finite]
        x, y = self._scaled(0, x), self._scaled(1, y)
        self._count += x.size
        self._squares[0] += float(x @ x)
        self._squares[1] += float(y @ y)
        self._product += float(x @ y)

    def _scaled(self, side: int, x: np.ndarray) -> np.ndarray:
        unit = self._units[side]
        if unit is None:
            return x
        largest = float(np.abs(x).max(initial=unit))
        if largest > unit:
            self._squares[side] *= (unit / largest) ** 2
            self._product *= unit / largest
            self._units[side] = largest
        return x / largest if largest else x

    @property
    def rms(self) -> float:
        """The root mean square of B."""
        unit = self._units[1]
        return (1.0 if unit is None else unit) * math.sqrt(self._squares[1] / max(1, self._count))

    @property
    def cosine(self) -> float:
        """The cosine similarity."""
        if not all(self._squares):
            return 0.0 if any(self._squares) else 1.0
        return max(-1.0, min(1.0, self._product / math.sqrt(self._squares[0]) / math.sqrt(self._squares[1])))


class _Differences:
    """Second pass: element-wise differences, relative to bounds that depend on the whole tensors."""

    def __init__(self, a: TensorType, b: TensorType, tolerance: Tolerance, rms: float) -> None:
        self._rtol = tolerance.relative(a.dtype, b.dtype)
        self._atol = tolerance.atol if a.dtype.is_float else 0.0
        self._coarse = min(a.dtype, b.dtype, key=lambda kind: kind.size).numpy if a.dtype.is_float else None
        types = [kind for kind in (a.dtype, b.dtype, tolerance.coarser) if kind is not None and kind.is_float]
        self._least = max([rms, *(float(np.finfo(kind.numpy).smallest_normal) for kind in types)])
        self._outside, self._abs, self._rel, self._ulp, self._squares = 0, 0.0, 0.0, 0, 0.0
        self._nan, self._inf = [0, 0], [0, 0]
        self._worst, self._severity, self._bound = 0, -1.0, 0.0

    def add(self, a: np.ndarray, b: np.ndarray, first: int) -> None:
        x, y = a.astype(np.float64), b.astype(np.float64)
        distance, size = np.abs(x - y), np.abs(y)
        bounds = self._atol + self._rtol * np.maximum(size, self._least)
        if self._coarse is None:
            severity = (distance + 2) * (a != b)  # different large integers may be equal in float64
        else:
            severity = distance / bounds
        if math.isfinite(severity.sum()):
            self._extremes(a, b, size, distance)
            self._squares += float(distance @ distance)
        else:
            finite = np.isfinite(x) & np.isfinite(y)
            self._count((x, y))
            self._extremes(a[finite], b[finite], size[finite], distance[finite])
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            severity = np.where(same, 0.0, np.where(finite, severity, np.inf))
            distance = np.where(same, 0.0, distance)
            self._squares += float(distance @ distance)
        self._outside += int(np.count_nonzero(severity > 1))
        worst = int(severity.argmax())
        if severity[worst] > self._severity:
            self._worst, self._severity, self._bound = first + worst, float(severity[worst]), float(bounds[worst])

    def _count(self, both: tuple[np.ndarray, np.ndarray]) -> None:
        for side, x in enumerate(both):
            self._nan[side] += int(np.count_nonzero(np.isnan(x)))
            self._inf[side] += int(np.count_nonzero(np.isinf(x)))

    def _extremes(self, a: np.ndarray, b: np.ndarray, size: np.ndarray, distance: np.ndarray) -> None:
        """Update the maxima over finite elements. `size` is |b| and is overwritten."""
        self._abs = max(self._abs, float(distance.max(initial=0.0)))
        size[size == 0] = np.inf
        self._rel = max(self._rel, float((distance / size).max(initial=0.0)))
        if self._coarse:
            rounded = a.astype(self._coarse, copy=False), b.astype(self._coarse, copy=False)
            self._ulp = max(self._ulp, int(ulps(*rounded).max(initial=0)))

    def result(self, a: np.ndarray, b: np.ndarray, sums: _Sums, factors: tuple[float, float]) -> Measures:
        worst = tuple(map(int, np.unravel_index(self._worst, a.shape)))
        ulp = self._ulp if self._coarse else None
        nan, inf = (self._nan[0], self._nan[1]), (self._inf[0], self._inf[1])
        values = a[worst].item(), b[worst].item()
        if factors != UNSCALED:
            values = values[0] * factors[0], values[1] * factors[1]
        l2 = (
            math.sqrt(self._squares / a.size) / (sums.rms or math.ulp(0.0))
            if self._squares == self._squares
            else math.inf
        )
        extremes = self._abs, self._rel, ulp, sums.cosine, l2
        return Measures(a.size, self._outside, *extremes, nan, inf, worst, values, self._bound)


def ulps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distance of finite elements of one floating type in units in the last place; -0 equals 0.

    The result is unsigned and as wide as the type.

    >>> ulps(np.float32([1, -1e-45]), np.float32([1 + 2**-23, 1e-45])).tolist()
    [1, 2]
    """
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    sign = unsigned.type(1 << (8 * a.dtype.itemsize - 1))
    bits, other = a.view(unsigned), b.view(unsigned)
    x, y = bits & ~sign, other & ~sign  # distances from zero
    distance: np.ndarray = np.where((bits ^ other) & sign, x + y, np.maximum(x, y) - np.minimum(x, y))
    return distance

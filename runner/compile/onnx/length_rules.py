"""Rules by which a constant follows from the lengths of free axes, found from its values for several lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

Lengths = Mapping[str, int]  # of the free axes, by name
LARGEST_FACTORS = tuple([1 << k for k in range(0, 31, 3)])  # simple fractions are tried first
MOST_VALUES = 1 << 12  # of an array whose elements are fitted


class Linear(NamedTuple):
    """`constant` plus, for each name, the length times an array."""

    constant: np.ndarray
    factors: dict[str, np.ndarray]


class Quotient(NamedTuple):
    """(a n + b) / max(c n + d, 1) for the length n of one axis: four arrays of Float64."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray


def linear(values: Sequence[np.ndarray], lengths: Sequence[Lengths]) -> Linear | None:
    """The rule of arrays of integers for these lengths; None when they are not linear in them."""
    if len({value.shape for value in values}) > 1:
        return None
    first, factors = values[0].astype(np.int64), {}
    constant = first.copy()
    for k, name in enumerate(lengths[0], 1):
        factor, rest = np.divmod(values[k] - first, lengths[k][name] - lengths[0][name])
        if rest.any():
            return None
        factors[name] = factor
        constant -= factor * lengths[0][name]
    for value, known in zip(values, lengths, strict=True):
        if not np.array_equal(constant + sum(f * known[name] for name, f in factors.items()), value):
            return None
    return Linear(constant, {name: factor for name, factor in factors.items() if factor.any()})


def quotient(values: Sequence[np.ndarray], lengths: Sequence[Lengths]) -> Quotient | None:
    """The rule of arrays of floats for lengths of one axis; None when there is none.

    A training step has such constants: the mean over a batch divides by its length, and an unbiased variance multiplies
    by m / (m - 1), where m is a multiple of it.
    """
    first = values[0]
    if first.dtype.kind != "f" or len(lengths[0]) != 1 or first.size > MOST_VALUES:
        return None
    if any((value.shape, value.dtype) != (first.shape, first.dtype) for value in values):
        return None
    sizes = [known[name] for known in lengths for name in known]
    found: dict[tuple[float, ...], tuple[float, ...] | None] = {}
    rows = []
    for elements in zip(*(value.ravel().tolist() for value in values), strict=True):
        if elements not in found:
            found[elements] = _fit(elements, sizes, first.dtype)
        if (row := found[elements]) is None:
            return None
        rows.append(row)
    return Quotient(*np.array(rows, np.float64).T.reshape(4, *first.shape)) if rows else None


def _fit(values: Sequence[float], sizes: Sequence[int], dtype: np.dtype) -> tuple[float, ...] | None:
    """The coefficients of `Quotient` for one element."""
    if len(set(values)) == 1:
        return 0.0, values[0], 0.0, 1.0
    if not all(map(math.isfinite, values)) or 0.0 in values:
        return None
    divided = _fraction(
        values[0] * sizes[0], lambda f: [f.numerator / (f.denominator * n) for n in sizes], values, dtype
    )
    if divided is not None:
        return 0.0, float(divided.numerator), float(divided.denominator), 0.0
    multiplied = _fraction(
        values[0] / sizes[0], lambda f: [f.numerator * n / f.denominator for n in sizes], values, dtype
    )
    if multiplied is not None:
        return float(multiplied.numerator), 0.0, 0.0, float(multiplied.denominator)
    factor = round(values[0] / (values[0] - 1.0) / sizes[0]) if values[0] > 1.0 else 0
    if factor < 1:
        return None
    unbiased = [n * factor / max(n * factor - 1, 1) for n in sizes]
    # The factor of large ones is known to the precision of the element type only.
    return (float(factor), 0.0, float(factor), -1.0) if _are_near(unbiased, values, dtype) else None


def _fraction(
    estimate: float, of_sizes: Callable[[Fraction], list[float]], values: Sequence[float], dtype: np.dtype
) -> Fraction | None:
    """The simplest fraction near an estimate with which `of_sizes` gives these values."""
    for largest in LARGEST_FACTORS:
        fraction = Fraction(estimate).limit_denominator(largest)
        if not fraction:
            continue
        found = of_sizes(fraction)
        if _are_near(found, values, dtype) if dtype == np.float64 else _are_equal(found, values, dtype):
            return fraction
    return None


def _are_equal(found: Sequence[float], values: Sequence[float], dtype: np.dtype) -> bool:
    return [float(dtype.type(x)) for x in found] == list(values)


def _are_near(found: Sequence[float], values: Sequence[float], dtype: np.dtype) -> bool:
    """Whether the numbers differ by a rounding at most."""
    return all(abs(x - y) <= abs(np.spacing(dtype.type(y))) for x, y in zip(found, values, strict=True))

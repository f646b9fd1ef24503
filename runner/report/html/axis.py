"""Axes: mapping of values to positions, with round tick values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

MAX_MARKS = 5  # values that each get a tick


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, which differ; `is_log` requires both above 0. Category k has the position k.

    `marks` are the only values with ticks, if they are few.
    """

    low: float
    high: float
    is_log: bool = False
    categories: tuple[str, ...] = ()
    marks: tuple[float, ...] = ()

    def fraction(self, value: float) -> float:
        """The position of a value: 0 at `low`, 1 at `high`."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """About `most` round values on the axis, with their labels."""
        if self.categories:
            every = max(1, math.ceil(len(self.categories) / 12))
            return [(float(k), name) for k, name in enumerate(self.categories)][::every]
        if self.marks:
            return [(value, tick_label(value)) for value in self.marks]
        values = _log_ticks(self.low, self.high, most) if self.is_log else _linear_ticks(self.low, self.high, most)
        return [(value, tick_label(value)) for value in values]


def axis_around(values: Sequence[float], is_log: bool = False, zero: bool = False) -> Scale:
    """An axis that contains the values, with a margin; with `zero` it begins at 0 if the values begin near 0."""
    low, high = min(values), max(values)
    if is_log:
        factor = (high / low) ** 0.04 if high > low else 1.5
        return Scale(low / factor, high * factor, True)
    if zero and 0 <= low < 0.4 * high:
        return Scale(0.0, high * 1.04)
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return Scale(low - margin, high + margin)


def axis_of_key(values: Sequence[Any]) -> Scale:
    """An axis for the values of a config key: logarithmic if they span more than a factor of 20, categories if they are
    not numbers."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        numbers = sorted({float(value) for value in values})
        axis = axis_around(numbers, is_log=numbers[0] > 0 and numbers[-1] > 20 * numbers[0])
        return replace(axis, marks=tuple(numbers)) if len(numbers) <= MAX_MARKS else axis
    names = tuple(dict.fromkeys(map(str, values)))
    return Scale(-0.5, len(names) - 0.5, categories=names)


def position(scale: Scale, value: Any) -> float:
    """The value of a config key as a number on the axis."""
    return float(scale.categories.index(str(value)) if scale.categories else value)


def tick_label(value: float) -> str:
    """The text of a tick.

    >>> tick_label(0.001), tick_label(20000.0), tick_label(0.25), tick_label(1500000.0)
    ('0.001', '20k', '0.25', '1.5M')
    """
    for power, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 1e4 and abs(value) >= power:
            return f"{value / power:.4g}{unit}"
    return f"{value:.4g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}".replace("e-0", "e-")


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) if abs(k * step) > 1e-9 else k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / (most + 1)))
    decades = [10.0**k for k in range(first, last + 1, every)]
    inside = [value for value in decades if low <= value <= high]
    if len(inside) >= 3:
        return inside
    finer = [factor * 10.0**k for k in range(first, last + 1) for factor in (1, 2, 5)]
    return [value for value in finer if low <= value <= high] or _linear_ticks(low, high, most)

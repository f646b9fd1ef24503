"""Charts as inline SVG: `chart` of lines, `slices` and `parallel_coordinates` of the keys of several runs.

The SVG is stretched to its box, so labels are HTML elements next to it and keep their size on a phone. The page has
both forms of a chart, linear and logarithmic; radio buttons and CSS switch between them without a script. The script
(charts.js) adds the exact values below the pointer, and zoom.
"""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from runner.report.html.page import Markup, concat, legend, measured, metric_label, number, tag
from runner.report.html.run_set import MAX_KEYS, SEED, RunSet
from runner.report.record import RunRecord, format_value

# Axes: mapping of values to positions, with round tick values.

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


# Curves: downsampling that keeps peaks, running means, and means over seeds.

Points = list[tuple[float, float]]


class Spread(NamedTuple):
    """Statistics of several curves at their common steps: (n,) steps, means, sample standard deviations (ddof 1)."""

    steps: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def downsample(xs: np.ndarray, ys: np.ndarray, columns: int) -> Points:
    """Reduce a curve to its minimum and maximum in each of `columns` columns of pixels, in their order.

    `xs` (n,) is ascending. The result covers the same pixels as the line through all points, so peaks are kept. Columns
    with at most two points keep all of them, and the first and last point of the curve are kept.
    """
    if not len(xs):
        return []
    width = float(xs[-1] - xs[0]) or 1.0
    column = np.minimum(((xs - xs[0]) * (columns / width)).astype(np.int64), columns - 1)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    kept = {0, len(xs) - 1}
    for start, stop in zip(starts, [*starts[1:], len(xs)], strict=True):
        part = ys[start:stop]
        kept |= {*range(start, stop)} if len(part) <= 2 else {int(start + part.argmin()), int(start + part.argmax())}
    return [(float(xs[k]), float(ys[k])) for k in sorted(kept)]


def curve(xs: np.ndarray, ys: np.ndarray) -> Points:
    """All points of a curve, (n,) each."""
    return list(zip(xs.astype(np.float64).tolist(), ys.astype(np.float64).tolist(), strict=True))


def running_mean(ys: np.ndarray, window: int) -> np.ndarray:
    """The mean of the last `window` values at each position, of fewer at the beginning. (n,) to (n,)

    >>> running_mean(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [1.0, 2.0, 4.0]
    """
    sums = np.cumsum(np.concatenate([[0.0], ys]))
    stops = np.arange(1, len(ys) + 1)
    starts = np.maximum(stops - window, 0)
    means: np.ndarray = (sums[stops] - sums[starts]) / (stops - starts)
    return means


def spread(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> Spread:
    """Mean and deviation of at least two curves, each (steps, values)."""
    common = curves[0][0]
    for steps, _ in curves[1:]:
        common = np.intersect1d(common, steps)
    values = np.stack([ys[np.searchsorted(xs, common)] for xs, ys in curves])
    return Spread(common, values.mean(axis=0), values.std(axis=0, ddof=1))


# What is known of a chart besides its picture: values for the script of the page, and a description in words.

DIGITS = 5
MAX_DESCRIBED = 6  # lines

Named = tuple[str, Points]


def thinned(points: Points, columns: int) -> Points:
    """The points of a curve, or the lowest and highest of each column if there are more than two for each."""
    if len(points) <= 2 * columns:
        return points
    array = np.array(points, np.float64)
    return downsample(array[:, 0], array[:, 1], columns)


def encoded(lines: Sequence[Named], labels: Sequence[str] | None = None) -> str:
    """Lines as JSON for chart.js: name, x, y and, for single points, a label of each.

    Equidistant x are their first value and their distance.

    >>> encoded([("loss", [(1, 0.5), (2, 0.25), (3, 0.2)])])
    '[["loss",[1,1],[0.5,0.25,0.2]]]'
    """
    rows = [[name, _places([x for x, _ in points]), [_short(y) for _, y in points]] for name, points in lines]
    if labels is not None:
        rows = [[*row, list(labels)] for row in rows]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def described(title: str, x_name: str, lines: Sequence[Named]) -> str:
    """The text that a screen reader has instead of the picture.

    >>> described("Loss", "step", [("loss", [(1, 0.5), (9, 0.25)])])
    'Loss. loss: from 0.5 at step 1 to 0.25 at step 9, lowest 0.25, highest 0.5.'
    """
    named = [(name, points) for name, points in lines if name and points]
    sentences = [f"{title}."]
    for name, points in named[:MAX_DESCRIBED]:
        (first, begin), (last, end) = points[0], points[-1]
        values = [y for _, y in points]
        course = f"from {begin:.4g} at {x_name} {first:g} to {end:.4g} at {x_name} {last:g}"
        sentences.append(f"{name}: {course}, lowest {min(values):.4g}, highest {max(values):.4g}.")
    if len(named) > MAX_DESCRIBED:
        sentences.append(f"And {len(named) - MAX_DESCRIBED} more lines.")
    return " ".join(sentences)


def _places(xs: Sequence[float]) -> list[float]:
    whole = [int(x) if float(x).is_integer() else _short(x) for x in xs]
    if len(whole) > 2 and all(b - a == whole[1] - whole[0] for a, b in itertools.pairwise(whole)):
        return [whole[0], whole[1] - whole[0]]
    return list(whole)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


# Line charts as inline SVG.

UNITS = 1000  # width and height of the SVG view box
COLUMNS = 1000  # of pixels, each with the lowest and the highest value of a line
MAX_VALUES = 10_000  # of a chart, for the pointer and zoom
_numbers = itertools.count(1)


@dataclass(frozen=True)
class ChartLine:
    """A curve with its name in the legend and the tooltip, and all of its points. `style` is `line`, `thin`, `dots`, or
    `band`: an area whose points follow its upper edge and then its lower edge backwards. `colour` is the number of a
    colour in page.css.
    """

    name: str
    points: Points
    colour: int = 1
    style: str = "line"


def chart(
    title: str,
    lines: Sequence[ChartLine],
    *,
    may_be_log: bool = False,
    zero: bool = False,
    has_legend: bool = True,
    columns: int = COLUMNS,
    has_script: bool = True,
) -> Markup:
    """A figure over steps: caption, a switch if both forms are useful, the chart, a legend for two lines or more.

    Each line is drawn with the lowest and highest value of `columns` columns. Without a script there are no values.
    """
    values = [y for line in lines for _, y in line.points]
    x = _step_axis([x for line in lines for x, _ in line.points])
    paths = [_thinned(line, columns) for line in lines]
    label = described(title, "step", [(line.name, line.points) for line in lines if line.style != "band"])

    def plot(y: Scale) -> Markup:
        drawn = (_drawn(k, line, points, x, y) for k, (line, points) in enumerate(zip(lines, paths, strict=True)))
        return frame(concat(*drawn), x, y, "step", label)

    content = plot(axis_around(values, zero=zero))
    if may_be_log and min(values) > 0 and max(values) >= 4 * min(values):
        content = _switch(content, plot(axis_around(values, is_log=True)))
    values_of = [(line.name, _thinned(line, MAX_VALUES // (2 * len(lines)))) for line in lines] if has_script else []
    return tag(
        "figure",
        tag("figcaption", title),
        content,
        _legend(lines) if has_legend else None,
        class_="chart",
        data_lines=encoded(values_of) if has_script else None,
        data_x="step" if has_script else None,
    )


def path(points: Points, x: Scale, y: Scale, closed: bool = False) -> str:
    """The attribute `d` of a path, in integer units.

    >>> path([(0, 0), (5, 1)], Scale(0, 10), Scale(0, 1))
    'M0 1000L500 0'
    """
    vertices = [f"{round(UNITS * x.fraction(a))} {round(UNITS * (1 - y.fraction(b)))}" for a, b in points]
    return f"M{'L'.join(vertices)}{'Z' if closed else ''}"


def dots(points: Points, x: Scale, y: Scale) -> str:
    """The attribute `d` of a path whose round line caps are dots; they stay round if the SVG is stretched."""
    return "".join(f"M{round(UNITS * x.fraction(a))} {round(UNITS * (1 - y.fraction(b)))}h0" for a, b in points)


def frame(content: Markup, x: Scale, y: Scale, x_name: str, label: str) -> Markup:
    """An SVG with grid and content, surrounded by its ticks; `label` is its alternative as a text."""
    y_ticks = [(1 - y.fraction(value), text) for value, text in y.ticks()]
    x_ticks = [(x.fraction(value), text) for value, text in x.ticks(6)]
    grid = "".join(f"M0 {round(UNITS * top)}H{UNITS}" for top, _ in y_ticks)
    svg = tag(
        "svg",
        tag("path", d=grid, class_="grid"),
        content,
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        data_x=f"{x.low!r} {x.high!r} {int(x.is_log)}",
        data_y=f"{y.low!r} {y.high!r} {int(y.is_log)}",
        role="img",
        aria_label=label,
    )
    ticks = [tag("span", text, class_="y", style=f"top:{100 * top:.2f}%") for top, text in y_ticks]
    ticks += [tag("span", text, class_="x", style=f"left:{100 * left:.2f}%") for left, text in x_ticks]
    box = tag("div", *ticks, aria_hidden="true")
    return tag("div", tag("div", svg, box, class_="plot"), tag("div", x_name, class_="axis"), class_="framed")


def _thinned(line: ChartLine, columns: int) -> Points:
    return line.points if line.style == "band" else thinned(line.points, columns)


def _drawn(place: int, line: ChartLine, points: Points, x: Scale, y: Scale) -> Markup:
    d = dots(points, x, y) if line.style == "dots" else path(points, x, y, closed=line.style == "band")
    return tag("path", d=d, class_=f"{line.style} c{line.colour}", data_name=line.name, data_line=place)


def _switch(linear: Markup, logarithmic: Markup) -> Markup:
    """Both forms, of which one is visible: at first the logarithmic one, since losses fall by powers of ten."""
    group = f"s{next(_numbers)}"
    parts = []
    for name, checked in (("log", True), ("linear", False)):
        parts.append(tag("input", type="radio", name=group, id=f"{group}-{name}", class_=name, checked=checked))
        parts.append(tag("label", name, for_=f"{group}-{name}"))
    forms = tag("div", logarithmic, class_="if-log"), tag("div", linear, class_="if-linear")
    return tag("div", *parts, *forms, class_="switched")


def _step_axis(values: Sequence[float]) -> Scale:
    """An axis of integers; each has a tick if they are few."""
    low, high = min(values), max(values)
    marks = tuple(float(k) for k in range(round(low), round(high) + 1)) if high - low <= MAX_MARKS else ()
    return Scale(low, high, marks=marks) if high > low else Scale(low - 0.5, high + 0.5, marks=marks)


def _legend(lines: Sequence[ChartLine]) -> Markup | None:
    entries = [(f"{line.style} c{line.colour}", line.name) for line in lines if line.name and line.style != "band"]
    return legend(entries) if len(entries) > 1 else None


# Effect of the varied keys on the results: a slice plot for each key, and parallel coordinates for all keys.

MIN_RUNS = 3  # two runs get a comparison, and do not show the effect of a key
SHADES = 5  # by rank: one for each fifth of the runs


def slices(run_set: RunSet) -> Markup | None:
    """Slice plots for each key and result of three runs or more: a dot for each run, and a line through the means.

    Keys that change nothing are named. There is none for the seed, whose effect is noise.
    """
    if len(run_set.runs) < MIN_RUNS:
        return None
    keys = [key for key in run_set.keys if key != SEED][:MAX_KEYS]
    figures = [
        _slice(run_set, key, name) for key in keys for name in _results(run_set) if run_set.has_effect(key, name)
    ]
    sentences = [_without_effect(run_set, name, keys) for name in _results(run_set)]
    content = [tag("div", *filter(None, figures), class_="charts") if any(figures) else None, *sentences]
    return concat(*content) or None


def parallel_coordinates(run_set: RunSet) -> Markup | None:
    """An axis for each key and result, a line for each run: better runs are darker (on a dark page: lighter)."""
    ranked = run_set.ranked()
    keys = run_set.keys[:MAX_KEYS]
    if len(keys) < 2 or len(ranked) < MIN_RUNS:
        return None
    columns = {run_set.label(key): [run.config.get(key) for run in ranked] for key in keys}
    results = [name for name in _results(run_set) if all(name in run.results for run in ranked)]
    columns |= {metric_label(name): [run.results[name] for run in ranked] for name in results}
    values = {name: [_axis_value(value) for value in column] for name, column in columns.items()}
    scales = {name: axis_of_key(column) for name, column in values.items()}
    gap = UNITS / (len(columns) - 1)
    units = Scale(0, UNITS)
    lines = []
    for rank in reversed(range(len(ranked))):  # the best on top
        heights = [scale.fraction(position(scale, values[name][rank])) for name, scale in scales.items()]
        points = [(k * gap, UNITS * height) for k, height in enumerate(heights)]
        shade = 1 + rank * SHADES // len(ranked)
        d, tip = path(points, units, units), _description(run_set, ranked[rank])
        lines.append(tag("path", d=d, class_=f"poly q{shade}{'' if rank else ' best'}", data_tip=tip))
    return _axes(lines, scales, gap, run_set)


def _results(run_set: RunSet) -> list[str]:
    """The results that are drawn, the one by which runs are ranked last: it is the right axis of all keys."""
    target = run_set.target
    drawn = [name for name in run_set.results if name not in (target, "eval.loss")]
    return drawn if target is None else [*drawn, target]


def _without_effect(run_set: RunSet, name: str, keys: list[str]) -> Markup | None:
    found = [run_set.label(key) for key in keys if not run_set.has_effect(key, name)]
    text = (
        f"Without an effect on {metric_label(name)}: {', '.join(found)}. Runs that differ only there have equal values."
    )
    return tag("p", text, class_="sub") if found else None


def _slice(run_set: RunSet, key: str, name: str) -> Markup | None:
    runs = [run for run in run_set.runs if name in run.results]
    values = [_axis_value(run.config.get(key)) for run in runs]
    if len(set(map(str, values))) < 2:
        return None
    x, y = axis_of_key(values), axis_around([run.results[name] for run in runs])
    places = [position(x, value) for value in values]
    points = [(place, float(run.results[name])) for place, run in zip(places, runs, strict=True)]
    by_value: dict[float, list[float]] = defaultdict(list)
    for place, result in sorted(points):
        by_value[place].append(result)
    means = [(place, sum(results) / len(results)) for place, results in by_value.items()]
    content = concat(
        None if x.categories else tag("path", d=path(means, x, y), class_="thin c1", data_name=f"mean {name}"),
        tag("path", d=dots(sorted(points), x, y), class_="dots c1", data_name=name),
    )
    title = f"{run_set.label(key)} \N{RIGHTWARDS ARROW} {metric_label(name)}"
    names = {place: format_value(value) for place, value in zip(places, values, strict=True)}
    course = ", ".join(f"{names[place]}: {mean:.4g}" for place, mean in means)
    return tag(
        "figure",
        tag("figcaption", title),
        frame(content, x, y, key, f"{title}. Mean at each value. {course}"),
        class_="chart",
        data_lines=encoded([(name, points)], [_description(run_set, run) for run in runs]),
    )


def _axes(lines: list[Markup], scales: dict[str, Scale], gap: float, run_set: RunSet) -> Markup:
    bars = "".join(f"M{round(k * gap)} 0V{UNITS}" for k in range(len(scales)))
    label = f"Parallel axes of {', '.join(scales)}; the table of runs has the values of the {len(lines)} lines."
    svg = tag(
        "svg",
        tag("g", tag("path", d=bars, class_="grid"), *lines),
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    ticks = []
    for k, (name, scale) in enumerate(scales.items()):
        axis = f"--axis:{k * gap / UNITS * 100:.2f}%"
        ticks.append(tag("span", name, class_="head", style=axis))
        for value, text in scale.ticks(4):
            ticks.append(tag("span", text, class_="tick", style=f"{axis};--value:{100 * scale.fraction(value):.2f}%"))
    plot = tag("div", tag("div", svg, tag("div", *ticks, aria_hidden="true"), class_="plot"), class_="framed")
    caption = f"One line for each run: stronger lines have a better {metric_label(run_set.target or '')}."
    return tag("figure", plot, tag("p", caption, class_="sub"), class_="parallel", style=f"--axes:{len(scales)}")


def _description(run_set: RunSet, run: RunRecord) -> str:
    """What the pointer shows of a run: its name, its keys and its results, a line each."""
    values = [f"{run_set.label(key)} {format_value(run.config.get(key))}" for key in run_set.keys]
    results = [f"{metric_label(name)} {number(measured(value))}" for name, value in run.results.items()]
    return "\n".join([f"run {run_set.name(run)}", *values, *results])


def _axis_value(value: object) -> object:
    """A number, or the text of any other value."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else format_value(value)

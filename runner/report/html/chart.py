"""Line charts as inline SVG.

The SVG is stretched to its box, so labels are HTML elements next to it and keep their size on a phone. The page has
both forms of a chart, linear and logarithmic; radio buttons and CSS switch between them without a script. The script
(chart.js) adds the exact values below the pointer, and zoom.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from runner.report.html.axis import MAX_MARKS, Scale, axis_around
from runner.report.html.chart_data import described, encoded, thinned
from runner.report.html.layout import legend
from runner.report.html.markup import Markup, concat, tag
from runner.report.html.series import Points

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

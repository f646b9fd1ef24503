"""Charts of lines as inline SVG.

The picture is stretched to its box, so labels are HTML beside it: they keep their size on a phone. Both forms of a
chart, linear and logarithmic, are in the page; a switch without any script shows one.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.report.html.axis import FEW, Scale, around
from runner.report.html.markup import Markup, tag, together
from runner.report.html.series import Points

UNITS = 1000  # of the picture, in both directions
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Line:
    """A curve with the name that the legend and the pointer show. `look` is `line`, `thin`, `dots`, or `band`: an area
    whose points go along its upper edge and back along the lower one. `colour` is the number of a colour of the page.
    """

    name: str
    points: Points
    colour: int = 1
    look: str = "line"


def chart(
    title: str,
    lines: Sequence[Line],
    x_name: str,
    *,
    may_be_log: bool = False,
    zero: bool = False,
    legend: bool = True,
) -> Markup:
    """A figure: caption, switch where both forms make sense, the picture, a legend for two lines or more."""
    values = [y for line in lines for _, y in line.points]
    x = _steps([place for line in lines for place, _ in line.points])
    if not may_be_log or min(values) <= 0 or max(values) < 4 * min(values):
        drawn = _plot(lines, x, around(values, zero=zero), x_name)
    else:
        drawn = _switched(
            _plot(lines, x, around(values, zero=zero), x_name), _plot(lines, x, around(values, is_log=True), x_name)
        )
    return tag("figure", tag("figcaption", title), drawn, _legend(lines) if legend else None, class_="chart")


def path(points: Points, x: Scale, y: Scale, closed: bool = False) -> str:
    """The `d` of a path, in whole units.

    >>> path([(0, 0), (5, 1)], Scale(0, 10), Scale(0, 1))
    'M0 1000L500 0'
    """
    places = [f"{round(UNITS * x.place(a))} {round(UNITS * (1 - y.place(b)))}" for a, b in points]
    return f"M{'L'.join(places)}{'Z' if closed else ''}"


def dots(points: Points, x: Scale, y: Scale) -> str:
    """The `d` of a path whose round caps are dots, whatever the picture is stretched to."""
    return "".join(f"M{round(UNITS * x.place(a))} {round(UNITS * (1 - y.place(b)))}h0" for a, b in points)


def frame(inside: Markup, x: Scale, y: Scale, x_name: str) -> Markup:
    """A picture with its grid, and its labels around it."""
    across = [(1 - y.place(value), text) for value, text in y.ticks()]
    up = [(x.place(value), text) for value, text in x.ticks(6)]
    grid = "".join(f"M0 {round(UNITS * place)}H{UNITS}" for place, _ in across)
    picture = tag(
        "svg",
        tag("path", d=grid, class_="grid"),
        inside,
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        data_x=f"{x.low!r} {x.high!r} {int(x.is_log)}",
        data_y=f"{y.low!r} {y.high!r} {int(y.is_log)}",
        role="img",
    )
    labels = [tag("span", text, class_="y", style=f"top:{100 * place:.2f}%") for place, text in across]
    labels += [tag("span", text, class_="x", style=f"left:{100 * place:.2f}%") for place, text in up]
    return tag("div", tag("div", picture, *labels, class_="plot"), tag("div", x_name, class_="axis"), class_="framed")


def _plot(lines: Sequence[Line], x: Scale, y: Scale, x_name: str) -> Markup:
    return frame(together(*(_drawn(line, x, y) for line in lines)), x, y, x_name)


def _drawn(line: Line, x: Scale, y: Scale) -> Markup:
    points = line.points
    d = dots(points, x, y) if line.look == "dots" else path(points, x, y, closed=line.look == "band")
    return tag("path", d=d, class_=f"{line.look} c{line.colour}", data_name=line.name)


def _switched(linear: Markup, logarithmic: Markup) -> Markup:
    """Both, one of which is seen: the logarithmic one at first, since losses fall by powers of ten."""
    group = f"s{next(_numbers)}"
    parts = []
    for name, checked in (("log", True), ("linear", False)):
        parts.append(tag("input", type="radio", name=group, id=f"{group}-{name}", class_=name, checked=checked))
        parts.append(tag("label", name, for_=f"{group}-{name}"))
    forms = tag("div", logarithmic, class_="if-log"), tag("div", linear, class_="if-linear")
    return tag("div", *parts, *forms, class_="switched")


def _steps(values: Sequence[float]) -> Scale:
    """An axis of whole numbers: a few of them all have their tick."""
    low, high = min(values), max(values)
    marks = tuple(float(k) for k in range(round(low), round(high) + 1)) if high - low <= FEW else ()
    return Scale(low, high, marks=marks) if high > low else Scale(low - 0.5, high + 0.5, marks=marks)


def _legend(lines: Sequence[Line]) -> Markup | None:
    entries = list(_entries(lines))
    return tag("ul", *entries, class_="legend") if len(entries) > 1 else None


def _entries(lines: Sequence[Line]) -> Iterator[Markup]:
    for line in lines:
        if line.name and line.look != "band":
            yield tag("li", tag("i", class_=f"{line.look} c{line.colour}"), line.name)

"""What the varied keys do to the results: one picture for each key, and parallel axes for all of them."""

from collections import defaultdict

from runner.report.format import format_value
from runner.report.html.axis import Scale, around, fitting, position
from runner.report.html.chart import UNITS, dots, frame, path
from runner.report.html.groups import MOST_KEYS, Several
from runner.report.html.markup import Markup, number, tag, together
from runner.report.record import RunRecord

FEWEST = 3  # two runs are compared, and tell nothing of a key
SHADES = 5  # by rank: from the best fifth to the worst


def slices(several: Several) -> Markup | None:
    """For each key and result of three runs or more: a dot for each run, and a line through the means."""
    if len(several.runs) < FEWEST:
        return None
    figures = [
        figure
        for key in several.keys[:MOST_KEYS]
        for name in several.results
        if name != "eval.loss" and (figure := _slice(several, key, name))
    ]
    return tag("div", *figures, class_="charts") if figures else None


def parallel(several: Several) -> Markup | None:
    """An axis for each key and result, a line for each run, the darker the better (on a dark page: the lighter)."""
    ranked = several.ranked()
    keys = several.keys[:MOST_KEYS]
    if len(keys) < 2 or len(ranked) < FEWEST:
        return None
    columns = {several.label(key): [run.config.get(key) for run in ranked] for key in keys}
    results = [name for name in several.results if name != "eval.loss" and all(name in run.results for run in ranked)]
    columns |= {name: [run.results[name] for run in ranked] for name in results}
    scales = {name: fitting([_known(value) for value in values]) for name, values in columns.items()}
    gap = UNITS / (len(columns) - 1)
    lines = []
    for rank in reversed(range(len(ranked))):  # the best on top
        heights = [scales[name].place(position(scales[name], _known(values[rank]))) for name, values in columns.items()]
        points = [(k * gap, UNITS * height) for k, height in enumerate(heights)]
        shade = 1 + rank * SHADES // len(ranked)
        whole = Scale(0, UNITS)
        told = tag("title", _told(several, ranked[rank]))
        lines.append(tag("path", told, d=path(points, whole, whole), class_=f"poly q{shade}"))
    return _axes(lines, scales, gap, several.target)


def _slice(several: Several, key: str, name: str) -> Markup | None:
    found = [(_known(run.config.get(key)), run.results[name]) for run in several.runs if name in run.results]
    if len({str(value) for value, _ in found}) < 2:
        return None
    x, y = fitting([value for value, _ in found]), around([result for _, result in found])
    at: dict[float, list[float]] = defaultdict(list)
    for value, result in found:
        at[position(x, value)].append(result)
    points = [(value, result) for value, results in sorted(at.items()) for result in results]
    means = [(value, sum(results) / len(results)) for value, results in sorted(at.items())]
    drawn = together(
        None if x.categories else tag("path", d=path(means, x, y), class_="thin c1", data_name=f"mean {name}"),
        tag("path", d=dots(points, x, y), class_="dots c1", data_name=name),
    )
    return tag(
        "figure",
        tag("figcaption", f"{several.label(key)} \N{RIGHTWARDS ARROW} {name}"),
        frame(drawn, x, y, key),
        class_="chart",
    )


def _axes(lines: list[Markup], scales: dict[str, Scale], gap: float, target: str | None) -> Markup:
    bars = "".join(f"M{round(k * gap)} 0V{UNITS}" for k in range(len(scales)))
    grid = tag("path", d=bars, class_="grid")
    size = f"0 0 {UNITS} {UNITS}"
    picture = tag("svg", grid, *lines, viewBox=size, preserveAspectRatio="none", role="img")
    labels = []
    for k, (name, scale) in enumerate(scales.items()):
        left = f"left:{k * gap / UNITS * 100:.2f}%"
        labels.append(tag("span", name, class_="head", style=left))
        for value, text in scale.ticks(4):
            place = f"{left};top:{100 * (1 - scale.place(value)):.2f}%;transform:translate(5px,-50%)"
            labels.append(tag("span", text, style=place))
    said = f"One line for each run, the stronger the better its {target}."
    plot = tag(
        "div", tag("div", picture, *labels, class_="plot"), class_="framed", style=f"min-width:{110 * len(scales)}px"
    )
    return tag("figure", tag("div", plot, class_="scroll"), tag("p", said, class_="sub"), class_="parallel")


def _told(several: Several, run: RunRecord) -> str:
    values = [f"{several.label(key)} {format_value(run.config.get(key))}" for key in several.keys]
    return f"{several.name(run)}: {', '.join(values)}; " + ", ".join(f"{n} {number(v)}" for n, v in run.results.items())


def _known(value: object) -> object:
    """A value that has a place on an axis: lists, nothing and truth values by their text."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else format_value(value)

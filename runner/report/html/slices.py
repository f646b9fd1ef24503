"""Effect of the varied keys on the results: a slice plot for each key, and parallel coordinates for all keys."""

from collections import defaultdict

from runner.report.format import format_value
from runner.report.html.axis import Scale, axis_around, axis_of_key, position
from runner.report.html.chart import UNITS, dots, frame, path
from runner.report.html.markup import Markup, concat, number, tag
from runner.report.html.run_set import MAX_KEYS, RunSet
from runner.report.record import RunRecord

MIN_RUNS = 3  # two runs get a comparison, and do not show the effect of a key
SHADES = 5  # by rank: one for each fifth of the runs


def slices(run_set: RunSet) -> Markup | None:
    """Slice plots for each key and result of three runs or more: a dot for each run, and a line through the means."""
    if len(run_set.runs) < MIN_RUNS:
        return None
    figures = [
        figure
        for key in run_set.keys[:MAX_KEYS]
        for name in run_set.results
        if name != "eval.loss" and (figure := _slice(run_set, key, name))
    ]
    return tag("div", *figures, class_="charts") if figures else None


def parallel_coordinates(run_set: RunSet) -> Markup | None:
    """An axis for each key and result, a line for each run: better runs are darker (on a dark page: lighter)."""
    ranked = run_set.ranked()
    keys = run_set.keys[:MAX_KEYS]
    if len(keys) < 2 or len(ranked) < MIN_RUNS:
        return None
    columns = {run_set.label(key): [run.config.get(key) for run in ranked] for key in keys}
    results = [name for name in run_set.results if name != "eval.loss" and all(name in run.results for run in ranked)]
    columns |= {name: [run.results[name] for run in ranked] for name in results}
    values = {name: [_axis_value(value) for value in column] for name, column in columns.items()}
    scales = {name: axis_of_key(column) for name, column in values.items()}
    gap = UNITS / (len(columns) - 1)
    units = Scale(0, UNITS)
    lines = []
    for rank in reversed(range(len(ranked))):  # the best on top
        heights = [scale.fraction(position(scale, values[name][rank])) for name, scale in scales.items()]
        points = [(k * gap, UNITS * height) for k, height in enumerate(heights)]
        shade = 1 + rank * SHADES // len(ranked)
        title = tag("title", _description(run_set, ranked[rank]))
        lines.append(tag("path", title, d=path(points, units, units), class_=f"poly q{shade}"))
    return _axes(lines, scales, gap, run_set.target)


def _slice(run_set: RunSet, key: str, name: str) -> Markup | None:
    found = [(_axis_value(run.config.get(key)), run.results[name]) for run in run_set.runs if name in run.results]
    if len({str(value) for value, _ in found}) < 2:
        return None
    x, y = axis_of_key([value for value, _ in found]), axis_around([result for _, result in found])
    by_value: dict[float, list[float]] = defaultdict(list)
    for value, result in found:
        by_value[position(x, value)].append(result)
    points = [(value, result) for value, results in sorted(by_value.items()) for result in results]
    means = [(value, sum(results) / len(results)) for value, results in sorted(by_value.items())]
    content = concat(
        None if x.categories else tag("path", d=path(means, x, y), class_="thin c1", data_name=f"mean {name}"),
        tag("path", d=dots(points, x, y), class_="dots c1", data_name=name),
    )
    return tag(
        "figure",
        tag("figcaption", f"{run_set.label(key)} \N{RIGHTWARDS ARROW} {name}"),
        frame(content, x, y, key),
        class_="chart",
    )


def _axes(lines: list[Markup], scales: dict[str, Scale], gap: float, target: str | None) -> Markup:
    bars = "".join(f"M{round(k * gap)} 0V{UNITS}" for k in range(len(scales)))
    grid = tag("path", d=bars, class_="grid")
    size = f"0 0 {UNITS} {UNITS}"
    svg = tag("svg", grid, *lines, viewBox=size, preserveAspectRatio="none", role="img")
    labels = []
    for k, (name, scale) in enumerate(scales.items()):
        left = f"left:{k * gap / UNITS * 100:.2f}%"
        labels.append(tag("span", name, class_="head", style=left))
        for value, text in scale.ticks(4):
            style = f"{left};top:{100 * (1 - scale.fraction(value)):.2f}%;transform:translate(5px,-50%)"
            labels.append(tag("span", text, style=style))
    caption = f"One line for each run: stronger lines have a better {target}."
    plot = tag(
        "div", tag("div", svg, *labels, class_="plot"), class_="framed", style=f"min-width:{110 * len(scales)}px"
    )
    return tag("figure", tag("div", plot, class_="scroll"), tag("p", caption, class_="sub"), class_="parallel")


def _description(run_set: RunSet, run: RunRecord) -> str:
    values = [f"{run_set.label(key)} {format_value(run.config.get(key))}" for key in run_set.keys]
    return f"{run_set.name(run)}: {', '.join(values)}; " + ", ".join(f"{n} {number(v)}" for n, v in run.results.items())


def _axis_value(value: object) -> object:
    """A number, or the text of any other value."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else format_value(value)

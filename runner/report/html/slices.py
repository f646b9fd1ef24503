"""Effect of the varied keys on the results: a slice plot for each key, and parallel coordinates for all keys."""

from collections import defaultdict

from runner.report.format import format_value
from runner.report.html.axis import Scale, axis_around, axis_of_key, position
from runner.report.html.chart import UNITS, dots, frame, path
from runner.report.html.chart_data import encoded
from runner.report.html.markup import Markup, concat, measured, metric_label, number, tag
from runner.report.html.run_set import MAX_KEYS, SEED, RunSet
from runner.report.record import RunRecord

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

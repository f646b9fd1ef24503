"""The page sections about several runs: `head` and `sections` about all of them, `pair_sections` about two."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner import rundir
from runner.errors import RunnerError
from runner.host.files import real_path
from runner.observe.tolerance import Tolerance
from runner.report.compare import MetricTolerance, compare_runs, has_dump, tables, verdict
from runner.report.dump.tables import Row, compare, remarks, tolerance_text, user_line
from runner.report.dump.walk import Dump
from runner.report.html.charts import (
    ChartLine,
    chart,
    curve,
    downsample,
    parallel_coordinates,
    running_mean,
    slices,
    spread,
)
from runner.report.html.page import (
    Content,
    Markup,
    MeasuredValue,
    Section,
    badge,
    breakable,
    concat,
    legend,
    measured,
    metric_label,
    notes,
    number,
    table,
    tag,
    tiles,
)
from runner.report.html.run import link
from runner.report.html.run_set import RunSet, SeedGroup
from runner.report.record import RunRecord, format_value

# A sweep, or any number of runs: the table, failures, seeds, curves and the effect of keys.

COLOURS, GREY, MAX_NOTES = 8, 9, 20
MAX_CURVES, MAX_POINTS, BAND_COLUMNS = 60, 12_000, 250  # of a page: each of many curves gets fewer points
_SPEED = ("steps", "steps/s", "seconds")
_SCALARS = int | float | str


def head(run_set: RunSet, title: str, results: Sequence[str] = (), remarks: Sequence[str] = ()) -> Markup:
    """The number of runs by status, the best run, results of searches, and remarks."""
    states = Counter(run.state for run in run_set.runs)
    values = {state: str(count) for state, count in states.most_common()}
    best = run_set.ranked()[:1]
    if best and run_set.target:
        values[f"best {metric_label(run_set.target)}"] = number(measured(best[0].results[run_set.target]))
        values["of run"] = run_set.name(best[0])
    badges = [badge(state) for state in states]
    return concat(
        tag("h1", f"{len(run_set.runs)} runs", *badges),
        tag("p", title, class_="sub mono"),
        *(tag("p", result) for result in results),
        notes([*remarks, *(f"{run_set.name(run)}: {note}" for run in run_set.runs for note in run.notes)][:MAX_NOTES]),
        tiles(values),
    )


def sections(run_set: RunSet, home: Path) -> list[Section]:
    """The sections; links are relative to the folder `home`."""
    failed = [run for run in run_set.runs if run.status.get("error")]
    return [
        Section("Runs", _runs(run_set, home)),
        Section("Failures", concat(*(_failure(run_set, run) for run in failed))),
        Section("Over seeds", _seeds(run_set) if run_set.has_seeds else None),
        Section("Curves", _curves(run_set)),
        Section("Effect of each key", slices(run_set)),
        Section("All keys", parallel_coordinates(run_set)),
    ]


def _runs(run_set: RunSet, home: Path) -> Markup:
    """A row for each run, the best one first; those without the result follow."""
    columns = ("run", "status", *map(run_set.label, run_set.keys), *map(metric_label, run_set.results), *_SPEED)
    ranked = run_set.ranked()
    rows = [_row(run_set, run, home) for run in [*ranked, *(run for run in run_set.runs if run not in ranked)]]
    target = run_set.target
    direction = "descending" if target and run_set.is_maximized(target) else "ascending"
    return table(columns, rows, sortable=True, sorted_by=(metric_label(target), direction) if target else None)


def _row(run_set: RunSet, run: RunRecord, home: Path) -> tuple[Content, ...]:
    page = run.folder / rundir.REPORT
    target = page if page.is_file() and real_path(page).parent != real_path(home) else run.folder
    values = [run.config.get(key) for key in run_set.keys]
    cells = [
        value if isinstance(value, _SCALARS) and not isinstance(value, bool) else format_value(value)
        for value in values
    ]
    results = [measured(run.results.get(name)) for name in run_set.results]
    speeds = [run.summary.get(name) for name in ("steps_per_second", "train_seconds")]
    digits = (1, 2)
    rounded = [round(x, n) if isinstance(x, float) else None for x, n in zip(speeds, digits, strict=True)]
    return (link(target, home, run_set.name(run)), badge(run.state), *cells, *results, run.step, *rounded)


def _failure(run_set: RunSet, run: RunRecord) -> Markup:
    return concat(tag("h3", run_set.name(run)), tag("pre", str(run.status["error"]), class_="error"))


def _seeds(run_set: RunSet) -> Markup:
    """A row for each group: number of seeds, mean and deviation of every result."""
    head = tuple(f"{metric_label(name)} {what}" for name in run_set.results for what in ("mean", "\N{PLUS-MINUS SIGN}"))
    rows = []
    for group in run_set.groups:
        cells: list[Content] = []
        for name in run_set.results:
            values = group.values(name)
            cells.append(MeasuredValue(values.mean()) if len(values) else None)
            cells.append(MeasuredValue(values.std(ddof=1)) if len(values) > 1 else None)
        rows.append((group.name, len(group.runs), *cells))
    text = "Sample standard deviations: divided by the number of seeds less one."
    return concat(table(("runs", "seeds", *head), rows, sortable=True), tag("p", text, class_="sub"))


def _curves(run_set: RunSet) -> Markup | None:
    """The losses of all runs; for runs that differ only in the seed also the mean with a band of one deviation."""
    with_curve = [run for run in run_set.runs if len(run.metrics.steps) > 1]
    drawn = with_curve
    if len(with_curve) > MAX_CURVES:
        drawn = [run for run in run_set.ranked() if run in with_curve][:MAX_CURVES]
    if not drawn:
        return None
    window = max(1, min(len(run.metrics.steps) for run in drawn) // 25)
    colours = _colours(run_set)
    groups = sorted(run_set.groups, key=lambda group: colours[group.name] != GREY)  # colours are drawn above grey
    lines = [line for group in groups for line in _lines(run_set, group, drawn, window, colours[group.name])]
    title = f"Loss of each run, mean of {window} steps" if window > 1 else "Loss of each run"
    columns = max(60, min(500, MAX_POINTS // len(drawn)))
    charts = [chart(title, lines, may_be_log=True, zero=True, has_legend=False, columns=columns)]
    bands = [line for group in run_set.groups for line in _band(group, drawn, window, colours[group.name])]
    if run_set.has_seeds and bands:
        charts.insert(0, chart("Loss, mean and deviation over seeds", bands, zero=True, has_legend=False))
    text = f"The best {len(drawn)} of {len(with_curve)} runs are drawn." if len(drawn) < len(with_curve) else None
    return concat(
        tag("div", *(tag("div", one, class_="wide") for one in charts), class_="charts"),
        _legend(colours),
        tag("p", text, class_="sub") if text else None,
    )


def _lines(run_set: RunSet, group: SeedGroup, drawn: list[RunRecord], window: int, colour: int) -> Iterator[ChartLine]:
    for run in (run for run in group.runs if run in drawn):
        style = "thin" if colour == GREY else "line"
        name = f"{run_set.name(run)}: {group.name}" if len(run_set.groups) > 1 else run_set.name(run)
        yield ChartLine(name, curve(run.metrics.steps, running_mean(run.metrics.losses, window)), colour, style)


def _band(group: SeedGroup, drawn: list[RunRecord], window: int, colour: int) -> Iterator[ChartLine]:
    curves = [(r.metrics.steps, running_mean(r.metrics.losses, window)) for r in group.runs if r in drawn]
    found = spread(curves) if len(curves) > 1 else None
    if found is None or len(found.steps) < 2:
        return
    upper = downsample(found.steps, found.mean + found.deviation, BAND_COLUMNS)
    lower = downsample(found.steps, found.mean - found.deviation, BAND_COLUMNS)
    yield ChartLine(group.name, [*upper, *reversed(lower)], colour, "band")
    yield ChartLine(
        f"{group.name}, mean of {len(curves)} seeds", downsample(found.steps, found.mean, BAND_COLUMNS), colour
    )


def _colours(run_set: RunSet) -> dict[str, int]:
    """A colour for each group; if there are too many groups, one for the best, and grey for the others."""
    names = [group.name for group in run_set.groups]
    if len(names) <= COLOURS:
        return {name: number for number, name in enumerate(names, 1)}
    best = run_set.ranked()[:1]
    best_group = next((group.name for group in run_set.groups if best and best[0] in group.runs), names[0])
    return {name: 1 if name == best_group else GREY for name in names}


def _legend(colours: dict[str, int]) -> Markup | None:
    if len(colours) < 2:
        return None
    named = colours
    if len(colours) > COLOURS:
        best = next(name for name, colour in colours.items() if colour != GREY)
        named = {f"best: {best}": 1, f"{len(colours) - 1} others": GREY}
    return legend((f"{'thin' if colour == GREY else 'line'} c{colour}", name) for name, colour in named.items())


# Two runs: differences of config, metrics and dumps.

DEFAULT = MetricTolerance()
_COLUMNS = ("tensor", "shape", "outside", "elements", "max abs", "max rel", "max ulp")
_REASONS = {
    "operator": "The first operator whose outputs differ although its inputs agree",
    "value": "A parameter or constant differs before any operator is run",
    "inputs": "Only inputs differ: the cause is not in the dumps",
    "foreign": "Inputs differ that other operators make in B: an operator has no partner, or is in another place",
    "rounding": "No operator is the cause: rounding errors accumulate and exceed the tolerance here",
}


def pair_sections(a: RunRecord, b: RunRecord, tolerance: MetricTolerance = DEFAULT) -> Iterator[Section]:
    """The comparison of configs and metrics, and that of the dumps if both runs have one."""
    found = compare_runs(a, b, tolerance)
    parts: list[Markup] = [_verdict(found["same"], verdict(found))]
    parts.append(tag("p", f"A is {found['a']}, B is {found['b']} (the reference).", class_="sub"))
    for one in tables(found):
        rows = [(breakable(first), *rest) for first, *rest in one.rows]
        parts += [tag("h3", one.title[:1].upper() + one.title[1:]), table(one.columns, rows)]
    yield Section("A and B", concat(*parts))
    if has_dump(a.folder) and has_dump(b.folder):
        yield Section("Dumps", _dumps(a, b))


def _dumps(a: RunRecord, b: RunRecord) -> Markup:
    try:
        found = compare(Dump(a.folder), Dump(b.folder), Tolerance())
    except RunnerError as error:
        return tag("pre", str(error), class_="error")
    counts = found["compared"]
    if found["same"]:
        what = f"{counts['operators']} operators and {counts['values']} parameters and constants agree"
        below = (tag("p", note, class_="sub") for note in remarks(found))
        return concat(_verdict(True, f"{what} within {tolerance_text(found)}"), *below)
    first = found["first"] or found["earlier"]
    details = {
        "operator": first["name"],
        "iteration": first["iteration"],
        "IR": first.get("ir"),
        "source": user_line(first),
    }
    rows = [(name, format_value(x)) for name, x in details.items() if x is not None]
    return concat(
        _verdict(False, _REASONS["value" if first["kind"] == "value" else found["cause"]]),
        table(("", ""), rows),
        table(_COLUMNS, [_tensor(tensor) for tensor in first["tensors"]]),
        *(tag("p", note, class_="sub") for note in remarks(found)),
    )


def _tensor(tensor: Row) -> tuple[Content, ...]:
    shape = f"{tensor['dtype_a']}{tensor['shape_a']}"
    values = [tensor.get(name) for name in ("outside", "elements", "max_abs", "max_rel", "max_ulp")]
    return (tensor["tensor"], shape, *values)


def _verdict(same: bool, text: str) -> Markup:
    return tag("p", badge("same" if same else "different"), f" {text.partition(': ')[2] or text}")

"""The parts of the page about several runs or a sweep."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.report.format import shown
from runner.report.html.chart import Line, chart
from runner.report.html.groups import Group, Several
from runner.report.html.layout import Section, badge, notes, tiles
from runner.report.html.markup import Inside, Markup, table, tag, together, told
from runner.report.html.run_page import link
from runner.report.html.series import running_mean, spread, thinned
from runner.report.html.slices import parallel, slices
from runner.report.record import Record

COLOURS, GREY, MOST_NOTES = 8, 9, 20
MOST_CURVES, MOST_POINTS, BAND_COLUMNS = 60, 12_000, 250  # of a page; with more runs each curve gets fewer points
_SPEED = ("steps", "steps/s", "seconds")
_SCALARS = int | float | str


def head(several: Several, title: str, said: Sequence[str] = ()) -> Markup:
    """How many there are and how they ended; which was the best; what else there is to be said."""
    states = Counter(run.state for run in several.runs)
    values = {state: str(count) for state, count in states.most_common()}
    best = several.ranked()[:1]
    if best and several.target:
        values[f"best {several.target}"] = f"{best[0].results[several.target]:.4g}"
        values["of run"] = several.name(best[0])
    badges = [badge(state) for state in states]
    return together(
        tag("h1", f"{len(several.runs)} runs", *badges),
        tag("p", title, class_="sub mono"),
        notes([*said, *(f"{several.name(run)}: {note}" for run in several.runs for note in run.notes)][:MOST_NOTES]),
        tiles(values),
    )


def sections(several: Several, home: Path) -> Iterator[Section]:
    """All that there is something to show for; links begin at the folder `home`."""
    yield Section("Runs", _runs(several, home))
    failed = [run for run in several.runs if run.status.get("error")]
    if failed:
        yield Section("Failures", together(*(_failure(several, run) for run in failed)))
    if several.has_seeds:
        yield Section("Over seeds", _seeds(several))
    if drawn := _curves(several):
        yield Section("Curves", drawn)
    if drawn := slices(several):
        yield Section("What each key does", drawn)
    if drawn := parallel(several):
        yield Section("All keys together", drawn)


def _runs(several: Several, home: Path) -> Markup:
    columns = ("run", "status", *map(several.label, several.keys), *map(told, several.results), *_SPEED)
    return table(columns, [_row(several, run, home) for run in several.runs], sortable=True)


def _row(several: Several, run: Record, home: Path) -> tuple[Inside, ...]:
    page = run.folder / "report.html"
    target = page if page.is_file() and page.resolve().parent != home.resolve() else run.folder
    values = [run.config.get(key) for key in several.keys]
    cells = [value if isinstance(value, _SCALARS) and not isinstance(value, bool) else shown(value) for value in values]
    results = [run.results.get(name) for name in several.results]
    speeds = [run.summary.get(name) for name in ("steps_per_second", "train_seconds")]
    rounded = [round(value, 3) if isinstance(value, float) else None for value in speeds]
    return (link(target, home, several.name(run)), badge(run.state), *cells, *results, run.step, *rounded)


def _failure(several: Several, run: Record) -> Markup:
    return together(tag("h3", several.name(run)), tag("pre", str(run.status["error"]), class_="error"))


def _seeds(several: Several) -> Markup:
    """A row for each group: how many, mean and deviation of every result."""
    head = tuple(f"{told(name)} {what}" for name in several.results for what in ("mean", "\N{PLUS-MINUS SIGN}"))
    rows: list[tuple[Inside, ...]] = []
    for group in several.groups:
        cells: list[Inside] = []
        for name in several.results:
            values = group.values(name)
            cells.append(float(values.mean()) if len(values) else None)
            cells.append(float(values.std(ddof=1)) if len(values) > 1 else None)
        rows.append((group.name, len(group.runs), *cells))
    said = "Deviations are those of a sample: divided by the number of seeds less one."
    return together(table(("runs", "seeds", *head), rows, sortable=True), tag("p", said, class_="sub"))


def _curves(several: Several) -> Markup | None:
    """The losses of all runs; where runs differ in the seed only, also their mean in a band of one deviation."""
    able = [run for run in several.runs if len(run.metrics.steps) > 1]
    drawn = [run for run in several.ranked() if run in able][:MOST_CURVES] if len(able) > MOST_CURVES else able
    if not drawn:
        return None
    window = max(1, min(len(run.metrics.steps) for run in drawn) // 25)
    colours = _colours(several)
    lines = [line for group in several.groups for line in _lines(several, group, drawn, window, colours[group.name])]
    title = f"Loss of each run, mean of {window} steps" if window > 1 else "Loss of each run"
    made = [chart(title, lines, "step", may_be_log=True, zero=True, legend=False)]
    bands = [line for group in several.groups for line in _band(group, drawn, window, colours[group.name])]
    if several.has_seeds and bands:
        made.insert(0, chart("Loss, mean and deviation over seeds", bands, "step", zero=True, legend=False))
    said = f"The best {len(drawn)} of {len(able)} runs are drawn." if len(drawn) < len(able) else None
    return together(
        tag("div", *(tag("div", one, class_="wide") for one in made), class_="charts"),
        _legend(colours),
        tag("p", said, class_="sub") if said else None,
    )


def _lines(several: Several, group: Group, drawn: list[Record], window: int, colour: int) -> Iterator[Line]:
    columns = max(60, min(500, MOST_POINTS // len(drawn)))
    for run in (run for run in group.runs if run in drawn):
        name = f"{several.name(run)}: {group.name}" if len(several.groups) > 1 else several.name(run)
        points = thinned(run.metrics.steps, running_mean(run.metrics.losses, window), columns)
        yield Line(name, points, colour)


def _band(group: Group, drawn: list[Record], window: int, colour: int) -> Iterator[Line]:
    curves = [(r.metrics.steps, running_mean(r.metrics.losses, window)) for r in group.runs if r in drawn]
    found = spread(curves) if len(curves) > 1 else None
    if found is None or len(found.steps) < 2:
        return
    upper = thinned(found.steps, found.mean + found.deviation, BAND_COLUMNS)
    lower = thinned(found.steps, found.mean - found.deviation, BAND_COLUMNS)
    yield Line(group.name, [*upper, *reversed(lower)], colour, "band")
    yield Line(f"{group.name}, mean of {len(curves)} seeds", thinned(found.steps, found.mean, BAND_COLUMNS), colour)


def _colours(several: Several) -> dict[str, int]:
    """A colour for each group; of more than there are colours the best has one, and the others are grey."""
    names = [group.name for group in several.groups]
    if len(names) <= COLOURS:
        return {name: number for number, name in enumerate(names, 1)}
    best = several.ranked()[:1]
    chosen = next((group.name for group in several.groups if best and best[0] in group.runs), names[0])
    return {name: 1 if name == chosen else GREY for name in names}


def _legend(colours: dict[str, int]) -> Markup | None:
    if len(colours) < 2:
        return None
    named = colours
    if len(colours) > COLOURS:
        best = next(name for name, colour in colours.items() if colour != GREY)
        named = {f"best: {best}": 1, f"{len(colours) - 1} others": GREY}
    entries = [tag("li", tag("i", class_=f"line c{colour}"), name) for name, colour in named.items()]
    return tag("ul", *entries, class_="legend")

"""The section of a run's profile: the figures that the console had, or those in tables of other profilers."""

from pathlib import Path

from runner.report.html import profile_figures, profile_tables
from runner.report.html.layout import bar, notes
from runner.report.html.markup import Content, Markup, concat, table, tag
from runner.report.html.profile_figures import ReportedFigures, ReportedTime
from runner.report.html.profile_tables import ProfileSummary

MAX_OPERATORS = 15
TIME = ("ms", "lower quartile", "upper quartile", "share")


def render(folder: Path) -> tuple[Markup | None, list[Path]]:
    """The section about the profile in a folder and the files that it shows; None if there is no readable one."""
    if (figures := profile_figures.read(folder)) is not None:
        return _figures(figures), [figures.source]
    if (found := profile_tables.read(folder)) is not None:
        return _tables(found), found.sources
    return None, []


def _figures(figures: ReportedFigures) -> Markup:
    content = [
        tag("h3", "One step"),
        tag("p", _step(figures), class_="sub"),
        bar({part.name: part.value for part in figures.parts}, "ms"),
        table(("part", *TIME, "samples"), [(part.name, *_time(part), part.samples) for part in figures.parts]),
    ]
    if figures.ranking:
        ranked = figures.ranking[:MAX_OPERATORS]
        rows = [(one.places, *_time(one), tag("span", one.name, class_="mono")) for one in ranked]
        content.append(tag("h3", f"Slowest operators, {len(rows)} of {figures.operators}, in {figures.timed} steps"))
        content.append(table(("place", *TIME, "full name"), rows))
    content += [tag("p", sentence) for sentence in figures.sentences]
    return concat(*content, notes(figures.notes), tag("p", f"Next: {figures.next}"))


def _step(figures: ReportedFigures) -> str:
    """The time of a step, its quartiles if there are some, and where the figures come from."""
    samples = figures.spread.samples
    spread = f" (quartiles of {samples}: {figures.spread.low:.3f} to {figures.spread.high:.3f} ms)"
    means = ", ".join(part.name for part in figures.parts if part.is_mean)
    kinds = f"Times are medians; {means}: mean." if means else "Times are medians."
    timed = f"{figures.steps} steps, operators were timed in {figures.timed} of them."
    return f"{figures.step:.3f} ms{spread if samples > 1 else ''}; {timed} {kinds}"


def _time(time: ReportedTime) -> tuple[Content, ...]:
    return round(time.value, 3), round(time.low, 3), round(time.high, 3), _share(time.share)


def _tables(found: ProfileSummary) -> Markup:
    parts: list[Markup] = []
    if found.parts:
        parts += [tag("h3", "Mean step"), bar(found.parts, "ms")]
    if found.operators:
        total = sum(operator.total for operator in found.operators) or 1.0
        rows = [
            (op.op_type, tag("span", op.name, class_="mono"), op.calls, op.total, _share(op.total / total))
            for op in found.operators[:MAX_OPERATORS]
        ]
        parts.append(tag("h3", f"Slowest operators, {len(rows)} of {len(found.operators)}"))
        parts.append(table(("type", "full name", "calls", "ms", "share"), rows, sortable=True))
    return concat(*parts)


def _share(part: float) -> Markup:
    return concat(tag("span", class_="share", style=f"width:{120 * part:.1f}px"), f" {100 * part:.1f}%")

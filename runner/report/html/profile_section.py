"""The section of a run's profile: the figures that the console had, or those in tables of other profilers."""

from pathlib import Path

from runner.report.html import profile_figures, profile_tables
from runner.report.html.layout import bar, notes
from runner.report.html.markup import Content, Markup, concat, table, tag
from runner.report.html.profile_figures import ReportedFigures, ReportedTime
from runner.report.html.profile_tables import ProfileSummary

MAX_OPERATORS = 15
TIME = ("ms", "lower quartile", "upper quartile", "samples")


def render(folder: Path) -> tuple[Markup | None, list[Path]]:
    """The section about the profile in a folder and the files that it shows; None if there is no readable one."""
    if (figures := profile_figures.read(folder)) is not None:
        return _figures(figures), [figures.source]
    if (found := profile_tables.read(folder)) is not None:
        return _tables(found), found.sources
    return None, []


def _figures(figures: ReportedFigures) -> Markup:
    timed = f"{figures.steps} steps, operators were timed in {figures.timed} of them."
    content = [
        tag("h3", "One step"),
        tag("p", f"{figures.step:.4g} ms. {timed} {_kinds(figures)}", class_="sub"),
        bar({part.name: part.value for part in figures.parts}, "ms"),
        table(("part", *TIME, "share"), [(part.name, *_time(part)) for part in figures.parts]),
    ]
    if figures.ranking:
        ranked = figures.ranking[:MAX_OPERATORS]
        rows = [(one.places, one.op_type, tag("span", one.name, class_="mono"), *_time(one)) for one in ranked]
        content.append(tag("h3", f"Slowest operators, {len(rows)} of {figures.operators}"))
        content.append(table(("place", "type", "full name", *TIME, "share"), rows, sortable=True))
    content += [tag("p", sentence) for sentence in figures.sentences]
    return concat(*content, notes(figures.notes), tag("p", f"Next: {figures.next}") if figures.next else None)


def _kinds(figures: ReportedFigures) -> str:
    means = [part.name for part in figures.parts if part.is_mean]
    return f"Times are medians{'; of ' + ', '.join(means) + ', means' if means else ''}."


def _time(time: ReportedTime) -> tuple[Content, ...]:
    return time.value, time.low, time.high, time.samples, _share(time.share)


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

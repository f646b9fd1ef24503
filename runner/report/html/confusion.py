"""The confusion matrix of the last evaluation as a heat map, its largest errors, and precision and recall by class."""

from collections.abc import Sequence

import numpy as np

from runner.report.html.layout import collapsible, legend
from runner.report.html.markup import Content, Markup, concat, table, tag
from runner.report.record import RunRecord
from runner.report.values import array_of

METRIC = "confusion_matrix"
MAX_CLASSES = 30  # of the heat map; more have the tables
NUMBERED = 12  # classes whose numbers a phone has room for; of more it shows the colours
MAX_ERRORS = 10
STRONGEST = 70  # percent of the colour in a cell, so that its number can be read


def confusion(run: RunRecord) -> Markup | None:
    """The confusion matrix (C, C) of a run, or those of several labels (L, 2, 2); None if it has none."""
    counts = array_of(run.arrays.get(METRIC))
    if counts is None or (counts < 0).any():
        return None
    if counts.ndim == 3 and counts.shape[1:] == (2, 2):
        return _labels(counts, run.class_names(len(counts)))
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        return None
    names = run.class_names(len(counts))
    heat = _heat_map(counts, names) if len(names) <= MAX_CLASSES else None
    by_class = _by_class(counts, names)
    return concat(heat, _errors(counts, names), by_class if heat is None else collapsible("Each class", by_class))


def _heat_map(counts: np.ndarray, names: Sequence[str]) -> Markup:
    shares = _ratio(counts, counts.sum(1, keepdims=True))
    errors = np.where(np.eye(len(names), dtype=bool), 0, shares)
    strengths = np.where(np.eye(len(names), dtype=bool), shares, _ratio(errors, errors.max(initial=0)))
    head = [tag("th", "true \\ predicted", scope="col"), *(_heading(name, "col") for name in names)]
    rows = []
    for k, name in enumerate(names):
        cells = [
            _cell(int(counts[k, m]), f"{name} as {other}", float(shares[k, m]), float(strengths[k, m]), k == m)
            for m, other in enumerate(names)
        ]
        rows.append(tag("tr", _heading(name, "row"), *cells))
    kind = f"matrix{' many' if len(names) > NUMBERED else ''}"
    grid = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_=kind)
    right, total = int(np.trace(counts)), int(counts.sum())
    caption = f"{right} of {total} samples are right. A row has the samples of one class, a column a prediction."
    symbols = [("area c1", "right, as a share of the class"), ("area c2", "errors: the largest share is strongest")]
    return tag("figure", tag("div", grid, class_="scroll"), tag("p", caption, class_="sub"), legend(symbols))


def _heading(name: str, scope: str) -> Markup:
    return tag("th", name, scope=scope, title=name)


def _cell(count: int, pair: str, share: float, strength: float, is_right: bool) -> Markup:
    colour = f"var(--c{1 if is_right else 2})"
    style = f"background:color-mix(in srgb,{colour} {round(STRONGEST * strength)}%,transparent)" if strength else None
    title = f"{pair}: {count} ({100 * share:.3g}%)"
    return tag("td", count, class_="n" if count else "n zero", style=style, title=title)


def _errors(counts: np.ndarray, names: Sequence[str]) -> Markup | None:
    """A table of the most frequent pairs of a class and a wrong prediction."""
    errors = np.where(np.eye(len(names), dtype=bool), 0, counts)
    order = np.argsort(-errors, axis=None, kind="stable")[:MAX_ERRORS]
    pairs = [(int(place) // len(names), int(place) % len(names)) for place in order]
    totals = counts.sum(1)
    rows = [
        (names[k], names[m], int(errors[k, m]), f"{100 * errors[k, m] / totals[k]:.3g}%")
        for k, m in pairs
        if errors[k, m]
    ]
    if not rows or len(names) < 3:
        return None
    columns = ("true", "predicted", "samples", "of the class")
    return concat(tag("h3", "Most frequent errors"), table(columns, rows))


def _by_class(counts: np.ndarray, names: Sequence[str]) -> Markup:
    right, samples, predictions = np.diag(counts), counts.sum(1), counts.sum(0)
    rows = [
        (name, int(samples[k]), _share(right[k], predictions[k]), _share(right[k], samples[k]))
        for k, name in enumerate(names)
    ]
    return table(("class", "samples", "precision", "recall"), rows, sortable=True)


def _labels(counts: np.ndarray, names: Sequence[str]) -> Markup:
    rows: list[tuple[Content, ...]] = []
    for name, ((true_negative, false_positive), (false_negative, true_positive)) in zip(names, counts, strict=True):
        precision = _share(true_positive, true_positive + false_positive)
        recall = _share(true_positive, true_positive + false_negative)
        numbers = map(int, (true_positive, false_positive, false_negative, true_negative))
        rows.append((name, *numbers, precision, recall))
    columns = ("label", "true positive", "false positive", "false negative", "true negative", "precision", "recall")
    return table(columns, rows, sortable=True)


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The quotient; 0 where `whole` is 0."""
    quotient: np.ndarray = np.divide(part, whole, out=np.zeros_like(part, dtype=np.float64), where=whole != 0)
    return quotient

"""The page sections about two runs: differences of config, metrics and dumps."""

from collections.abc import Iterator

from runner.errors import RunnerError
from runner.observe.tolerance import Tolerance
from runner.report.compare import has_dump
from runner.report.diff_metrics import MetricTolerance, compare_runs
from runner.report.dump.tables import Row, compare, remarks, tolerance_text, user_line
from runner.report.dump.walk import Dump
from runner.report.format import format_value, tables, verdict
from runner.report.html.layout import Section, badge
from runner.report.html.markup import Content, Markup, breakable, concat, table, tag
from runner.report.record import RunRecord

DEFAULT = MetricTolerance()
_COLUMNS = ("tensor", "shape", "outside", "elements", "max abs", "max rel", "max ulp")
_REASONS = {
    "operator": "The first operator whose outputs differ although its inputs agree",
    "value": "A parameter or constant differs before any operator is run",
    "inputs": "Only inputs differ: the cause is not in the dumps",
    "foreign": "Inputs differ that other operators make in B: an operator has no partner, or is in another place",
    "rounding": "No operator is the cause: rounding errors accumulate and exceed the tolerance here",
}


def sections(a: RunRecord, b: RunRecord, tolerance: MetricTolerance = DEFAULT) -> Iterator[Section]:
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
        notes = (tag("p", note, class_="sub") for note in remarks(found))
        return concat(_verdict(True, f"{what} within {tolerance_text(found)}"), *notes)
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

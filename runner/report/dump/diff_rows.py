"""What a comparison has found, as rows of plain values: the object of `--json`, and what the tables show."""

import math
import re
from typing import Any

from runner.observe.dump.diff import Compared, Pair, Status, Verdict, Walk
from runner.observe.dump.file_names import INPUT
from runner.observe.dump.metrics import Measures
from runner.observe.dump.recording import Dump
from runner.observe.graph.listing import Operation
from runner.observe.graph.text import operation_lines

Row = dict[str, Any]
_LAYERS = re.compile(r"/(runner|mindspore)/nn/")  # wherever the run that dumped had its package


def described(found: Compared) -> Row:
    """An operator, parameter or constant.

    {"iteration", "name", "name_b", "kind": "operator" | "value",
     "status": "same" | "differs" | "inputs differ" | "grows", as `walk.Status`, "only_in_one": [tensor, ...],
     "tensors": [{"tensor": "output_0", "shape_a", "shape_b", "dtype_a", "dtype_b", "format_a", "format_b", "differs"}
     and, where they can be compared, {"elements", "outside", "identical", "max_abs", "max_rel", "max_ulp", "cosine",
     "l2", "nan": [A, B], "inf": [A, B], "worst": null | {"index", "a", "b", "bound"}}, ...]}, as `measures.Measures`

    Numbers that JSON does not have are the strings "nan", "inf" and "-inf".
    """
    return {
        "iteration": found.iteration,
        "name": found.names[0],
        "name_b": found.names[1],
        "kind": "value" if found.is_held else "operator",
        "status": str(found.status),
        "only_in_one": list(found.only),
        "tensors": [_pair(pair) for pair in found.pairs],
    }


def explained(found: Compared, a: Dump, b: Dump) -> Row:
    """The same with what the graphs say: "ir", the line of the operator, and "source", its lines of Python.

    "made_by" names, for inputs that differ, what makes them: {tensor: full name, or the reference in the graph}.
    """
    operation, graph = a.operation(found.names[0]), a
    if operation is None:
        operation, graph = b.operation(found.names[1]), b
    row = described(found)
    if operation is not None and not found.is_held:
        row["ir"] = next(iter(operation_lines(operation))).strip()
        row["source"] = [line._asdict() for line in operation.source]
        differing = [pair.label for pair in found.pairs if pair.differs and pair.label.startswith(INPUT)]
        row["made_by"] = {label: _maker(label, operation, graph) for label in differing}
    return row


def user_line(row: Row) -> str | None:
    """The innermost line of Python outside of runner's own layers, as `file(line)  text`."""
    lines = row.get("source")
    if not lines:
        return None
    line = next((line for line in lines if not _LAYERS.search(line["file"])), lines[0])
    return f"{line['file']}({line['number']})  {line['text']}"


def summary(walk: Walk, verdict: Verdict, counts: dict[str, int], rows: list[Row] | None) -> Row:
    """The whole comparison.

    {"same", "a", "b": paths, "rtol": null for the default of each type, "atol", "iterations": [[A, B], ...],
     "compared": {"operators", "values", "tensors", "differing"},
     "first": null or the operator that is the cause, as `explained`,
     "earlier": null or an operator before it that is outside of tolerance too, as `explained`,
     "cause": null or "operator" (`first`), "inputs" or "rounding" (there is only `earlier`),
     "only_a", "only_b": [name, ...], "notes": [text, ...], "all": [as `described`, ...] with --all}
    """
    given = walk.tolerance
    first, earlier = (found and explained(found, walk.a, walk.b) for found in (verdict.first, verdict.earlier))
    made = {
        "same": first is None and earlier is None,
        "a": str(walk.a.path),
        "b": str(walk.b.path),
        "rtol": given.rtol,
        "atol": given.atol,
        "iterations": [list(pair) for pair in walk.iterations],
        "compared": counts,
        "first": first,
        "earlier": earlier,
        "cause": _cause(verdict),
        "only_a": list(walk.only_a),
        "only_b": list(walk.only_b),
        "notes": list(walk.notes),
    }
    return made if rows is None else made | {"all": rows}


def counted(found: Compared, counts: dict[str, int]) -> None:
    """Count it."""
    counts["values" if found.is_held else "operators"] += 1
    counts["tensors"] += len(found.pairs)
    counts["differing"] += found.status is not Status.SAME


def _cause(verdict: Verdict) -> str | None:
    if verdict.first is not None:
        return "operator"
    if verdict.earlier is None:
        return None
    return "inputs" if verdict.earlier.status is Status.INPUTS else "rounding"


def _pair(pair: Pair) -> Row:
    row: Row = {"tensor": pair.label}
    for side, kind, lies in zip("ab", pair.types, pair.formats, strict=True):
        row |= {f"shape_{side}": list(kind.shape), f"dtype_{side}": str(kind.dtype), f"format_{side}": lies}
    return row | {"differs": pair.differs} | ({} if pair.measures is None else _measures(pair.measures))


def _measures(found: Measures) -> Row:
    row: Row = {name: getattr(found, name) for name in ("elements", "outside", "identical")}
    row |= {name: _number(getattr(found, name)) for name in ("max_abs", "max_rel", "max_ulp", "cosine", "l2")}
    row |= {"nan": list(found.nan), "inf": list(found.inf), "worst": None}
    if found.worst is not None and found.values is not None:
        a, b = map(_number, found.values)
        row["worst"] = {"index": list(found.worst), "a": a, "b": b, "bound": _number(found.bound)}
    return row


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(float(value))


def _maker(label: str, operation: Operation, graph: Dump) -> str:
    slot = int(label.rpartition("_")[2])
    if slot >= len(operation.operands):
        return "unknown"
    operand = operation.operands[slot]
    maker = graph.maker(operand)
    return maker.full_name if maker else operand

"""The result of a dump comparison as plain values: the object that `--json` prints and the tables render."""

import math
import re
from typing import Any

from runner.observe.dump.diff import DiffStatus, DumpWalk, EntryComparison, TensorPair, Verdict
from runner.observe.dump.dump import Dump
from runner.observe.dump.file_names import INPUT
from runner.observe.dump.metrics import Measures
from runner.observe.graph.listing import Operation
from runner.observe.graph.text import operation_lines

Row = dict[str, Any]
_LAYERS = re.compile(r"/(runner|mindspore)/nn/")  # wherever the package was installed for the dumped run


def entry_row(found: EntryComparison) -> Row:
    """The row of an operator, parameter or constant.

    {"iteration", "name", "name_b", "kind": "operator" | "value",
     "status": "same" | "differs" | "inputs differ" | "grows", as `diff.DiffStatus`, "only_in_one": [tensor, ...],
     "tensors": [{"tensor": "output_0", "shape_a", "shape_b", "dtype_a", "dtype_b", "format_a", "format_b", "differs"}
     and, if comparable, {"elements", "outside", "identical", "max_abs", "max_rel", "max_ulp", "cosine",
     "l2", "nan": [A, B], "inf": [A, B], "worst": null | {"index", "a", "b", "bound"}}, ...]}, as `metrics.Measures`

    Numbers that JSON cannot represent are the strings "nan", "inf" and "-inf".
    """
    return {
        "iteration": found.iteration,
        "name": found.names[0],
        "name_b": found.names[1],
        "kind": "value" if found.is_value else "operator",
        "status": str(found.status),
        "only_in_one": list(found.only),
        "tensors": [_pair(pair) for pair in found.pairs],
    }


def detailed_row(found: EntryComparison, a: Dump, b: Dump) -> Row:
    """`entry_row` plus "ir", the operator's line in the IR file, and "source", its Python lines.

    "made_by" names the producers of differing inputs: {tensor: full name, or the operand in the graph}.
    """
    operation, graph = a.operation(found.names[0]), a
    if operation is None:
        operation, graph = b.operation(found.names[1]), b
    row = entry_row(found)
    if operation is not None and not found.is_value:
        row["ir"] = next(iter(operation_lines(operation))).strip()
        row["source"] = [line._asdict() for line in operation.source]
        differing = [pair.label for pair in found.pairs if pair.differs and pair.label.startswith(INPUT)]
        row["made_by"] = {label: _producer(label, operation, graph) for label in differing}
    return row


def user_line(row: Row) -> str | None:
    """The innermost Python line outside of runner's own layers, as `file(line)  text`."""
    lines = row.get("source")
    if not lines:
        return None
    line = next((line for line in lines if not _LAYERS.search(line["file"])), lines[0])
    return f"{line['file']}({line['number']})  {line['text']}"


def summary(walk: DumpWalk, verdict: Verdict, counts: dict[str, int], rows: list[Row] | None) -> Row:
    """The result of the whole comparison.

    {"same", "a", "b": paths, "rtol": null for the default of each type, "atol", "iterations": [[A, B], ...],
     "compared": {"operators", "values", "tensors", "differing"},
     "first": null or the operator that is the cause, as `detailed_row`,
     "earlier": null or an operator before it that is outside of tolerance too, as `detailed_row`,
     "cause": null or "operator" (`first`), "inputs" or "rounding" (there is only `earlier`),
     "only_a", "only_b": [name, ...], "notes": [text, ...], "all": [as `entry_row`, ...] with --all}
    """
    first, earlier = (found and detailed_row(found, walk.a, walk.b) for found in (verdict.first, verdict.earlier))
    result = {
        "same": first is None and earlier is None,
        "a": str(walk.a.path),
        "b": str(walk.b.path),
        "rtol": walk.tolerance.rtol,
        "atol": walk.tolerance.atol,
        "iterations": [list(pair) for pair in walk.iterations],
        "compared": counts,
        "first": first,
        "earlier": earlier,
        "cause": _cause(verdict),
        "only_a": list(walk.only_a),
        "only_b": list(walk.only_b),
        "notes": list(walk.notes),
    }
    return result if rows is None else result | {"all": rows}


def count(found: EntryComparison, counts: dict[str, int]) -> None:
    """Add an entry to the counts under "compared"."""
    counts["values" if found.is_value else "operators"] += 1
    counts["tensors"] += len(found.pairs)
    counts["differing"] += found.status is not DiffStatus.SAME


def _cause(verdict: Verdict) -> str | None:
    if verdict.first is not None:
        return "operator"
    if verdict.earlier is None:
        return None
    return "inputs" if verdict.earlier.status is DiffStatus.INPUTS else "rounding"


def _pair(pair: TensorPair) -> Row:
    row: Row = {"tensor": pair.label}
    for side, type, format in zip("ab", pair.types, pair.formats, strict=True):
        row |= {f"shape_{side}": list(type.shape), f"dtype_{side}": str(type.dtype), f"format_{side}": format}
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


def _producer(label: str, operation: Operation, graph: Dump) -> str:
    slot = int(label.rpartition("_")[2])
    if slot >= len(operation.operands):
        return "unknown"
    operand = operation.operands[slot]
    producer = graph.producer(operand)
    return producer.full_name if producer else operand

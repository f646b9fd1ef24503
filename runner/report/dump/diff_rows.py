"""The result of a dump comparison as plain values: the object that `--json` prints and the tables render."""

import math
import re
from collections import Counter
from typing import Any

from runner.dtype import float32
from runner.observe.dump.diff import DiffStatus, EntryComparison, TensorPair, Verdict
from runner.observe.dump.dump import Dump
from runner.observe.dump.file_names import INPUT
from runner.observe.dump.metrics import RTOL, Measures
from runner.observe.dump.walk import DumpWalk
from runner.observe.graph.listing import Operation
from runner.observe.graph.text import operation_lines

Row = dict[str, Any]
MAX_NAMES = 5
_TYPE = re.compile(r"([A-Za-z0-9]+)-op\d+$")
_LAYERS = re.compile(r"/(runner|mindspore)/nn/")  # wherever the package was installed for the dumped run


def entry_row(found: EntryComparison) -> Row:
    """The row of an operator, parameter or constant.

    {"iteration", "name", "name_b", "kind": "operator" | "value",
     "status": "same" | "differs" | "inputs differ" | "grows", as `diff.DiffStatus`, "only_in_one": [tensor, ...],
     "foreign": [input, ...], those that come from operators which are not paired,
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
        "foreign": sorted(found.foreign),
        "tensors": [_pair(pair) for pair in found.pairs],
    }


def detailed_row(found: EntryComparison, a: Dump, b: Dump) -> Row:
    """`entry_row` plus "ir", the operator's line in the IR file, and "source", its Python lines.

    "made_by" names the producers of differing inputs: {tensor: full name, or the operand in the graph}, "made_by_b"
    those in B of inputs that are foreign.
    """
    sides = [(a.operation(found.names[0]), a), (b.operation(found.names[1]), b)]
    operation, graph = next((side for side in sides if side[0] is not None), (None, a))
    row = entry_row(found)
    if operation is not None and not found.is_value:
        row["ir"] = next(iter(operation_lines(operation))).strip()
        row["source"] = [line._asdict() for line in operation.source]
        differing = [pair.label for pair in found.pairs if pair.differs and pair.label.startswith(INPUT)]
        row["made_by"] = {label: _producer(label, operation, graph) for label in differing}
        other, _ = sides[1]
        foreign = [label for label in differing if label in found.foreign]
        row["made_by_b"] = {label: _producer(label, other, b) for label in foreign} if other else {}
    return row


def user_line(row: Row) -> str | None:
    """The innermost Python line outside of runner's own layers, as `file(line)  text`."""
    lines = row.get("source")
    if not lines:
        return None
    line = next((line for line in lines if not _LAYERS.search(line["file"])), lines[0])
    return f"{line['file']}({line['number']})  {line['text']}"


def summary(
    walk: DumpWalk, verdict: Verdict, counts: dict[str, int], rows: list[Row] | None = None, strict: bool = False
) -> Row:
    """The result of the whole comparison.

    {"same", "a", "b": paths, "rtol": null for the default of each type, "atol", "iterations": [[A, B], ...],
     "coarser": null or the coarsest floating type of the operators, whose rtol applies to all that follow them,
     "compared": {"operators", "values", "tensors", "differing"},
     "first": null or the operator that is the cause, as `detailed_row`,
     "earlier": null or an operator before it that is outside of tolerance too, as `detailed_row`,
     "cause": null or "operator" (`first`), "inputs", "foreign" (inputs that come from operators which are not
     paired) or "rounding" (there is only `earlier`), "one side" (with --strict: the values agree, and only one dump has
     some operators or parameters),
     "pairs": [[full name in A, in B], ...], all operators of the iterations that were compared,
     "renamed": [[scope in A, in B], ...], paired although their names differ,
     "only_a", "only_b": [name, ...], "notes": [text, ...], "all": [as `entry_row`, ...] with --all}
    """
    first, earlier = (found and detailed_row(found, walk.a, walk.b) for found in (verdict.first, verdict.earlier))
    is_one_sided = strict and bool(walk.only_a or walk.only_b)
    result = {
        "same": first is None and earlier is None and not is_one_sided,
        "a": str(walk.a.path),
        "b": str(walk.b.path),
        "rtol": walk.tolerance.rtol,
        "atol": walk.tolerance.atol,
        "iterations": [list(pair) for pair in walk.iterations],
        "coarser": walk.coarser and str(walk.coarser),
        "compared": counts,
        "first": first,
        "earlier": earlier,
        "cause": _cause(verdict) or ("one side" if is_one_sided else None),
        "pairs": [list(pair) for pair in walk.pairs],
        "renamed": [list(pair) for pair in walk.renamed],
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


def remarks(found: Row) -> list[str]:
    """The notes of a `summary`, with the tolerance, renamed scopes and the entries of one side in words."""
    notes = list(found["notes"])
    if found["rtol"] is None and (rtol := _rtol(found["coarser"])) > RTOL[float32]:
        notes.append(f"operators compute in {found['coarser']}: rtol is {rtol:g} from the first of them on")
    if renamed := [f"{one} is {other}" for one, other in found["renamed"]]:
        notes.append(f"paired by position, since names differ (A is B): {_listed(renamed)}")
    for side in "ab":
        if (names := found[f"only_{side}"]) and "all" not in found:
            notes.append(f"{len(names)} only in {side.upper()}: {_listed(names)}{_kinds(names)}")
    return notes


def tolerance_text(found: Row) -> str:
    """The relative tolerance of a `summary` in words."""
    if found["rtol"] is not None:
        return f"rtol {found['rtol']:g}"
    return "the tolerance of their types"


def _rtol(type: str | None) -> float:
    """The default tolerance of an element type by name; 0 for None."""
    return next((value for kind, value in RTOL.items() if str(kind) == type), 0.0)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")


def _kinds(names: list[str]) -> str:
    """How many operators of each type are among the names, if not all are listed."""
    if len(names) <= MAX_NAMES:
        return ""
    counts = Counter(found[1] if (found := _TYPE.search(name)) else "parameters" for name in names)
    return f" ({', '.join(f'{count} {kind}' for kind, count in counts.most_common())})"


def _cause(verdict: Verdict) -> str | None:
    if verdict.first is not None:
        return "operator"
    if verdict.earlier is None:
        return None
    if verdict.earlier.status is not DiffStatus.INPUTS:
        return "rounding"
    inputs = (pair.label for pair in verdict.earlier.pairs if pair.differs and pair.is_input)
    return "inputs" if verdict.earlier.foreign.isdisjoint(inputs) else "foreign"


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

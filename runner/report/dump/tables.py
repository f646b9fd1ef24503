"""`runner compare RUN_A RUN_B` for dumps: finds the first operator, in execution order, that causes a difference.

`compare` gives plain values, the object that `--json` prints, `print_comparison` shows them, `main` is the command.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.dtype import float32
from runner.errors import ConfigError, MismatchError
from runner.host.files import real_path
from runner.observe.dump.files import INPUT
from runner.observe.graph.listing import Operation, operation_lines
from runner.observe.tolerance import RTOL, Measures, Tolerance
from runner.report.dump.walk import DiffStatus, Dump, DumpWalk, EntryComparison, TensorPair, Verdict
from runner.report.record import open_console, print_line, print_table

if TYPE_CHECKING:
    from rich.console import Console


# The result as plain values.

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


# The result as tables, with colours if the output is a terminal.

COLUMNS = ("tensor", "A", "B", "outside", "max abs", "max rel", "max ulp", "cosine", "NaN A/B", "Inf A/B")
_COLOURS = {
    "same": "green",
    "differs": "red",
    "inputs differ": "yellow",
    "grows": "yellow",
    "only A": "cyan",
    "only B": "cyan",
}
_WITHOUT_CAUSE = {
    "inputs": (
        "only inputs differ, first those of",
        "the cause is not in the dump: other data, or an operator that was not dumped",
    ),
    "foreign": (
        "inputs differ that other operators make in B, first those of",
        "the networks are not the same there: the cause is an operator without a partner, or in another place",
    ),
    "rounding": (
        "no operator is the cause: rounding passes the tolerance first in",
        "the inputs of this operator differ already, and the difference grows; --rtol allows more",
    ),
}


def print_comparison(found: Row) -> None:
    """Print the result of `diff_rows.summary`."""
    console = open_console()
    if "all" in found:
        _everything(console, found)
    if found["same"]:
        print_line(console, f"same: {_agreement(found)}", "green")
    elif found["cause"] == "one side":
        print_line(console, "different: only one side has some operators or parameters (--strict)", "bold red")
        print_line(console, f"all others: {_agreement(found)}")
    elif found["first"]:
        _difference(console, found["first"], "first difference")
        if earlier := found["earlier"]:
            print_line(console, f"{earlier['status']} before it, but is not the cause: {earlier['name']}", "yellow")
    else:
        title, reason = _WITHOUT_CAUSE[found["cause"]]
        _difference(console, found["earlier"], title)
        print_line(console, reason, "yellow")
    for note in remarks(found):
        print_line(console, f"note: {note}")


def _agreement(found: Row) -> str:
    counts, count = found["compared"], len(found["iterations"])
    what = f"{counts['operators']} operators and {counts['values']} parameters and constants"
    where = f"{count} {'iteration' if count == 1 else 'iterations'}"
    return f"{what} of {where} agree within {tolerance_text(found)}"


def _difference(console: "Console", row: Row, heading: str) -> None:
    print_line(console, f"{heading}: {row['name']}", "bold red")
    details = {"iteration": row["iteration"], "in B": row["name_b"] if row["name_b"] != row["name"] else None}
    details |= _worst(row) | {"IR": row.get("ir"), "source": user_line(row)}
    details |= {f"{label} is": producer for label, producer in row.get("made_by", {}).items()}
    details |= {f"{label} in B is": producer for label, producer in row.get("made_by_b", {}).items()}
    if row["only_in_one"]:
        details["only in one"] = ", ".join(row["only_in_one"])
    # One column per tensor: an operator has few tensors, so that the table fits into 80 columns.
    sides = [_cells(tensor) for tensor in row["tensors"]]
    lines = [([title, *cells], "") for title, *cells in list(zip(COLUMNS, *sides, strict=True))[1:]]
    columns = [("", ""), *((s[0], "red" if t["differs"] else "") for s, t in zip(sides, row["tensors"], strict=True))]
    print_table(console, columns, lines)
    width = max(map(len, details))
    for name, value in details.items():
        if value is not None:
            print_line(console, f"  {name:<{width}}  {value}")


def _worst(row: Row) -> Row:
    """The element of the first differing tensor whose difference is largest relative to its bound."""
    differing = [tensor for tensor in row["tensors"] if tensor["differs"] and tensor.get("worst")]
    if not differing:
        return {}
    tensor = differing[0]
    worst = tensor["worst"]
    allowed = f"{worst['bound']:.3g}" if isinstance(worst["bound"], float) else worst["bound"]
    index = str(worst["index"]) if worst["index"] else ""
    text = f"{tensor['tensor']}{index}: A {_value(worst['a'])}, B {_value(worst['b'])}, allowed {allowed}"
    return {"worst element": text}


def _cells(tensor: Row) -> list[str]:
    types = [f"{tensor[f'dtype_{side}']}{tensor[f'shape_{side}']}" for side in "ab"]
    formats = [tensor["format_a"], tensor["format_b"]]
    if formats[0] != formats[1]:
        types = [f"{type} {format}" for type, format in zip(types, formats, strict=True)]
    head = [tensor["tensor"], types[0], "same" if types[0] == types[1] else types[1]]
    if "elements" not in tensor:
        return [*head, "all", *["-"] * 6]
    outside = "identical" if tensor["identical"] else f"{tensor['outside']} of {tensor['elements']}"
    counts = ["/".join(map(str, tensor[name])) for name in ("nan", "inf")]
    return [*head, outside, *(_short(tensor[name]) for name in ("max_abs", "max_rel", "max_ulp", "cosine")), *counts]


def _everything(console: "Console", found: Row) -> None:
    """Print one line per operator with the tensor that differs most."""
    lines = []
    for row in found["all"]:
        tensors = sorted(row["tensors"], key=_distance, reverse=True)
        cells = _cells(tensors[0]) if tensors else ["none", *["-"] * 9]
        status = row["status"]
        lines.append(([str(row["iteration"]), row["name"], status, cells[0], *cells[3:]], _COLOURS[status]))
    for side in "ab":
        status = f"only {side.upper()}"
        lines += [(["", name, status, *["-"] * 8], _COLOURS[status]) for name in found[f"only_{side}"]]
    titles = "iteration", "name", "status", "worst tensor", *COLUMNS[3:]
    print_table(console, [(title, "") for title in titles], lines)


def _distance(tensor: Row) -> tuple[float, float]:
    """A sort key: the share of elements outside of tolerance, then the largest difference relative to its bound."""
    if "elements" not in tensor:
        return math.inf, math.inf
    worst = tensor["worst"] or {"a": 0.0, "b": 0.0, "bound": 1.0}
    ratio = abs(float(worst["a"]) - float(worst["b"])) / (float(worst["bound"]) or math.inf)
    return tensor["outside"] / max(1, tensor["elements"]), 0.0 if math.isnan(ratio) else ratio


def _short(value: object) -> str:
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    return f"{value:.8g}" if 0.5 < abs(value) <= 1 else f"{value:.3g}"


def _value(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


# The command.


def main(runs: Sequence[Path], tolerance: Tolerance, everything: bool, strict: bool, as_json: bool) -> int:
    """Compare two dumps and print the result. Returns 0 if they agree, otherwise 6.

    `strict`: operators and parameters of one side only are a difference.

    Raises MismatchError if the dumps have nothing in common, ConfigError if both runs share one dump, DataError for
    missing and damaged files, StorageError for unreadable files.
    """
    a, b = map(Dump, runs)
    if real_path(a.path) != real_path(b.path) and a.locations == b.locations:
        hint = "dump into the run directories, or give each run a dump.path of its own"
        raise ConfigError("both runs have their dump in the same folder", path=a.device, hint=hint)
    found = compare(a, b, tolerance, everything, strict)
    if as_json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    else:
        print_comparison(found)
    return 0 if found["same"] else MismatchError.exit_code


def compare(a: Dump, b: Dump, tolerance: Tolerance, everything: bool = False, strict: bool = False) -> Row:
    """The comparison of two dumps as `summary`; it ends at the first cause unless `everything` is set."""
    walk, verdict = DumpWalk(a, b, tolerance), Verdict()
    rows: list[Row] | None = [] if everything else None
    counts = dict.fromkeys(("operators", "values", "tensors", "differing"), 0)
    for found in walk:
        count(found, counts)
        is_open = verdict.add(found)
        if rows is not None:
            rows.append(entry_row(found))
        elif not is_open:
            break
    return summary(walk, verdict, counts, rows, strict)

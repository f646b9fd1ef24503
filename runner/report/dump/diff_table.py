"""The result of a dump comparison as tables, with colours if the output is a terminal."""

import math
from typing import TYPE_CHECKING

from runner.report.dump.diff_rows import Row, remarks, tolerance_text, user_line
from runner.report.terminal import open_console, print_line, print_table

if TYPE_CHECKING:
    from rich.console import Console

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

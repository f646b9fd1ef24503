"""`runner predict RUN_DIR FILES...`: the predictions as a table, CSV or JSON."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner.experiment.predict import Predictions, predict
from runner.host.console import csv_text, spreadsheet_cell
from runner.report.terminal import open_console, print_table


def main(args: argparse.Namespace) -> int:
    """Print the predictions for the files. Raises RunnerError."""
    found = predict(Path(args.run), [Path(file) for file in args.files], args.code)
    if args.json:
        sys.stdout.write(json.dumps([*_objects(found, args.top)], indent=2) + "\n")
    elif args.csv:
        rows = [_columns(found), *_rows(found, args.top)]
        sys.stdout.write(csv_text([[spreadsheet_cell(cell) for cell in row] for row in rows]))
    else:
        _print(found, args.top)
    return 0


def _best(found: Predictions, row: int, top: int) -> Iterator[tuple[str, float]]:
    """The classes of the highest values with these, the first one of equal values first."""
    values = found.values[row]
    for k in np.argsort(-values, kind="stable")[:top]:
        yield found.names[k], float(values[k])


def _value_name(found: Predictions) -> str:
    return "score" if found.are_scores else "probability"


def _columns(found: Predictions) -> tuple[str, ...]:
    return ("file", "rank", "class", _value_name(found)) if found.has_classes else ("file", *found.names)


def _rows(found: Predictions, top: int) -> Iterator[tuple[object, ...]]:
    for row, name in enumerate(found.rows):
        if found.has_classes:
            best = _best(found, row, top)
            yield from ((name, rank, label, value) for rank, (label, value) in enumerate(best, 1))
        else:
            yield name, *map(float, found.values[row])


def _objects(found: Predictions, top: int) -> Iterator[dict[str, Any]]:
    for row, name in enumerate(found.rows):
        if found.has_classes:
            best = [{"class": label, _value_name(found): value} for label, value in _best(found, row, top)]
            yield {"file": name, "classes": best}
        else:
            yield {"file": name, "values": dict(zip(found.names, map(float, found.values[row]), strict=True))}


def _print(found: Predictions, top: int) -> None:
    columns = [column for column in _columns(found) if column != "rank"]
    rows = []
    for row in _rows(found, top):
        if found.has_classes:
            name, rank, label, value = row
            cells = [str(name) if rank == 1 else "", str(label), f"{value:.4f}"]
        else:
            cells = [str(row[0]), *(f"{value:.6g}" for value in row[1:])]
        rows.append((cells, ""))
    print_table(open_console(), [(column, "") for column in columns], rows)

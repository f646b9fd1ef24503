"""Small commands that print what one call returns: predictions of a run, names of a config, values of a print file.

`predict_rows` is `runner predict RUN_DIR FILES...`, `list_entries` is `runner ls networks` and the other kinds,
`parse_print` is `runner parse-print FILE`.
"""

import json
import sys
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from runner.config import code, groups, options  # noqa: F401  register what runner has
from runner.core.values import Tensor
from runner.errors import ConfigError
from runner.experiment.predict import Predictions, predict
from runner.host import files
from runner.host.console import csv_text, spreadsheet_cell, visible
from runner.ops.effects import print_entries, text
from runner.register import PLURALS, Entry, Key
from runner.report.record import open_console, print_table
from runner.validation.rules import show

# `runner predict RUN_DIR FILES...`: the predictions as a table, CSV or JSON.


MOST_NUMBERS = 8  # of a sample in a table; of more, there is a summary


def predict_rows(args: Namespace) -> int:
    """Print the predictions for the files, or write them as arrays. Raises RunnerError."""
    found = predict(Path(args.run), [Path(file) for file in args.files], args.code)
    if args.npy or args.npz:
        _write(found, *(Path(file) if file else None for file in (args.npy, args.npz)))
    elif args.json:
        sys.stdout.write(json.dumps([*_objects(found, args.top)], indent=2) + "\n")
    elif args.csv:
        rows = [_columns(found), *_rows(found, args.top)]
        sys.stdout.write(csv_text([[spreadsheet_cell(cell) for cell in row] for row in rows]))
    elif found.has_classes:
        _print_classes(found, args.top)
    else:
        _print_numbers(found)
    return 0


def _write(found: Predictions, npy: Path | None, npz: Path | None) -> None:
    """The arrays of all samples: the one output as .npy, or all by name as .npz, with the names of the samples."""
    arrays = {_value_name(found): found.values} if found.has_classes else dict(found.outputs)
    if npz:
        arrays["file"] = np.array(found.rows)
        if found.has_classes:
            arrays["class"] = np.array(found.names)
        files.write_atomically(npz, lambda file: _write_npz(file, arrays))
        return
    if len(arrays) > 1:
        rows = {"outputs": ", ".join(arrays), "repair": "--npz, which writes all of them"}
        raise ConfigError("--npy writes one array, and the network has several outputs", **rows)
    (array,) = arrays.values()
    files.write_atomically(cast(Path, npy), lambda file: np.save(file, array))


def _write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """`np.savez` for any names: it has a parameter `file`."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


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


def _print_classes(found: Predictions, top: int) -> None:
    columns = [column for column in _columns(found) if column != "rank"]
    rows = [
        ([str(name) if rank == 1 else "", str(label), f"{value:.4f}"], "")
        for name, rank, label, value in _rows(found, top)
    ]
    print_table(open_console(), [(column, "") for column in columns], rows, whole=columns[-1:])


def _print_numbers(found: Predictions) -> None:
    """A table of a row for each sample; one for each number where that would not fit; or a summary of many numbers."""
    console = open_console()
    if len(found.names) > MOST_NUMBERS:
        columns: list[str] = ["file", "output", "shape", "min", "max", "mean"]
        cells = [row for place, name in enumerate(found.rows) for row in _summaries(found, place, name)]
    else:
        columns, numbers = ["file", *found.names], [[f"{x:.6g}" for x in row] for row in found.values]
        cells = [[name, *row] for name, row in zip(found.rows, numbers, strict=True)]
        if sum(max(map(len, column)) + 2 for column in zip(columns, *cells, strict=True)) > console.width:
            columns = ["file", "output", "value"]
            pairs = (zip(found.names, row, strict=True) for row in numbers)
            cells = [[name, *pair] for name, row in zip(found.rows, pairs, strict=True) for pair in row]
    print_table(console, [(column, "") for column in columns], [(row, "") for row in cells], whole=columns[2:])
    if len(found.names) > MOST_NUMBERS:
        sys.stdout.write("all numbers: --npz FILE, --csv or --json\n")


def _summaries(found: Predictions, place: int, name: str) -> Iterator[list[str]]:
    for output, arrays in found.outputs.items():
        array = arrays[place].astype(np.float64)
        numbers = (array.min(), array.max(), array.mean()) if array.size else ()
        yield [name, output, str(list(array.shape)), *(f"{x:.6g}" for x in numbers), *[""] * (3 - len(numbers))]


# `runner ls networks` and the other kinds: what can be named in a config, where it comes from, and its keys.

OF_RUNS = ("status", "where", "sort", "limit", "best", "json")  # flags


def list_entries(args: Namespace) -> int:
    """Print the entries of a kind, such as `networks`, with those of the project.

    Raises ConfigError, also for a flag that selects runs.
    """
    plural = args.folder
    if given := [f"--{name}" for name in OF_RUNS if getattr(args, name)]:
        rows = {"reason": f"{given[0]} is for lists of runs, and {plural} are none", "hint": "runner ls --help"}
        raise ConfigError("wrong usage", **rows)
    code.load(code.sources(args.code))
    names = max(16, *(len(name) + 2 for name in PLURALS[plural]))
    for name, entry in PLURALS[plural].items():
        print("\n".join(map(visible, _lines(f"{name:<{names}}", entry))))  # noqa: T201
    return 0


def _lines(name: str, entry: Entry) -> Iterator[str]:
    yield f"{name}{_origin(entry)}"
    if entry.summary:
        yield f"    {entry.summary}"
    width = max(map(len, entry.keys), default=0)
    for key_name, key in entry.keys.items():
        yield f"    {key_name:<{width}}  {_type(key)} = {_default(entry, key_name, key)}{_help(key)}"


def _origin(entry: Entry) -> str:
    """The place of an entry: relative to the current directory if it is inside, or the package that has it."""
    if entry.is_own:
        return "runner"
    place = Path(entry.place)
    return str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else entry.place


def _type(key: Key) -> str:
    bounds = key.rule
    low = [f">= {bounds.low}"] * (bounds.low is not None) + [f"> {bounds.above}"] * (bounds.above is not None)
    high = [f"<= {bounds.high}"] * (bounds.high is not None) + [f"< {bounds.below}"] * (bounds.below is not None)
    limits = ", ".join([*low, *high])
    return f"{key.type_name} ({limits})" if limits else key.type_name


def _default(entry: Entry, name: str, key: Key) -> str:
    if name in entry.kind.open_facts:
        return "null (the dataset's)"
    return "(required)" if key.required else show(key.default)


def _help(key: Key) -> str:
    return f"  # {key.help}" if key.help else ""


# `runner parse-print FILE`: prints the strings and tensors of a print file as the operator Print would.


def parse_print(args: Namespace) -> int:
    """Print the content of a file. Raises DataError if it is missing, or after all that precedes its damage."""
    for part in print_entries(args.file):
        print(text([part.asnumpy() if isinstance(part, Tensor) else part]))  # noqa: T201  output of the command
    return 0

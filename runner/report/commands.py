"""`runner doctor`: checks packages, machine, devices and the output folder, and suggests repairs."""

import argparse
import json
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy  # noqa: F401, loads the BLAS that threadpoolctl inspects
import numpy as np
import threadpoolctl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runner.compile.session import device_problem
from runner.config import code, groups, options  # noqa: F401  register what runner has
from runner.core.values import Tensor
from runner.device import BACKENDS, describe_runtimes
from runner.errors import ConfigError, DeviceError, some
from runner.experiment.predict import Predictions, predict
from runner.host.console import csv_text, spreadsheet_cell, visible
from runner.host.machine import PACKAGES, cpu_model, memory_bytes, packages, runtimes, usable_cores
from runner.importer.file import OnnxGraph, read_model
from runner.importer.network import (
    CONSTANT,
    NO_GRADIENT,
    is_quantized,
    main_part,
    roles_of,
    unsupported,
    without_copies,
)
from runner.ops.print_file import print_entries, text
from runner.register import PLURALS, Entry, Key
from runner.report.record import open_console, print_line, print_table
from runner.types import TensorType
from runner.validation.rules import show

_MODULES = {"hydra-core": "hydra"}  # packages whose module has a different name
_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Finding:
    """One line of the report. `state` is ok, warning or failed; exit code 3 if any has failed."""

    part: str
    name: str
    value: str
    state: str = "ok"


def doctor(args: Namespace) -> int:
    """Print the report. Returns 0 if the CPU works and all packages are installed, otherwise 3."""
    findings = [*_packages(), *_machine(), *_devices(), _outputs(Path("outputs"))]
    console = Console()
    if console.is_terminal:
        console.print(_table(findings))
    else:
        for finding in findings:
            mark = "" if finding.state == "ok" else f"{finding.state}: "
            margin = "\n" + " " * 25
            text = f"{finding.part:<9}{finding.name:<16}{(mark + finding.value).replace(chr(10), margin)}"
            console.print(text, soft_wrap=True, markup=False, highlight=False)
    return DeviceError.exit_code if any(finding.state == "failed" for finding in findings) else 0


def _table(findings: list[Finding]) -> Table:
    table = Table("", "", "", "", box=None, show_header=False)
    before = ""
    for finding in findings:
        part, before = finding.part if finding.part != before else "", finding.part
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(part, finding.name, state, Text(finding.value))  # Text: pip's extras look like markup
    return table


def _packages() -> Iterator[Finding]:
    versions = packages()
    yield from (Finding("package", name, versions[name]) for name in ("python", "runner"))
    for name in PACKAGES:
        if find_spec(_MODULES.get(name, name)) is None:
            yield Finding("package", name, f"not installed: pip install {name}", "failed")
        else:
            note = f", {_blas()}" if name == "numpy" else ""
            yield Finding("package", name, versions.get(name, "not installed, imported from its folder") + note)
    installed = runtimes()
    state = {0: "failed", 1: "ok"}.get(len(installed), "warning")
    yield Finding("package", "onnxruntime", describe_runtimes(installed), state)


def _blas() -> str:
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    described = (f"{pool['internal_api']} {pool['version']} with {pool['num_threads']} threads" for pool in pools)
    return " and ".join(described) or "no BLAS recognised by threadpoolctl"


def _machine() -> Iterator[Finding]:
    yield Finding("machine", "processor", cpu_model())
    yield Finding("machine", "cores", f"{usable_cores()} usable of {os.cpu_count()}")
    yield Finding("machine", "memory", f"{memory_bytes() / 2**30:.1f} GiB")


def _devices() -> Iterator[Finding]:
    for target, backend in BACKENDS.items():
        problem = device_problem(target)
        if problem is None:
            yield Finding("device", target, f"usable ({backend.provider} ran a convolution)")
            continue
        repair = problem.rows.get("repair")
        text = f"not usable: {problem.rows.get('reason', problem.what)}" + (f"\nrepair: {repair}" if repair else "")
        yield Finding("device", target, text, "failed" if target == "CPU" else "warning")


def _outputs(folder: Path) -> Finding:
    """Whether run directories can be created, judged by permissions: nothing is created."""
    absolute = folder.absolute()
    existing = next(path for path in (absolute, *absolute.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Finding("folder", "outputs", f"{absolute} is writable")
    return Finding("folder", "outputs", f"{absolute} cannot be written: no permission in {existing}", "failed")


# `runner inspect FILE`: what an ONNX file has, and whether it can be trained here.

PLACES = 3  # nodes shown for an operator


def inspect_model(args: Namespace) -> int:
    """Print inputs, outputs, parameters and operators. Returns 0 if it can be trained, otherwise 2."""
    path = Path(args.file)
    found = inspect(path, read_model(path))
    if args.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    else:
        _print(found)
    return 0 if found["trainable"] else ConfigError.exit_code


def inspect(path: Path, graph: OnnxGraph) -> dict[str, Any]:
    """What `--json` prints. `trainable` is false when operators are missing; `reason` then says why."""
    graph = without_copies(graph)
    try:
        part, reason = main_part(graph), None
    except ConfigError as error:
        part, reason = graph, error.what
    missing = unsupported(part)
    if missing and reason is None:
        reason = NO_GRADIENT if is_quantized(missing) else f"not supported: {', '.join(sorted(missing))}"
    return {
        "file": str(path),
        "opsets": {node.domain or "ai.onnx": node.opset for node in graph.all_nodes()},
        "inputs": [str(value) for value in graph.inputs],
        "outputs": [str(value) for value in graph.outputs],
        "parameters": list(_parameters(part)),
        "operators": list(_operators(part, missing)),
        "trainable": reason is None,
        "reason": reason,
    }


def _parameters(graph: OnnxGraph) -> Iterator[dict[str, Any]]:
    for name, role in roles_of(graph).items():
        if role != CONSTANT:
            array = graph.initializers[name]
            yield {"name": name, "type": str(TensorType.of(array)), "size": array.size, "role": role}


def _operators(graph: OnnxGraph, missing: dict[str, Any]) -> Iterator[dict[str, Any]]:
    nodes = graph.all_nodes()
    for operator, count in sorted(Counter(node.operator for node in nodes).items()):
        places = [node.name for node in nodes if node.operator == operator]
        yield {"operator": operator, "count": count, "supported": operator not in missing, "nodes": places}


def _print(found: dict[str, Any]) -> None:
    console = open_console()
    opsets = ", ".join(f"{domain} {version}" for domain, version in found["opsets"].items())
    print_line(console, f"{found['file']}: opset {opsets}")
    for key in ("inputs", "outputs"):
        for value in found[key]:
            print_line(console, f"  {key[:-1]:<8} {value}")
    parameters = found["parameters"]
    total = sum(one["size"] for one in parameters)
    rows = [([one["name"], one["type"], one["role"]], "") for one in parameters]
    title = f"{len(parameters)} parameters, {total:,} elements"
    print_table(console, [("name", ""), ("type", ""), ("role", "")], rows, title)
    rows = [_operator_row(one) for one in found["operators"]]
    print_table(console, [("operator", ""), ("nodes", ""), ("", ""), ("where", "")], rows, "Operators")
    if found["trainable"]:
        print_line(console, f"can be trained: runner network=onnx network.path={found['file']} dataset=...", "green")
    else:
        print_line(console, f"cannot be trained: {found['reason']}", "bold red")


def _operator_row(one: dict[str, Any]) -> tuple[list[str], str]:
    state = "supported" if one["supported"] else "not supported"
    cells = [one["operator"], str(one["count"]), state, some(one["nodes"], PLACES)]
    return cells, "" if one["supported"] else "red"


# `runner predict RUN_DIR FILES...`: the predictions as a table, CSV or JSON.


def predict_rows(args: argparse.Namespace) -> int:
    """Print the predictions for the files. Raises RunnerError."""
    found = predict(Path(args.run), [Path(file) for file in args.files], args.code)
    if args.json:
        sys.stdout.write(json.dumps([*_objects(found, args.top)], indent=2) + "\n")
    elif args.csv:
        rows = [_columns(found), *_rows(found, args.top)]
        sys.stdout.write(csv_text([[spreadsheet_cell(cell) for cell in row] for row in rows]))
    else:
        _predict_print(found, args.top)
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


def _predict_print(found: Predictions, top: int) -> None:
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

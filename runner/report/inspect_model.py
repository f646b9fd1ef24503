"""`runner inspect FILE`: what an ONNX file has, and whether it can be trained here."""

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, some
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
from runner.report.terminal import open_console, print_line, print_table
from runner.types import TensorType

PLACES = 3  # nodes shown for an operator


def main(args: Namespace) -> int:
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

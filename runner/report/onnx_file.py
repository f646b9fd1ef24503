"""What is said about an ONNX file: what it has, and whether its imported network computes what onnxruntime computes.

`inspect_model` is `runner inspect FILE`, `compare_import` is `runner compare MODEL.onnx RUN`.
"""

import json
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner import dtype as dt
from runner.compile.session import Session
from runner.config.check import check
from runner.config.schema import RunConfig
from runner.core.values import Tensor
from runner.device import Device
from runner.errors import ConfigError, DataError, InternalError, MismatchError, RunnerError, some
from runner.experiment.build import samples_of
from runner.experiment.evaluate import saved_values
from runner.experiment.run import run_environment
from runner.importer.batch import axes_of_file, length_of
from runner.importer.file import OnnxGraph, OnnxNode, read_model, with_all_outputs
from runner.importer.network import AllValues, OnnxNetwork, main_part
from runner.importer.refusals import unsupported
from runner.importer.roles import CONSTANT, STATIC, roles_of
from runner.importer.tensors import own_tensors
from runner.importer.trial import Promise, tried
from runner.observe.tolerance import Measures, Tolerance, measure
from runner.report.record import open_console, print_line, print_table
from runner.types import TensorType

if TYPE_CHECKING:
    from rich.console import Console

# `runner inspect FILE`: what an ONNX file has, and whether it can be trained here.

PLACES = 3  # nodes shown for an operator
PLACE = "node", "line", "scope"  # the rows of an error that say where it is


def inspect_model(args: Namespace) -> int:
    """Print inputs, outputs, parameters and operators. Returns 0 if a training step can be made, otherwise 2."""
    path = Path(args.file)
    found = inspect(path)
    if args.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    else:
        _print_content(found)
    return 0 if found["trainable"] else ConfigError.exit_code


def inspect(path: Path) -> dict[str, Any]:
    """What `--json` prints. `trainable` is false when no training step can be made; `reasons` then says why.

    `rows` are the batch sizes, and `assumed` the lengths of free axes, for which one was made; `depends_on_data` says
    that the reasons follow from lengths that only data have.
    """
    found = _content(path, read_model(path))
    try:
        trial = tried(path)
    except ConfigError as error:
        trial = Promise((), {}, [error])
    return found | {
        "rows": [*trial.rows],
        "assumed": {**trial.lengths},
        "trainable": bool(trial.rows),
        "depends_on_data": trial.depends,
        "reasons": _reasons(trial.refusals),
    }


def _content(path: Path, graph: OnnxGraph) -> dict[str, Any]:
    graph = own_tensors(graph).graph
    try:
        part = main_part(graph)
    except ConfigError:  # a reason that the trial has too
        part = graph
    tensors = list(_tensors(part))
    return {
        "file": str(path),
        "opsets": {node.domain or "ai.onnx": node.opset for node in graph.all_nodes()},
        "inputs": [str(value) for value in graph.inputs],
        "outputs": [str(value) for value in graph.outputs],
        "batch": {value.name: axis for value, axis in zip(part.inputs, axes_of_file(part), strict=True)},
        "parameters": [row for row in tensors if row["role"] != CONSTANT],
        "constants": [row for row in tensors if row["role"] == CONSTANT],
        "operators": list(_operators(part, unsupported(part))),
    }


def _reasons(refusals: Sequence[RunnerError]) -> list[dict[str, Any]]:
    """Refusals with their rows; those that say the same of several nodes are one."""
    nodes = defaultdict[tuple[Any, ...], list[str]](list)
    for error in refusals:
        rows = tuple((label, text) for label, text in error.rows.items() if label not in PLACE)
        nodes[error.what, rows].append(
            ": ".join(error.rows[label] for label in ("node", "line") if label in error.rows)
        )
    return [
        {"what": what, "rows": dict(rows), "nodes": list(dict.fromkeys(filter(None, places)))}
        for (what, rows), places in nodes.items()
    ]


def _tensors(graph: OnnxGraph) -> Iterator[dict[str, Any]]:
    """The tensors of floats that operators read as values, with their roles, reasons and nodes."""
    readers = defaultdict[str, list[str]](list)
    for node in graph.all_nodes():
        for name in node.reads:
            readers[name].append(node.name)
    for name, role in roles_of(graph).items():
        array = graph.initializers.get(name)
        if array is not None and array.dtype.kind == "f" and role.reason != STATIC:
            about = {"name": name, "type": str(TensorType.of(array)), "size": array.size, "nodes": readers[name]}
            yield about | {"role": role.kind, "reason": role.reason, "in_doubt": role.in_doubt}


def _operators(graph: OnnxGraph, missing: dict[str, Any]) -> Iterator[dict[str, Any]]:
    nodes = graph.all_nodes()
    for operator, count in sorted(Counter(node.operator for node in nodes).items()):
        places = [node.name for node in nodes if node.operator == operator]
        yield {"operator": operator, "count": count, "supported": operator not in missing, "nodes": places}


def _print_content(found: dict[str, Any]) -> None:
    console = open_console()
    opsets = ", ".join(f"{domain} {version}" for domain, version in found["opsets"].items())
    print_line(console, f"{found['file']}: opset {opsets}")
    for key in ("inputs", "outputs"):
        for value in found[key]:
            print_line(console, f"  {key[:-1]:<8} {value}")
    for name, axis in found["batch"].items():
        place = "as rows of the data fit, or network.batch_axis" if axis is None else f"axis {axis}"
        print_line(console, f"  batch    {place} of {name}")
    parameters = found["parameters"]
    total = sum(one["size"] for one in parameters)
    rows = [_tensor_row(one) for one in (*parameters, *found["constants"])]
    title = f"{len(parameters)} parameters, {total:,} elements; {len(found['constants'])} constants"
    print_table(console, [("name", ""), ("type", ""), ("role", ""), ("why", ""), ("where", "")], rows, title)
    if any(one["in_doubt"] for one in (*parameters, *found["constants"])):
        print_line(
            console, "where it is in doubt: network.train=[NAME, ...] and network.constant=[NAME, ...] overrule it"
        )
    rows = [_operator_row(one) for one in found["operators"]]
    print_table(console, [("operator", ""), ("nodes", ""), ("", ""), ("where", "")], rows, "Operators")
    _print_verdict(console, found)


def _print_verdict(console: "Console", found: dict[str, Any]) -> None:
    lengths = ", ".join(f"{name} = {length}" for name, length in found["assumed"].items())
    if found["trainable"]:
        print_line(console, f"can be trained: runner network=onnx network.path={found['file']} dataset=...", "green")
        batches = " and ".join(map(str, found["rows"]))
        assumed = f", and {lengths}, which the data may have otherwise" if lengths else ""
        print_line(console, f"  traced, differentiated and lowered for batches of {batches}{assumed}")
        if found["reasons"]:
            print_line(console, "  not for batches of another size, so it needs dataset.batch_size:", "yellow")
    elif found["depends_on_data"]:
        example = f"; with {lengths} it fails" if lengths else ""
        text = f"only a run can show whether it can be trained, since data decide lengths{example}:"
        print_line(console, text, "yellow")
    else:
        print_line(console, "cannot be trained:", "bold red")
    for reason in found["reasons"]:
        _print_reason(console, reason)


def _print_reason(console: "Console", reason: dict[str, Any]) -> None:
    nodes = reason["nodes"]
    more = [f"and {len(nodes) - PLACES} more"] if len(nodes) > PLACES else []
    rows = reason["rows"] | ({"nodes": "\n".join([*nodes[:PLACES], *more])} if nodes else {})
    print_line(console, f"  {reason['what']}")
    width = max(map(len, rows), default=0)
    for label, text in rows.items():
        for k, line in enumerate(text.split("\n")):
            print_line(console, f"    {'' if k else label:<{width}}  {line}")


def _tensor_row(one: dict[str, Any]) -> tuple[list[str], str]:
    why = f"in doubt: {one['reason']}" if one["in_doubt"] else one["reason"]
    where = some(one["nodes"], PLACES) if len(one["nodes"]) > 1 else ""
    return [one["name"], one["type"], one["role"], why, where], "yellow" if one["in_doubt"] else ""


def _operator_row(one: dict[str, Any]) -> tuple[list[str], str]:
    state = "supported" if one["supported"] else "not supported"
    cells = [one["operator"], str(one["count"]), state, some(one["nodes"], PLACES)]
    return cells, "" if one["supported"] else "red"


# `runner compare MODEL.onnx RUN`: the imported network of a run against onnxruntime on the file itself.

ROWS = 8  # samples that are compared, unless the file fixes their number


def compare_import(args: Namespace) -> int:
    """Compare and print. Returns 0 if all values agree, otherwise 6. Raises ConfigError and DataError."""
    found = compare(Path(args.a), check(saved_values(Path(args.b))), Tolerance(args.rtol, args.atol))
    if args.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    else:
        _print_comparison(found)
    return 0 if found["same"] else MismatchError.exit_code


def compare(model: Path, config: RunConfig, tolerance: Tolerance) -> dict[str, Any]:
    """The values of the file's graph with its weights, in the mode of the run and in onnxruntime, in node order.

    Inference on the first samples of the test split. Raises ConfigError when the run has another kind of network.
    """
    if config.network.name != "onnx":
        rows = {"network": config.network.name, "allowed": "onnx", "repair": "a run with network=onnx"}
        raise ConfigError("the run has no network of an ONNX file", **rows)
    with run_environment(config):
        network = OnnxNetwork(str(model), config.network.output, logits=False, batch_axis=config.network.batch_axis)
        if empty := [str(value) for value in network.graph.inputs if 0 in (value.shape or ())]:
            rows = {"inputs": ", ".join(empty), "repair": "a model with free axes"}
            raise ConfigError("an input of an ONNX file has no elements", file=model, **rows)
        inputs = _inputs(config, network)
        ours = _values(network, inputs)
    session = _session(model, list(ours))
    ends = zip(network.graph.inputs, inputs, network.batch_axes, strict=True)
    feeds = {value.name: np.ascontiguousarray(np.moveaxis(x, 0, axis)) for value, x, axis in ends}
    theirs = session.run({name: feeds[name].astype(type.dtype.numpy) for name, type in session.inputs.items()})
    return _compared(network, ours, theirs, tolerance)


def _session(model: Path, values: Sequence[str]) -> Session:
    """onnxruntime on the file itself. Raises DataError where it does not accept the file."""
    try:
        return Session(with_all_outputs(model, values), Device(threads=1))
    except InternalError as error:
        raise DataError("onnxruntime does not accept an ONNX file", file=model).add(**error.rows) from None


def _inputs(config: RunConfig, network: OnnxNetwork) -> list[np.ndarray]:
    declared = network.graph.inputs
    data = samples_of(config.dataset, "test")
    samples = [column.sample for column in data.columns[: len(declared)]]
    network.attach_data([kind.with_shape(ROWS, *kind.shape) for kind in samples])
    length = length_of(declared, network.batch_axes)
    if length is not None and length > len(data):
        rows = {"file": str(network.file), "batch": str(length), "samples": str(len(data))}
        raise ConfigError("the batch of an ONNX file has more rows than the test split", **rows)
    with closing(data.batch(min(length or ROWS, len(data))).read(0)) as batches:
        arrays = next(iter(batches))[: len(declared)]
    kinds = [value.dtype.numpy if value.dtype else x.dtype for value, x in zip(declared, arrays, strict=True)]
    return [np.asarray(x, kind) for x, kind in zip(arrays, kinds, strict=True)]


def _values(network: OnnxNetwork, inputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    cell = AllValues(network)
    cell.set_train(False)
    outputs = cell(*map(Tensor, inputs))
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    return {name: value.asnumpy() for name, value in zip(cell.names, found, strict=True)}


def _compared(
    network: OnnxNetwork, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], tolerance: Tolerance
) -> dict[str, Any]:
    largest, first = 0.0, None
    for node in network.graph.nodes:
        for name in node.outputs:
            if name in ours and first is None:
                if theirs[name].dtype == np.float16:  # a run has Float32 there
                    tolerance = replace(tolerance, coarser=dt.float16)
                measures = _measured(ours[name], theirs[name], tolerance)
                largest = max(largest, measures.l2 if measures else np.inf)
                if measures is None or measures.outside:
                    first = _difference(network.file, node, name, ours[name], theirs[name], measures)
    finite = float(largest) if np.isfinite(largest) else None
    return {"same": first is None, "values": len(ours), "largest_distance": finite, "first_difference": first}


def _measured(a: np.ndarray, b: np.ndarray, tolerance: Tolerance) -> Measures | None:
    return measure(a, b, tolerance) if a.shape == b.shape and a.dtype.kind == b.dtype.kind else None


def _difference(
    file: Path, node: OnnxNode, name: str, a: np.ndarray, b: np.ndarray, measures: Measures | None
) -> dict[str, Any]:
    types = {"runner": f"{a.dtype} {list(a.shape)}", "onnxruntime": f"{b.dtype} {list(b.shape)}"}
    where = {"node": node.name, "operator": f"{node.operator}, opset {node.opset}", "value": name}
    line = {"line": f"{file}:{node.number}  {node}"}
    if measures is None:
        return where | line | types
    numbers = {"outside": measures.outside, "elements": measures.elements, "max_abs": measures.max_abs}
    return where | line | types | {key: number for key, number in numbers.items() if np.isfinite(number)}


def _print_comparison(found: Mapping[str, Any]) -> None:
    console = open_console()
    if found["same"]:
        distance = f"the largest distance |A - B| / |B| is {found['largest_distance']:.1e}"
        print_line(console, f"all {found['values']} values agree with onnxruntime; {distance}", "green")
        return
    print_line(console, "the first value that differs from onnxruntime's", "bold red")
    first = found["first_difference"]
    width = max(map(len, first))
    for key, value in first.items():
        print_line(console, f"  {key:<{width}}  {value}")

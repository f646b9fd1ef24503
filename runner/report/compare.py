"""`runner compare RUN_A RUN_B`: compares the dumps if both runs have one, otherwise configs and metrics."""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from runner import rundir
from runner.compile.session import Session
from runner.config.check import check
from runner.config.schema import RunConfig
from runner.core.values import Tensor
from runner.device import Device
from runner.errors import ConfigError, DataError, MismatchError, StorageError
from runner.experiment.build import samples_of
from runner.experiment.evaluate import saved_values
from runner.experiment.run import run_environment
from runner.importer.file import OnnxNode, with_all_outputs
from runner.importer.network import AllValues, OnnxNetwork
from runner.observe.tolerance import Measures, Tolerance, measure
from runner.report.diff_metrics import MetricTolerance, Row, compare_runs
from runner.report.dump import tables as dumps
from runner.report.dump.reader import find_iterations
from runner.report.format import csv_text, markdown, tables, verdict
from runner.report.record import RunRecord, open_console, print_line, print_table


def main(args: Namespace) -> int:
    """Compare two runs, or an .onnx file with a run, and print the result. Returns 0 if they agree, otherwise 6.

    Raises ConfigError for mutually exclusive flags, and the errors of the dump comparison.
    """
    if Path(args.a).suffix == ".onnx":
        return compare_import(args)
    metric_flags = [f"--{name}" for name in ("csv", "md", "metrics") if getattr(args, name)]
    dump_flags = [f"--{name}" for name in ("all", "dumps", "strict") if getattr(args, name)]
    if metric_flags and dump_flags:
        reason = f"{dump_flags[0]} and {metric_flags[0]}"
        raise ConfigError("wrong usage", reason=reason, hint="runner compare --help")
    runs = Path(args.a), Path(args.b)
    missing = [] if dump_flags else _runs_without_dump(runs)
    if metric_flags or missing:
        return _compare_metrics(runs, missing, args)
    return dumps.main(runs, Tolerance(args.rtol, args.atol), args.all, args.strict, args.json)


def compare_run_directories(folders: Sequence[Path], tolerance: MetricTolerance) -> Row:
    """`compare_runs` for two folders. Raises ConfigError if one is not a run directory."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError("the run does not exist", path=folder, hint="runner ls lists runs")
        if not any((folder / name).exists() for name in (rundir.STATUS, rundir.METRICS, rundir.HYDRA)):
            raise rundir.not_a_run(folder)
    a, b = map(RunRecord, folders)
    return compare_runs(a, b, tolerance)


def has_dump(folder: Path) -> bool:
    """Whether a run has at least one dump that can be located."""
    try:
        find_iterations(folder)
    except (DataError, StorageError):
        return False
    except ConfigError:  # several dumps
        return True
    return True


def _runs_without_dump(folders: Sequence[Path]) -> list[Path]:
    """The runs that have no dump; none if one of the folders is not a run directory: it may be a dump itself."""
    if not all((folder / rundir.STATUS).is_file() for folder in folders):
        return []
    return [folder for folder in folders if not has_dump(folder)]


def _compare_metrics(runs: Sequence[Path], missing: Sequence[Path], args: Namespace) -> int:
    tolerance = MetricTolerance(MetricTolerance.rtol if args.rtol is None else args.rtol, args.atol)
    found = compare_run_directories(runs, tolerance)
    found["notes"] += [f"there is no dump in {run}, so operators are not compared" for run in missing]
    if args.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    elif args.md or args.csv:
        print(markdown(found) if args.md else csv_text(found), end="")  # noqa: T201
    else:
        _print(found)
    return 0 if found["same"] else MismatchError.exit_code


def _print(found: Row) -> None:
    console = open_console()
    print_line(console, verdict(found), "green" if found["same"] else "bold red")
    for table in tables(found):
        rows = [(row, "red" if number in table.marked else "") for number, row in enumerate(table.rows)]
        print_table(console, [(name, "") for name in table.columns], rows, table.title)
    for note in found["notes"]:
        print_line(console, f"note: {note}")


# `runner compare MODEL.onnx RUN`: the imported network of a run against onnxruntime on the file itself.

ROWS = 8  # samples that are compared, unless the file fixes their number


def compare_import(args: Namespace) -> int:
    """Compare and print. Returns 0 if all values agree, otherwise 6. Raises ConfigError and DataError."""
    found = compare(Path(args.a), check(saved_values(Path(args.b))), Tolerance(args.rtol, args.atol))
    if args.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    else:
        _compare_import_print(found)
    return 0 if found["same"] else MismatchError.exit_code


def compare(model: Path, config: RunConfig, tolerance: Tolerance) -> dict[str, Any]:
    """The values of the file's graph with its weights, in the mode of the run and in onnxruntime, in node order.

    Inference on the first samples of the test split. Raises ConfigError when the run has another kind of network.
    """
    if config.network.name != "onnx":
        rows = {"network": config.network.name, "allowed": "onnx", "repair": "a run with network=onnx"}
        raise ConfigError("the run has no network of an ONNX file", **rows)
    with run_environment(config):
        network = OnnxNetwork(str(model), config.network.output, logits=False)
        inputs = _inputs(config, network)
        ours = _values(network, inputs)
    session = Session(with_all_outputs(model, list(ours)), Device(threads=1))
    feeds = {value.name: x for value, x in zip(network.graph.inputs, inputs, strict=True)}
    theirs = session.run({name: feeds[name] for name in session.inputs})
    return _compared(network, ours, theirs, tolerance)


def _inputs(config: RunConfig, network: OnnxNetwork) -> list[np.ndarray]:
    declared = network.graph.inputs
    fixed = [value.shape[0] for value in declared if value.shape and isinstance(value.shape[0], int)]
    data = samples_of(config.dataset, "test")
    with closing(data.batch(min(fixed[0] if fixed else ROWS, len(data))).read(0)) as batches:
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


def _compare_import_print(found: Mapping[str, Any]) -> None:
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

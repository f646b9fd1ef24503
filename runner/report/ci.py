"""Continuous integration: golden files and `runner golden`, JUnit files of `--junit`, annotations of GitHub Actions.

A golden file has the results of a run, the inputs that determine them, and the tolerance on other machines: `from_run`,
`read` and `write` a `Golden`, `compare` two of them, `main` is the command. `run_and_report` writes a JUnit file.
"""

import hashlib
import math
import os
import re
import time
import xml.etree.ElementTree as xml
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner import rundir
from runner.config.schema import changed_keys
from runner.errors import ConfigError, DataError, MismatchError, RunnerError
from runner.experiment.manifest import ARITHMETIC
from runner.host import arithmetic, files, json
from runner.host.files import real_path
from runner.host.process import exit_code
from runner.report import list as list_runs
from runner.report.record import Metrics, RunRecord, array_of, cells, format_value, is_number, size_text
from runner.train.checkpoint import state

# Golden files.

FORMAT, VERSION = "runner golden", 1
MAX_BYTES = 16 << 20
MAY_DIFFER = ("cpu", "threads", "providers", "optimization_level", "packages.*")
# Machines round differently, and training amplifies that: after a hundred steps only the trend of the loss agrees.
TOLERANCE = {
    "losses": {"rtol": 1e-3, "atol": 1e-6, "steps": 100},
    "loss": {"rtol": 0.2, "atol": 0.02},
    "accuracy": {"rtol": 0.0, "atol": 0.02},
    "confusion_matrix": {"rtol": 0.2, "atol": 10.0},
    "*": {"rtol": 0.2, "atol": 0.02},
    "tensors": {"rtol": 0.02, "atol": 1e-6},
}
_MACHINE = ("cpu", "threads", "providers", "optimization_level")
# Without runner itself, whose changes the check must find.
_COMPUTING = ("packages.numpy", "packages.onnx", "packages.onnxruntime")
_STEP = re.compile("[0-9]{1,18}")
_DENSE, _PER_DECADE = 10, 8  # steps whose losses are listed: the first ten, then eight per power of ten


@dataclass(frozen=True)
class Golden:
    """The content of a golden file."""

    key: dict[str, Any]
    steps: int
    metrics: dict[str, Any]
    losses: dict[str, Any]
    tensors: dict[str, dict[str, Any]]
    may_differ: tuple[str, ...] = MAY_DIFFER
    exact: bool = True
    tolerance: dict[str, dict[str, float]] = field(default_factory=lambda: {**TOLERANCE})

    def allows_difference(self, name: str) -> bool:
        """Whether this name in the key may differ: what computes always, and what the file allows."""
        return name.startswith(f"{ARITHMETIC}.") or any(fnmatchcase(name, pattern) for pattern in self.may_differ)

    def bound(self, name: str) -> dict[str, float]:
        """The tolerance of a metric, of `losses` or of `tensors`."""
        return self.tolerance.get(name) or self.tolerance.get("*") or {"rtol": 0.0, "atol": 0.0}


def from_run(folder: Path) -> Golden:
    """The results of a finished run.

    Raises ConfigError if it is not finished, DataError without a valid checkpoint or with a damaged journal.
    """
    run = RunRecord(folder)
    if not folder.is_dir() or not run.status:
        raise rundir.not_a_run(folder)
    if run.state != "ok" and run.status.get("exit_code") != 6:  # a run that does not meet `expect` is finished too
        hint = f"runner resume {folder}" if rundir.can_be_resumed(folder) else None
        raise ConfigError("the run is not finished", path=folder, status=run.state, hint=hint)
    run.refuse_zeros()
    if lines := run.metrics.damaged + run.metrics.torn:
        raise DataError("the journal of the run has damaged lines", file=folder / rundir.METRICS, lines=lines)
    found, damaged = state.newest(folder / rundir.CHECKPOINTS, run.checkpoint_prefix)
    if found is None:
        raise DataError("no valid checkpoint", path=folder, found="; ".join(damaged) or "none")
    # The manifest has the actual number of threads. The check is for changes of the code, also that of the user.
    excluded = ("version.", "device.threads", "code.")
    key = {name: value for name, value in found.identity.items() if not name.startswith(excluded)}
    key |= {name: run.manifest.get(name) for name in (*_MACHINE, *_COMPUTING)}
    key |= {name: value for name, value in run.manifest.items() if name.startswith(f"{ARITHMETIC}.")}
    tensors = {name: _tensor(array) for name, array in sorted(found.arrays.items())}
    return Golden(key, run.step, {**run.results, **run.arrays}, _losses(run.metrics), tensors)


def read(path: Path) -> Golden:
    """Read and validate a golden file. Raises DataError if it is missing or invalid."""
    try:
        content = files.read_bytes(path, MAX_BYTES)
    except DataError as error:
        raise error.add(hint="runner golden --update FILE RUN_DIR writes one") from None
    try:
        values = json.parse_data(content)
    except DataError as error:
        raise DataError("a golden file is not JSON", file=path, **error.rows) from None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError("not a golden file", file=path, expected=f'"format": "{FORMAT}"')
    if (version := values.pop("version", None)) != VERSION:
        raise DataError("unknown version of golden files", file=path, expected=VERSION, found=version)
    try:
        may_differ = values.get("may_differ", list(MAY_DIFFER))
        golden = Golden(**{**values, "may_differ": tuple(may_differ) if isinstance(may_differ, list) else may_differ})
        problem = _problem(golden)
    except TypeError:
        problem = f"keys {', '.join(values)}"
    if problem:
        raise DataError("a golden file is invalid", file=path, found=problem)
    return golden


def write(path: Path, golden: Golden) -> None:
    """Write a golden file. Raises StorageError."""
    files.write_json(path, {"format": FORMAT, "version": VERSION, **asdict(golden)})


def _problem(golden: Golden) -> str | None:
    """What is invalid in a file, which users may have edited; None if nothing is."""
    groups = (golden.key, golden.metrics, golden.losses, golden.tensors, golden.tolerance)
    if not all(isinstance(group, dict) for group in groups) or not isinstance(golden.losses.get("at"), dict):
        return "a part that is not a group of keys"
    if not all(is_number(value) or array_of(value) is not None for value in golden.metrics.values()):
        return "a metric that is neither a number nor nested lists of numbers"
    if not all(map(is_number, golden.losses["at"].values())):
        return "a loss that is not a number"
    if not all(_STEP.fullmatch(step) for step in golden.losses["at"]) or type(golden.steps) is not int:
        return "a step that is not an integer"
    if not isinstance(golden.losses.get("sha256"), str):
        return "losses without their sha256"
    patterns = golden.may_differ if isinstance(golden.may_differ, tuple) else (None,)
    if not all(isinstance(name, str) for name in patterns) or not isinstance(golden.exact, bool):
        return "may_differ must be a list of names, and exact true or false"
    for name, bound in golden.tolerance.items():
        if not isinstance(bound, dict) or not all(is_number(value) and value >= 0 for value in bound.values()):
            return f"tolerance.{name}: {bound}"
    return None if all(map(_is_tensor, golden.tensors.values())) else "a tensor without shape, dtype, sha256 or norm"


def _is_tensor(value: object) -> bool:
    shape = {"shape": list, "dtype": str, "sha256": str, "norm": float}
    return isinstance(value, dict) and json.fits(value, shape) and is_number(value["norm"])


def _losses(metrics: Metrics) -> dict[str, Any]:
    rows = list(zip(metrics.steps.tolist(), metrics.losses.tolist(), strict=True))
    content = "".join(f"{step} {loss!r}\n" for step, loss in rows)
    listed = {_bucket(step): (step, loss) for step, loss in reversed(rows)}  # the first step of each bucket
    at = {str(step): loss for step, loss in sorted(listed.values())}
    return {"sha256": hashlib.sha256(content.encode()).hexdigest(), "at": at}


def _bucket(step: int) -> float:
    return step if step <= _DENSE else _DENSE + math.floor(_PER_DECADE * math.log10(step / _DENSE)) + 1


def _tensor(array: np.ndarray) -> dict[str, Any]:
    content = np.ascontiguousarray(array).tobytes()
    norm = float(np.linalg.norm(array.astype(np.float64).ravel()))
    digest = hashlib.sha256(content).hexdigest()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest, "norm": norm}


# Comparison of a run with a golden file, value by value.


class ComparedValue(NamedTuple):
    """A value of the file and of the run; `allowed` is the tolerance as text, empty if they must be equal."""

    name: str
    was: Any
    now: Any
    differs: bool
    allowed: str = ""


def compare(golden: Golden, found: Golden) -> tuple[list[ComparedValue], list[str]]:
    """All compared values, and the names in the key that differ although nothing is wrong (`may_differ`).

    If the key differs in values that must be equal, only these are returned: the results are not comparable.
    """
    names = [name for name in changed_keys(golden.key, found.key) if not _is_without_effect(name, golden, found)]
    foreign = [
        ComparedValue(f"key.{name}", golden.key.get(name), found.key.get(name), True)
        for name in names
        if not golden.allows_difference(name)
    ]
    foreign += [ComparedValue("steps", golden.steps, found.steps, True)] if golden.steps != found.steps else []
    if foreign:
        return foreign, []
    compare_values = _bit_for_bit if golden.exact and not names else _within_tolerance
    return list(compare_values(golden, found)), names


def _is_without_effect(name: str, golden: Golden, found: Golden) -> bool:
    """Whether a difference of the machines changes no bit: that of processors of one class, and of C libraries if no
    operator depends on it. Older files have no class, so there another processor may change them."""
    known, operators = f"{ARITHMETIC}.class", f"{ARITHMETIC}.{arithmetic.DEPENDS}"
    if known not in golden.key:
        return name.startswith(f"{ARITHMETIC}.")
    if name == f"{ARITHMETIC}.{arithmetic.LIBC}":
        both = golden.key, found.key
        return arithmetic.has_same_bits(*(key.get(name) for key in both), *(key.get(operators) for key in both))
    if name == operators:  # a change of the code, which the check must find
        return True
    return name == "cpu" and golden.key[known] == found.key.get(known) == arithmetic.V3


def _bit_for_bit(golden: Golden, found: Golden) -> Iterator[ComparedValue]:
    for name, was, now in _both(golden.metrics, found.metrics):
        yield from _compare_metric(name, was, now, None)
    was, now = golden.losses["sha256"], found.losses["sha256"]
    yield _first_loss(golden, found) if was != now else ComparedValue("losses", was, now, False)
    for name, a, b in _both(golden.tensors, found.tensors):
        differs = a is None or b is None or _identity(a) != _identity(b)
        yield ComparedValue(f"tensor {name}", _short(a), _short(b), differs)


def _within_tolerance(golden: Golden, found: Golden) -> Iterator[ComparedValue]:
    for name, was, now in _both(golden.metrics, found.metrics):
        yield from _compare_metric(name, was, now, golden.bound(name))
    bound = golden.bound("losses")
    last = bound.get("steps", golden.steps)
    for step, was in golden.losses["at"].items():
        if int(step) <= last:
            yield _compare_floats(f"loss at step {step}", was, found.losses["at"].get(step), bound)
    for name, a, b in _both(golden.tensors, found.tensors):
        if a is None or b is None or (a["shape"], a["dtype"]) != (b["shape"], b["dtype"]):
            yield ComparedValue(f"tensor {name}", _type(a), _type(b), True)
        else:
            yield _compare_floats(f"norm of {name}", a["norm"], b["norm"], golden.bound("tensors"))


def _both(golden: dict[str, Any], found: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The names of both, with their values; None where one lacks it."""
    return ((name, golden.get(name), found.get(name)) for name in golden | found)


def _compare_metric(name: str, was: Any, now: Any, bound: dict[str, float] | None) -> Iterator[ComparedValue]:
    """A row for a number; for an array a row for each element that differs, or one row if none does.

    Without a bound values must be equal.
    """
    a, b = array_of(was), array_of(now)
    if a is None and b is None:
        yield ComparedValue(name, was, now, was != now) if bound is None else _compare_floats(name, was, now, bound)
    elif a is None or b is None or a.shape != b.shape:
        yield ComparedValue(name, _size(was), _size(now), True)
    else:
        rtol, atol = (bound or {}).get("rtol", 0.0), (bound or {}).get("atol", 0.0)
        differing = list(cells(a, b, abs(b - a) > atol + rtol * abs(a)))
        allowed = "" if bound is None else _tolerance_text(rtol, atol)
        yield from (ComparedValue(f"{name}{place}", x, y, True, allowed) for place, x, y in differing)
        if not differing:
            yield ComparedValue(name, size_text(was), size_text(now), False, allowed)


def _size(value: Any) -> Any:
    return size_text(value) if isinstance(value, list) else value


def _compare_floats(name: str, was: float | None, now: float | None, bound: dict[str, float]) -> ComparedValue:
    rtol, atol = bound.get("rtol", 0.0), bound.get("atol", 0.0)
    differs = was is None or now is None or abs(now - was) > atol + rtol * abs(was)
    return ComparedValue(name, was, now, differs, _tolerance_text(rtol, atol))


def _tolerance_text(rtol: float, atol: float) -> str:
    return f"rtol {rtol:g}, atol {atol:g}"


def _first_loss(golden: Golden, found: Golden) -> ComparedValue:
    """The first differing loss among those that the file lists; if these agree, an unlisted loss differs."""
    losses = found.losses["at"]
    for step, was in golden.losses["at"].items():
        if losses.get(step) != was:
            return ComparedValue(f"loss at step {step}", was, losses.get(step), True)
    return ComparedValue("losses", golden.losses["sha256"][:12], found.losses["sha256"][:12], True)


def _identity(tensor: dict[str, Any]) -> tuple[Any, ...]:
    return tensor["shape"], tensor["dtype"], tensor["sha256"]


def _type(tensor: dict[str, Any] | None) -> str | None:
    return None if tensor is None else f"{tensor['dtype']}{tensor['shape']}"


def _short(tensor: dict[str, Any] | None) -> str | None:
    return None if tensor is None else f"{_type(tensor)} sha256 {str(tensor['sha256'])[:12]}, norm {tensor['norm']:.9g}"


# `runner golden --update|--check FILE [RUN_DIR]`: writes the results of a run to a golden file, or checks a run by it.

_MAX_ROWS = 12  # of the error


def main(args: Namespace) -> int:
    """Update the file from a run, by default the newest one, or check the run against it.

    Raises MismatchError if the results differ, ConfigError and DataError for what cannot be compared.
    """
    folder = newest_run() if args.run is None else Path(args.run)
    return update(Path(args.file), folder) if args.update else check(Path(args.file), folder)


def newest_run() -> Path:
    """The newest run in the folders that `runner ls` lists. Raises ConfigError if there is none."""
    runs = list_runs.find_runs(list_runs.default_folders())
    if not runs:
        raise ConfigError("no run here", hint="runner golden --update|--check FILE RUN_DIR")
    return runs[0].folder


def update(file: Path, run: Path) -> int:
    """Write the results of a run; the settings that users edit in an existing file are kept."""
    golden = from_run(run)
    if file.exists():
        old = read(file)
        golden = replace(golden, may_differ=old.may_differ, exact=old.exact, tolerance=old.tolerance)
    write(file, golden)
    print(f"{file}: {len(golden.metrics)} metrics and {len(golden.tensors)} tensors of {run}")  # noqa: T201  output
    return 0


def check(file: Path, run: Path) -> int:
    """Check a run against the file. Raises MismatchError."""
    golden = read(file)
    found = from_run(run)
    rows, differing = compare(golden, found)
    wrong = [row for row in rows if row.differs]
    how = "bit for bit" if golden.exact and not differing else "within tolerance"
    pairs = (f"{name} {_was_is(golden.key.get(name), found.key.get(name))}" for name in differing)
    how += f" ({'; '.join(pairs)})" if differing else ""
    if wrong:
        is_foreign = any(row.name.startswith("key.") for row in wrong)
        what = "the run does not belong to this file" if is_foreign else "the results of the run have changed"
        error = MismatchError(what, file=file, run=run, compared=None if is_foreign else how)
        error.add(**{row.name: _describe(row) for row in wrong[:_MAX_ROWS]})
        error.add(more=f"{len(wrong) - _MAX_ROWS} other values" if len(wrong) > _MAX_ROWS else None)
        raise error.add(hint=f"if the change is intended: runner golden --update {file} {run}")
    print(f"unchanged, {how}: {len(rows)} values of {run}")  # noqa: T201  output
    return 0


def _describe(row: ComparedValue) -> str:
    allowed = f", allowed {row.allowed}" if row.allowed else ""
    return _was_is(row.was, row.now) + allowed


def _was_is(was: Any, now: Any) -> str:
    return f"was {format_value(was)}, is {format_value(now)}"


# `--junit FILE`: the outcome of a run or a sweep as a JUnit file, one test case per job.

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters not allowed in XML
_FAILURES = (1, MismatchError.exit_code)  # training or expectation failed; other exit codes are errors


@dataclass(frozen=True)
class JUnitCase:
    """One job. `error` is its error block; `seconds` None if unknown; a job that never began is skipped."""

    name: str
    seconds: float | None = None
    exit_code: int = 0
    error: str | None = None
    is_skipped: bool = False
    properties: dict[str, object] = field(default_factory=dict)


def run_and_report(path: Path, overrides: Sequence[str], start: Callable[[], Any]) -> Any:
    """Call `start`, write the JUnit file, and return the result: the summary of a run, or the outcomes of a sweep.

    The file is also written if `start` raises. Raises ConfigError, before anything runs, if its folder does not exist.
    """
    if not path.parent.is_dir():
        raise ConfigError("the folder of the JUnit file does not exist", value=path, missing=path.parent)
    began = time.perf_counter()
    name = " ".join(overrides) or "runner"
    try:
        result = start()
    except (RunnerError, KeyboardInterrupt) as error:
        jobs = getattr(error, "outcomes", ())
        files.write_atomically(path, document(list(map(_job, jobs)) or [_failed(name, error, began)], name))
        raise
    cases = list(map(_job, result)) if isinstance(result, list) else [_completed(name, result, began)]
    files.write_atomically(path, document(cases, name))
    return result


def document(cases: Sequence[JUnitCase], name: str) -> bytes:
    """The content of the file: `testsuites`, one `testsuite`, and a `testcase` for each job."""
    counts = {
        "tests": len(cases),
        "failures": sum(_kind(case) == "failure" for case in cases),
        "errors": sum(_kind(case) == "error" for case in cases),
        "skipped": sum(case.is_skipped for case in cases),
        "time": f"{sum(case.seconds or 0 for case in cases):.3f}",
    }
    numbers = {key: str(value) for key, value in counts.items()}
    root = xml.Element("testsuites", {"name": "runner", **numbers})
    suite = xml.SubElement(root, "testsuite", {"name": _clean(name), **numbers})
    for case in cases:
        _add(suite, case)
    xml.indent(root)
    content: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _add(suite: xml.Element, case: JUnitCase) -> None:
    time_taken = {} if case.seconds is None else {"time": f"{case.seconds:.3f}"}
    element = xml.SubElement(suite, "testcase", {"classname": "runner", "name": _clean(case.name), **time_taken})
    if case.properties:
        properties = xml.SubElement(element, "properties")
        for name, value in case.properties.items():
            xml.SubElement(properties, "property", {"name": _clean(name), "value": _clean(str(value))})
    if case.is_skipped:
        xml.SubElement(element, "skipped", {"message": "the job never began"})
    elif kind := _kind(case):
        block = _clean(case.error or f"exit code {case.exit_code}")
        sentence = block.partition("\n")[0]
        problem = xml.SubElement(element, kind, {"type": sentence.partition(":")[0], "message": sentence})
        problem.text = block


def _kind(case: JUnitCase) -> str | None:
    if case.is_skipped or (case.exit_code == 0 and case.error is None):
        return None
    return "failure" if case.exit_code in _FAILURES else "error"


def _completed(name: str, summary: dict[str, Any], began: float) -> JUnitCase:
    properties = _properties(summary.get("run_dir"), summary.get("loss"), summary.get("metrics") or {})
    return JUnitCase(name, time.perf_counter() - began, properties=properties)


def _failed(name: str, error: BaseException, began: float) -> JUnitCase:
    seconds = time.perf_counter() - began
    if isinstance(error, RunnerError):
        return JUnitCase(name, seconds, error.exit_code, str(error))
    return JUnitCase(name, seconds, exit_code(error), f"{type(error).__name__}: stopped by a signal")


def _job(outcome: Any) -> JUnitCase:
    """The case of a `runner.experiment.sweep.journal.Outcome`."""
    name = f"{outcome.number}: {' '.join(outcome.overrides)}"
    if outcome.status == "missing":
        return JUnitCase(name, is_skipped=True)
    properties = _properties(outcome.folder, outcome.loss, outcome.metrics)
    error = outcome.error or (None if outcome.status == "ok" else f"{outcome.status}: exit code {outcome.exit_code}")
    return JUnitCase(name, _seconds(outcome.folder), outcome.exit_code, error, properties=properties)


def _properties(folder: object, loss: float | None, metrics: dict[str, Any]) -> dict[str, object]:
    values = {"run_dir": folder, "loss": loss, **metrics}
    return {name: value for name, value in values.items() if value is not None and not isinstance(value, list)}


def _seconds(folder: Path | None) -> float | None:
    started, finished = (folder and RunRecord(folder).time(name) for name in ("started", "finished"))
    return (finished - started).total_seconds() if started and finished else None


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


# Errors on standard error, and as annotations of GitHub Actions, which shows them at the line of a file.

_LOCATION = re.compile(r"(?P<file>[^\s:()]+\.\w+)(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<in>\d+)\))?")


def annotations(block: str) -> Iterator[str]:
    """One annotation for each error of a block as runner prints it: a sentence, followed by indented rows."""
    for error in re.split(r"\n(?=\S)", block.strip()):
        sentence = error.partition("\n")[0]
        location = _location(error)
        properties = ",".join(f"{name}={_property(value)}" for name, value in [*location.items(), ("title", sentence)])
        yield f"::error {properties}::{_message(error)}"


def _location(error: str) -> dict[str, str]:
    """File and line from the first row that names an existing file, relative to the checkout if inside of it."""
    for row in error.splitlines()[1:]:
        for found in _LOCATION.finditer(row):
            path = Path(found["file"])
            if path.is_file():
                values = {"file": _relative(path), "line": found["line"] or found["in"], "col": found["column"]}
                return {name: value for name, value in values.items() if value}
    return {}


def _relative(path: Path) -> str:
    root = real_path(Path(os.environ.get("GITHUB_WORKSPACE") or "."))
    absolute = real_path(path)
    return str(absolute.relative_to(root)) if absolute.is_relative_to(root) else str(path)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")

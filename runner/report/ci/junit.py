"""`--junit FILE`: a run or a sweep as a file that CI systems show, one test case for each job."""

import re
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, MismatchError, RunnerError
from runner.host import files
from runner.host.signals import Terminated
from runner.report.record import Record

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML does not have
_FAILURES = (1, MismatchError.exit_code)  # what the job is about went wrong; all else is an error


@dataclass(frozen=True)
class Case:
    """One job. `error` is its block; `seconds` None when nobody knows; a job that never began is skipped."""

    name: str
    seconds: float | None = None
    exit_code: int = 0
    error: str | None = None
    is_skipped: bool = False
    properties: dict[str, object] = field(default_factory=dict)


def reported(path: Path, overrides: Sequence[str], start: Callable[[], Any]) -> Any:
    """What `start` returns (the summary of a run, or the outcomes of a sweep), after the file was written.

    It is also written when `start` raises. Raises ConfigError, before anything is run, when the file has no place.
    """
    if not path.parent.is_dir():
        raise ConfigError("the folder of the JUnit file does not exist", value=path, missing=path.parent)
    began = time.perf_counter()
    name = " ".join(overrides) or "runner"
    try:
        ended = start()
    except (RunnerError, KeyboardInterrupt) as error:
        jobs = getattr(error, "outcomes", ())
        files.write_atomically(path, document(list(map(_job, jobs)) or [_failed(name, error, began)], name))
        raise
    cases = list(map(_job, ended)) if isinstance(ended, list) else [_done(name, ended, began)]
    files.write_atomically(path, document(cases, name))
    return ended


def document(cases: Sequence[Case], name: str) -> bytes:
    """The file: `testsuites`, one `testsuite`, and a `testcase` for each job."""
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
    made: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _add(suite: xml.Element, case: Case) -> None:
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
        told = xml.SubElement(element, kind, {"type": sentence.partition(":")[0], "message": sentence})
        told.text = block


def _kind(case: Case) -> str | None:
    if case.is_skipped or (case.exit_code == 0 and case.error is None):
        return None
    return "failure" if case.exit_code in _FAILURES else "error"


def _done(name: str, summary: dict[str, Any], began: float) -> Case:
    told = {"run_dir": summary.get("run_dir"), "loss": summary.get("loss"), **(summary.get("metrics") or {})}
    kept = {key: value for key, value in told.items() if value is not None}
    return Case(name, time.perf_counter() - began, properties=kept)


def _failed(name: str, error: BaseException, began: float) -> Case:
    seconds = time.perf_counter() - began
    if isinstance(error, RunnerError):
        return Case(name, seconds, error.exit_code, str(error))
    code = 143 if isinstance(error, Terminated) else 130
    return Case(name, seconds, code, f"{type(error).__name__}: a signal stopped it")


def _job(outcome: Any) -> Case:
    """Of one job of a sweep, as `runner.experiment.sweep.state.Outcome` has it."""
    name = f"{outcome.number}: {' '.join(outcome.overrides)}"
    if outcome.status == "missing":
        return Case(name, is_skipped=True)
    told = {"run_dir": outcome.folder, "loss": outcome.loss, **outcome.metrics}
    kept = {key: value for key, value in told.items() if value is not None}
    error = outcome.error or (None if outcome.status == "ok" else f"{outcome.status}: exit code {outcome.exit_code}")
    return Case(name, _seconds(outcome.folder), outcome.exit_code, error, properties=kept)


def _seconds(folder: Path | None) -> float | None:
    status = Record(folder).status if folder else {}
    try:
        times = [datetime.fromisoformat(str(status.get(name))) for name in ("started", "finished")]
    except ValueError:
        return None
    return (times[1] - times[0]).total_seconds()


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)

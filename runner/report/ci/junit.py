"""`--junit FILE`: the outcome of a run or a sweep as a JUnit file, one test case per job."""

import re
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, MismatchError, RunnerError
from runner.host import files
from runner.host.process import exit_code
from runner.report.record import RunRecord

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

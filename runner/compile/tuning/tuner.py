"""The tuning of a training step on this machine: looked up, or searched for and kept."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from runner.compile.passes import PASSES, optimize
from runner.compile.tuning import cache, search
from runner.core.tracer import trace
from runner.device import UNTUNED, Device
from runner.errors import StorageError
from runner.host.files import locked, make_directory, write_json
from runner.types import TensorType

Report = dict[str, Any]
_LOG = logging.getLogger("runner")


def find_tuning(
    step: Callable[..., object], arrays: Sequence[np.ndarray], device: Device, ways: Sequence[str], limit: float
) -> Report:
    """The fastest way to execute a training step (a function of its inputs) with inputs such as `arrays`.

    `tuning` as `cache.written` gives it, `source` (measured or cache), the `file` where it is kept (None when that
    cannot be written), `usual_ms` and `tuned_ms` of a step, and how far the search went, as in `Result`. One process at
    a time searches for the same step; the others wait for what it finds. Raises what compiling and the device raise.
    """
    graph = optimize(trace(step, [TensorType.of(array) for array in arrays], "train_step"), PASSES)
    facts = cache.facts(graph, device, ways)
    path = cache.path_of(facts)
    if (found := cache.read(path, facts)) is not None:
        return _report(found, "cache", path)
    with ExitStack() as stack:
        keeps = _kept(lambda: stack.enter_context(_alone(path)))
        if (found := cache.read(path, facts)) is not None:  # by the process that was waited for
            return _report(found, "cache", path)
        result = search.Search(graph, arrays, device, ways, limit, _LOG.info).result()
        made = {"facts": facts, **asdict(result), "tuning": cache.written(result.tuning)}
        keeps = keeps and _kept(lambda: write_json(path, made))
    return _report(made, "measured", path if keeps else None)


def report_lines(report: Report) -> Iterator[str]:
    """The report for the console."""
    before, after = report["usual_ms"], report["tuned_ms"]
    how = f"{report['tried']} of {report['candidates']} ways tried in {report['seconds']:.1f} s"
    found = f"found in {report['file']}" if report["source"] == "cache" else how
    if cache.tuning_of(report["tuning"]) == UNTUNED:
        yield f"tuning: {found}; the usual step is the fastest: {before:.3f} ms"
        return
    yield f"tuning: {found}; a step takes {after:.3f} instead of {before:.3f} ms ({after / before:.2f})"
    yield from (f"  {form}: {site}" for site, form in report["tuning"]["forms"])
    usual = cache.written(UNTUNED)
    yield from (f"  {k}: {v}" for k, v in report["tuning"].items() if k != "forms" and v != usual[k])


def _report(found: Report, source: str, path: Path | None) -> Report:
    kept = {name: value for name, value in found.items() if name != "facts"}
    return {"source": source, "file": None if path is None else str(path), **kept}


def _alone(path: Path) -> AbstractContextManager[None]:
    """Inside, no other process searches for what this file keeps."""
    make_directory(path.parent)
    return locked(path.with_suffix(".lock"), wait=True)


def _kept(work: Callable[[], object]) -> bool:
    """Do what keeping needs, and return whether it could be done: a run is tuned without, too."""
    try:
        work()
    except StorageError as error:
        _LOG.warning("what the search finds cannot be kept: %s (XDG_CACHE_HOME names another folder)", error)
        return False
    return True

"""The tuning of a training step on this machine: from the cache, or from a search whose result is cached."""

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
from runner.host.console import LOG
from runner.host.files import locked, make_directory, write_json
from runner.types import TensorType

Report = dict[str, Any]


def find_tuning(
    step: Callable[..., object], arrays: Sequence[np.ndarray], device: Device, modes: Sequence[str], limit: float
) -> Report:
    """The fastest tuning of a training step (a function of its inputs) for inputs with the types of `arrays`.

    The report has `tuning` (as `cache.as_json`), `source` (measured or cache), the `file` that stores it (None when it
    cannot be written), and the other fields of `TuningResult`. One process at a time searches for the same step; others
    wait for its result. Raises what compiling and the device raise.
    """
    graph = optimize(trace(step, [TensorType.of(array) for array in arrays], "train_step"), PASSES)
    key = cache.cache_key(graph, device, modes)
    path = cache.path_for(key)
    if (found := cache.read(path, key)) is not None:
        return _report(found, "cache", path)
    with ExitStack() as stack:
        writable = _attempt(lambda: stack.enter_context(_exclusive(path)))
        if (found := cache.read(path, key)) is not None:  # written by another process meanwhile
            return _report(found, "cache", path)
        result = search.TuningSearch(graph, arrays, device, modes, limit, LOG.info).result()
        content = {"facts": key, **asdict(result), "tuning": cache.as_json(result.tuning)}
        writable = writable and _attempt(lambda: write_json(path, content))
    return _report(content, "measured", path if writable else None)


def report_lines(report: Report) -> Iterator[str]:
    """The report for the console."""
    before, after = report["usual_ms"], report["tuned_ms"]
    search = f"{report['tried']} of {report['candidates']} changes tried in {report['seconds']:.1f} s"
    source = f"found in {report['file']}" if report["source"] == "cache" else search
    if cache.parse_tuning(report["tuning"]) == UNTUNED:
        yield f"tuning: {source}; the default step is the fastest: {before:.3f} ms"
        return
    yield f"tuning: {source}; a step takes {after:.3f} instead of {before:.3f} ms ({after / before:.2f})"
    yield from (f"  {form}: {signature}" for signature, form in report["tuning"]["forms"])
    default = cache.as_json(UNTUNED)
    yield from (f"  {k}: {v}" for k, v in report["tuning"].items() if k != "forms" and v != default[k])


def _report(content: Report, source: str, path: Path | None) -> Report:
    figures = {name: value for name, value in content.items() if name != "facts"}
    return {"source": source, "file": None if path is None else str(path), **figures}


def _exclusive(path: Path) -> AbstractContextManager[None]:
    """A lock: no other process searches for the content of this file."""
    make_directory(path.parent)
    return locked(path.with_suffix(".lock"), wait=True)


def _attempt(action: Callable[[], object]) -> bool:
    """Run an action and return whether it succeeded; without a cache the search runs anyway."""
    try:
        action()
    except StorageError as error:
        LOG.warning("the result of the search cannot be cached: %s (XDG_CACHE_HOME selects another folder)", error)
        return False
    return True

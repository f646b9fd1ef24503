"""Tuning: search for the fastest form of each operator of a step by measurement (`session.auto_tune_mode`).

`find_tuning`, at the end, takes a tuning from the cache or searches for one: by trials of whole steps, in pairs.
"""

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from runner.compile.divided_session import DividedSession
from runner.compile.onnx.lower import lower
from runner.compile.passes import PASSES, layout_passes, optimize
from runner.compile.passes.order import lowerings_of, signature
from runner.compile.program import session_of, suited
from runner.compile.session import version
from runner.core.graph import Graph
from runner.core.lowering import Lowering
from runner.core.operators import Node
from runner.core.precision import OperandPrecision
from runner.core.trace import trace
from runner.core.values import Parameter
from runner.device import UNTUNED, Device, Tuning
from runner.errors import ConfigError, StorageError
from runner.host.console import LOG
from runner.host.files import locked, make_directory, write_json
from runner.host.json import config_bytes, decoded, fits, parse_config
from runner.host.machine import cpu_model, usable_cores
from runner.observe.profile.record import cost
from runner.observe.tolerance import DEFAULT
from runner.types import TensorType

# A step compiled with one tuning, and its comparison with the same step under another tuning.

BLOCK_SECONDS = 0.02  # the approximate duration of the blocks in which steps are timed
PAIRS, MIN_PAIRS = 9, 2
FASTER_SHARE = 0.75  # of the blocks must be faster: a median alone is sometimes 2% below 1 by chance
SLOWER = 1.02  # a first few blocks with at least this ratio end the comparison


class Trial:
    """A training step under a tuning. It uses the current values of the parameters and does not change them.

    `graph` is the graph before the passes of the device, `arrays` are its inputs; `nodes` are those that are executed.
    Raises what compiling and the device
    raise.
    """

    def __init__(self, graph: Graph, arrays: Sequence[np.ndarray], device: Device, tuning: Tuning) -> None:
        self.tuning = tuning
        device = replace(device, tuning=tuning)
        self.graph = optimize(graph, layout_passes(device))
        self.session = session_of(
            self.graph, lower(self.graph), suited(device, self.graph), not self.graph.has_lowerings
        )
        divided = self.session.nodes if isinstance(self.session, DividedSession) else None
        self.nodes = self.graph.nodes if divided is None else divided
        self._values = [self.session.put(array) for array in (*arrays, *(p.array for p in graph.parameters))]

    def results(self) -> list[np.ndarray]:
        """Outputs, new values of parameters, and operands of effects."""
        return [self.session.fetch(value) for value in self.session.step(self._values)]

    def seconds(self, count: int) -> float:
        """The time of `count` steps in seconds."""
        start = time.perf_counter()
        for _ in range(count):
            self.session.step(self._values)
        return time.perf_counter() - start


class PairedTiming:
    """The times of two trials: alternating blocks of steps of both, and the median of their ratios."""

    def __init__(self, reference: Trial, other: Trial) -> None:
        self.reference, self.other = reference, other
        for trial in (reference, other):
            trial.seconds(1)  # the first step allocates memory
        self.count = max(1, round(BLOCK_SECONDS / max(reference.seconds(1), 1e-6)))
        self.ratios: list[float] = []
        self.milliseconds: tuple[float, float] = (0.0, 0.0)

    def ratio(self, pairs: int = PAIRS) -> float:
        """Time of the other trial / time of the first; it ends early when the other one is clearly slower."""
        times = list(self._pairs(pairs))
        self.ratios = [b / a for a, b in times]
        a, b = (statistics.median(part) / self.count * 1e3 for part in zip(*times, strict=True))
        self.milliseconds = a, b
        return statistics.median(self.ratios)

    @property
    def is_faster(self) -> bool:
        """Whether the other trial was faster in most blocks."""
        return sum(ratio < 1 for ratio in self.ratios) >= FASTER_SHARE * len(self.ratios)

    def _pairs(self, pairs: int) -> Iterator[tuple[float, float]]:
        slower = 0
        for turn in range(pairs):
            order = (self.reference, self.other) if turn % 2 else (self.other, self.reference)
            times = {trial: trial.seconds(self.count) for trial in order}
            yield times[self.reference], times[self.other]
            slower += times[self.other] > SLOWER * times[self.reference]
            if slower == turn + 1 >= MIN_PAIRS:
                return


def results_agree(graph: Graph, expected: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> bool:
    """Whether the results of two trials agree within the tolerance of `runner compare`.

    For a parameter the error is relative to the change of its value, plus the rounding error of the value itself.
    """
    before: list[Parameter | None] = [None] * len(graph.outputs)
    before += [*graph.updates, *(None for _ in graph.effect_operands)]
    return all(_near(a, b, None if p is None else p.array) for a, b, p in zip(expected, results, before, strict=True))


def _near(expected: np.ndarray, result: np.ndarray, before: np.ndarray | None) -> bool:
    if expected.dtype.kind != "f":
        return np.array_equal(expected, result)
    kind = TensorType.of(expected).dtype
    a, b = expected.astype(np.float64), result.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return False
    finite = np.isfinite(a)
    a, b = a[finite], b[finite]
    if not a.size:
        return True
    change = a if before is None else a - before.astype(np.float64)[finite]
    scale = np.maximum(np.abs(change), np.sqrt(np.mean(np.square(change))))
    rounding = 4 * np.finfo(expected.dtype).eps * np.abs(a)
    return bool(np.all(np.abs(a - b) <= DEFAULT.relative(kind, kind) * scale + rounding))


# The search for a tuning: one operator after the other, each of its lowerings against the best step so far.
#
# Whole steps are timed, because a lowering may make adjacent operators slower: they convert its values, or lose columns
# that they shared. Operators with the most work come first. A change is kept if the step is faster by `GAIN`. At the
# end the best step must be faster than the default step by as much in a longer comparison; otherwise the default is
# kept. A lowering is excluded if its results differ from those of the default step by more than the tolerance of
# `runner compare`.

GAIN = 0.98  # a faster step takes at most this share of the time
LAST_PAIRS = 3 * PAIRS

NO_EARLIER: Mapping[str, Any] = {}
Change = tuple[str, Callable[[Trial], Tuning]]  # its description, and the new tuning from the best one so far


@dataclass
class TuningResult:
    """The result of a search: milliseconds of the default and the tuned step, and the number of changes tried.

    `inexact` are the changes that were excluded because of their results, `candidates` is the number of all changes,
    `seconds` the duration of the search.
    """

    tuning: Tuning
    usual_ms: float
    tuned_ms: float
    tried: int
    candidates: int
    seconds: float
    inexact: list[str] = field(default_factory=list)


class TuningSearch:
    """Searches for the fastest tuning of a step, for at most `limit` seconds.

    `earlier` is what a search that was cut has left in the cache: the new one tries the changes that it did not reach,
    on the best step that it found. `modes` names what may change: RL vector operators, GA convolutions and matrix
    products; both of them also onnxruntime's own layout. `report` receives a line for every gain.
    Raises what compiling and the device raise.
    """

    def __init__(
        self,
        graph: Graph,
        arrays: Sequence[np.ndarray],
        device: Device,
        modes: Sequence[str],
        limit: float,
        report: Callable[[str], None],
        earlier: Mapping[str, Any] = NO_EARLIER,
    ) -> None:
        self.graph, self.device, self.modes, self.report = graph, device, modes, report
        self.start = time.perf_counter()
        self.end = self.start + limit
        self._trial = partial(Trial, graph, arrays, device)
        self.default = self._trial(UNTUNED)
        self.expected = self.default.results()
        tuning = parse_tuning(earlier["tuning"]) if earlier else UNTUNED
        self.best = self.default if tuning == UNTUNED else self._trial(tuning)
        self.tried: int = earlier.get("tried", 0)
        self.inexact: list[str] = list(earlier.get("inexact", []))
        self.start -= earlier.get("seconds", 0.0)

    def result(self) -> TuningResult:
        """Search, and compare the best step with the default one."""
        candidates, before = 0, self.tried
        for kind in (self._operators, self._settings):
            changes = list(kind())  # of the best step so far: operators on parts of a batch have other lowerings
            for change in changes[max(0, before - candidates) :]:
                if time.perf_counter() > self.end:
                    break
                self._try(*change)
            candidates += len(changes)
        timing = PairedTiming(self.default, self.best)
        kept = timing.ratio(LAST_PAIRS) <= GAIN and timing.is_faster and self.best is not self.default
        default_ms, best_ms = timing.milliseconds
        tuning, tuned_ms = (self.best.tuning, best_ms) if kept else (UNTUNED, default_ms)
        seconds = time.perf_counter() - self.start
        return TuningResult(tuning, default_ms, tuned_ms, self.tried, candidates, seconds, self.inexact)

    def _try(self, name: str, change: Callable[[Trial], Tuning]) -> None:
        """Time a changed step against the best one, and keep the faster of them."""
        tuning = change(self.best)
        self.tried += 1
        if tuning == self.best.tuning:
            return
        trial = self._trial(tuning)
        if not results_agree(self.graph, self.expected, trial.results()):
            self.inexact.append(name)
            return
        timing = PairedTiming(self.best, trial)
        if timing.ratio() <= GAIN and timing.is_faster:
            self.best = trial
            before, after = timing.milliseconds
            self.report(f"{name}: {before:.3f} -> {after:.3f} ms")

    def _operators(self) -> Iterator[Change]:
        for name, lowerings in self._signatures():
            yield from self._lowerings(name, lowerings)

    def _signatures(self) -> list[tuple[str, list[Lowering]]]:
        """The signatures with several lowerings, those with the most work first."""
        nodes_of: dict[str, list[Node]] = {}
        for node in self.best.nodes:
            if ("GA" if node.op.precision is OperandPrecision.HALF else "RL") in self.modes:
                nodes_of.setdefault(signature(node), []).append(node)
        many = {
            name: lowerings
            for name, nodes in nodes_of.items()
            if len(lowerings := lowerings_of(nodes[0], self.device)) > 1
        }
        return sorted(((n, list(f)) for n, f in many.items()), key=lambda entry: -_work(nodes_of[entry[0]]))

    def _lowerings(self, name: str, lowerings: Sequence[Lowering]) -> Iterator[Change]:
        for lowering in map(str, lowerings):
            yield f"{name} as {lowering}", partial(_with_lowering, name, lowering)

    def _settings(self) -> Iterator[Change]:
        if len(self.modes) < 2:
            return
        yield "onnxruntime's own layout", partial(_with_settings, placed=False, forms=())


def _with_lowering(name: str, lowering: str, best: Trial) -> Tuning:
    """The best tuning with that lowering for a signature; unchanged if all of its operators have it already."""
    if {str(node.lowering) for node in best.nodes if signature(node) == name} == {lowering}:
        return best.tuning
    return replace(best.tuning, forms=tuple(sorted({**dict(best.tuning.forms), name: lowering}.items())))


def _with_settings(best: Trial, **changes: Any) -> Tuning:
    return replace(best.tuning, **changes)


def _work(nodes: Sequence[Node]) -> int:
    """An estimate of the possible gain: operations and bytes of all these operators."""
    node = nodes[0]
    work = cost(node.op, [x.type for x in node.inputs], [y.type for y in node.outputs])
    return len(nodes) * (work.flops + work.bytes)


# The cache of tunings: one small JSON file for each step and machine, below the user's cache folder.
#
# The name of a file is the sha256 of everything that the times depend on; the file contains that too.

FIGURES = "usual_ms", "tuned_ms", "tried", "candidates", "seconds"


def folder() -> Path:
    """`$XDG_CACHE_HOME/runner/tuning`, or `~/.cache/runner/tuning`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "runner" / "tuning"


def cache_key(graph: Graph, device: Device, modes: Sequence[str]) -> dict[str, Any]:
    """Everything that the times depend on: operators with shapes and lowerings, CPU, threads, onnxruntime."""
    lowerings = [(signature(node), " ".join(map(str, lowerings_of(node, device)))) for node in graph.nodes]
    operators = "\n".join(f"{name}: {listed}" for name, listed in lowerings)
    return {
        "operators_sha256": hashlib.sha256(operators.encode()).hexdigest(),
        "ways": ",".join(modes),
        "threads": device.threads,
        "cores": usable_cores(),
        "cpu": cpu_model(),
        "onnxruntime": version(),
    }


def path_for(key: Mapping[str, Any]) -> Path:
    """The file of a key."""
    return folder() / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]}.json"


def read(path: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content of a file; None if it does not exist or, with a warning, if it is damaged or has another key."""
    if not path.exists():
        return None
    try:
        found = parse_config(decoded(config_bytes(path)), path.name)
        if not isinstance(found, dict) or found.get("facts") != key:
            raise ConfigError("it belongs to another step or machine")
        parse_tuning(found.get("tuning"))
        missing = [name for name in FIGURES if not isinstance(found.get(name), int | float)]
        if missing:
            raise ConfigError("figures are missing", figures=", ".join(missing))
    except ConfigError as error:
        LOG.warning("%s: this file of an earlier search cannot be used (%s): searching again", path, error.what)
        return None
    return found


def parse_tuning(values: object) -> Tuning:
    """The tuning in the JSON value of `as_json`. Raises ConfigError when it is not one."""
    types = {"forms": list, "placed": bool}
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != types:
        raise ConfigError("not a tuning", allowed=", ".join(types))
    lowerings = values["forms"]
    if not fits(lowerings, [[str]]) or any(len(pair) != 2 for pair in lowerings):
        raise ConfigError("not a tuning", lowerings=lowerings)
    return Tuning(**{**values, "forms": tuple((name, lowering) for name, lowering in lowerings)})


def as_json(tuning: Tuning) -> dict[str, Any]:
    """A tuning as a JSON value."""
    return {**asdict(tuning), "forms": [list(pair) for pair in tuning.forms]}


# The tuning of a training step on this machine: from the cache, or from a search whose result is cached.

Report = dict[str, Any]


def find_tuning(
    step: Callable[..., object], arrays: Sequence[np.ndarray], device: Device, modes: Sequence[str], limit: float
) -> Report:
    """The fastest tuning of a training step (a function of its inputs) for inputs with the types of `arrays`.

    The report has `tuning` (as `cache.as_json`), `source` (measured or cache), the `file` that stores it (None when it
    cannot be written), and the other fields of `TuningResult`. One process at a time searches for the same step; others
    wait for its result. A search that the limit has cut goes on at the next start. Raises what compiling and the device
    raise.
    """
    graph = optimize(trace(step, [TensorType.of(array) for array in arrays], "train_step"), PASSES)
    key = cache_key(graph, device, modes)
    path = path_for(key)
    if (found := read(path, key)) is not None and _is_whole(found):
        return _report(found, "cache", path)
    with ExitStack() as stack:
        writable = _attempt(lambda: stack.enter_context(_exclusive(path)))
        if (found := read(path, key)) is not None and _is_whole(found):  # written by another process meanwhile
            return _report(found, "cache", path)
        result = TuningSearch(graph, arrays, device, modes, limit, LOG.info, found or NO_EARLIER).result()
        content = {"facts": key, **asdict(result), "tuning": as_json(result.tuning)}
        writable = writable and _attempt(lambda: write_json(path, content))
    return _report(content, "measured", path if writable else None)


def _is_whole(found: Mapping[str, Any]) -> bool:
    """Whether a search has tried all changes."""
    return bool(found["tried"] >= found["candidates"])


def report_lines(report: Report) -> Iterator[str]:
    """The report for the console."""
    before, after = report["usual_ms"], report["tuned_ms"]
    search = f"{report['tried']} of {report['candidates']} changes tried in {report['seconds']:.1f} s"
    source = f"found in {report['file']}" if report["source"] == "cache" else search
    if not _is_whole(report):
        source += "; the next start goes on"
    if parse_tuning(report["tuning"]) == UNTUNED:
        found = "the default step is the fastest" + (" so far" if not _is_whole(report) else "")
        yield f"tuning: {source}; {found}: {before:.3f} ms"
        return
    yield f"tuning: {source}; a step takes {after:.3f} instead of {before:.3f} ms ({after / before:.2f})"
    yield from (f"  {lowering}: {signature}" for signature, lowering in report["tuning"]["forms"])
    default = as_json(UNTUNED)
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

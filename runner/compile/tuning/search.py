"""The search for a tuning: the size of the parts of a large batch, then one operator after the other, each of its forms
against the best step so far.

Whole steps are timed, because a form may make adjacent operators slower: they convert its values, or lose columns that
they shared. Operators with the most work come first. A change is kept if the step is faster by `GAIN`. At the end the
best step must be faster than the default step by as much in a longer comparison; otherwise the default is kept. A form
is excluded if its results differ from those of the default step by more than the tolerance of `runner compare`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from runner.compile.passes.in_parts import MIN_IMAGES
from runner.compile.passes.layout import forms_of, signature
from runner.compile.tuning.trial import PAIRS, PairedTiming, Trial, results_agree
from runner.compile.work import with_threads
from runner.core.batch_parts import SplitBatch
from runner.core.graph import Graph
from runner.core.lowering import Form
from runner.core.operators import Node
from runner.core.precision import Needs
from runner.device import UNTUNED, Device, Tuning
from runner.host.machine import usable_cores
from runner.observe.profile.record import cost

GAIN = 0.98  # a faster step takes at most this share of the time
LAST_PAIRS = 3 * PAIRS
BLOCK_BASE = 4  # the value that onnxruntime's documentation suggests

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

    `modes` names what may change: RL vector operators, GA convolutions and matrix products; both of them also threads
    and other settings of the session. `report` receives a line for every gain. Raises what compiling and the device
    raise.
    """

    def __init__(
        self,
        graph: Graph,
        arrays: Sequence[np.ndarray],
        device: Device,
        modes: Sequence[str],
        limit: float,
        report: Callable[[str], None],
    ) -> None:
        self.graph, self.device, self.modes, self.report = graph, device, modes, report
        self.start = time.perf_counter()
        self.end = self.start + limit
        self._trial = partial(Trial, graph, arrays, device)
        self.default = self.best = self._trial(UNTUNED)
        self.expected = self.default.results()
        self.tried, self.inexact = 0, list[str]()

    def result(self) -> TuningResult:
        """Search, and compare the best step with the default one."""
        candidates = 0
        for kind in (self._parts, self._operators, self._settings):
            changes = list(kind())  # of the best step so far: operators on parts of a batch have other forms
            candidates += len(changes)
            for change in changes:
                if time.perf_counter() > self.end:
                    break
                self._try(*change)
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

    def _parts(self) -> Iterator[Change]:
        """Other sizes of the parts in which large batches are computed, and the whole batch."""
        splits = [node for node in self.default.graph.nodes if isinstance(node.op, SplitBatch)]
        if "GA" not in self.modes or not splits:
            return
        length = splits[0].inputs[0].shape[0]
        powers = (MIN_IMAGES << power for power in range(length.bit_length()))
        for images in (*(size for size in powers if size < length), length):
            yield f"parts of {images} images", partial(_with_settings, images=images)

    def _operators(self) -> Iterator[Change]:
        for name, forms in self._signatures():
            yield from self._forms(name, forms)

    def _signatures(self) -> list[tuple[str, list[Form]]]:
        """The signatures with several forms, those with the most work first."""
        nodes_of: dict[str, list[Node]] = {}
        for node in self.best.graph.nodes:
            if ("GA" if node.op.needs is Needs.HALF else "RL") in self.modes:
                nodes_of.setdefault(signature(node), []).append(node)
        many = {name: forms for name, nodes in nodes_of.items() if len(forms := forms_of(nodes[0], self.device)) > 1}
        return sorted(((n, list(f)) for n, f in many.items()), key=lambda entry: -_work(nodes_of[entry[0]]))

    def _forms(self, name: str, forms: Sequence[Form]) -> Iterator[Change]:
        for form in map(str, forms):
            yield f"{name} as {form}", partial(_with_form, name, form)

    def _settings(self) -> Iterator[Change]:
        if len(self.modes) < 2:
            return
        if not self.device.threads:
            cores, default = usable_cores(), with_threads(self.device, self.graph).workers
            powers = (1 << power for power in range(cores.bit_length()))
            # The default number is also tried with threads that spin.
            for threads in sorted({*powers, cores} - ({1} if default == 1 else set())):
                yield f"threads={threads}", partial(_with_settings, threads=threads)
        yield "idle threads sleep", partial(_with_settings, spins="never")
        yield f"blocks by {BLOCK_BASE}", partial(_with_settings, block_base=BLOCK_BASE)
        yield "onnxruntime's own layout", partial(_with_settings, placed=False, forms=())


def _with_form(name: str, form: str, best: Trial) -> Tuning:
    """The best tuning with that form for a signature; unchanged if all of its operators have that form already."""
    if {str(node.form) for node in best.graph.nodes if signature(node) == name} == {form}:
        return best.tuning
    return replace(best.tuning, forms=tuple(sorted({**dict(best.tuning.forms), name: form}.items())))


def _with_settings(best: Trial, **changes: Any) -> Tuning:
    return replace(best.tuning, **changes)


def _work(nodes: Sequence[Node]) -> int:
    """An estimate of the possible gain: operations and bytes of all these operators."""
    node = nodes[0]
    work = cost(node.op, [x.type for x in node.inputs], [y.type for y in node.outputs])
    return len(nodes) * (work.flops + work.bytes)

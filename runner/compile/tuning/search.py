"""The search: one operator after the other, each of its forms against the best step that is known so far.

Whole steps are timed, because a form may make its neighbours slower: they turn its values around, or lose columns that
they shared. Operators with most work come first. What is kept must be faster by `GAIN`; at the end the best of all must
be faster than the usual step by as much, in a longer race, or the usual step stays. Results that are not those of
the usual step, within the tolerance of `runner compare`, exclude a form.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from runner.compile.passes.layout import offered, site
from runner.compile.tuning.trial import PAIRS, Race, Trial, agree
from runner.core.graph import Graph
from runner.core.lowering import Form
from runner.core.precision import Needs
from runner.core.primitive import Node
from runner.device import UNTUNED, Device, Tuning
from runner.host.machine import usable_cores
from runner.observe.profile.cost import cost

GAIN = 0.98  # faster steps take at most this much of the time
LAST_PAIRS = 3 * PAIRS
BLOCK_BASE = 4  # the value that onnxruntime's documentation suggests

Change = tuple[str, Callable[[Trial], Tuning]]  # what it is, and how the best tuning so far becomes another one


@dataclass
class Result:
    """What a search found: milliseconds of a step as usual and as tuned, and how many ways were tried.

    `inexact` are the ways that were excluded for their results, `candidates` how many there were.
    """

    tuning: Tuning
    usual_ms: float
    tuned_ms: float
    tried: int
    candidates: int
    seconds: float
    inexact: list[str] = field(default_factory=list)


class Search:
    """Looks for the fastest way to make a step. `ways` names what may change: RL vector operators, GA convolutions and
    matrix products; both also threads and other settings of the session. It ends after `limit` seconds. `heard` is told
    of every gain, in a line. Raises what compiling and the device raise.
    """

    def __init__(
        self,
        graph: Graph,
        arrays: Sequence[np.ndarray],
        device: Device,
        ways: Sequence[str],
        limit: float,
        heard: Callable[[str], None],
    ) -> None:
        self.graph, self.device, self.ways, self.heard = graph, device, ways, heard
        self.start = time.perf_counter()
        self.end = self.start + limit
        self._trial = partial(Trial, graph, arrays, device)
        self.usual = self.best = self._trial(UNTUNED)
        self.expected = self.usual.results()
        self.tried, self.inexact = 0, list[str]()

    def result(self) -> Result:
        """Search, and judge what was found once more against the usual step."""
        changes = [change for name, forms in self._sites() for change in self._forms(name, forms)]
        if len(self.ways) > 1:
            changes += self._settings()
        for change in changes:
            if time.perf_counter() > self.end:
                break
            self._try(*change)
        race = Race(self.usual, self.best)
        kept = race.ratio(LAST_PAIRS) <= GAIN and race.is_won and self.best is not self.usual
        usual_ms, best_ms = race.milliseconds
        return Result(
            self.best.tuning if kept else UNTUNED,
            usual_ms,
            best_ms if kept else usual_ms,
            self.tried,
            len(changes),
            time.perf_counter() - self.start,
            self.inexact,
        )

    def _try(self, name: str, changed: Callable[[Trial], Tuning]) -> None:
        """Race a changed step against the best one, and keep the faster of them."""
        tuning = changed(self.best)
        self.tried += 1
        if tuning == self.best.tuning:
            return
        trial = self._trial(tuning)
        if not agree(self.graph, self.expected, trial.results()):
            self.inexact.append(name)
            return
        race = Race(self.best, trial)
        if race.ratio() <= GAIN and race.is_won:
            self.best = trial
            before, after = race.milliseconds
            self.heard(f"{name}: {before:.3f} -> {after:.3f} ms")

    def _sites(self) -> list[tuple[str, list[Form]]]:
        """What may be lowered in several forms, those with most work first."""
        found: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            if ("GA" if node.op.needs is Needs.HALF else "RL") in self.ways:
                found.setdefault(site(node), []).append(node)
        many = {name: forms for name, nodes in found.items() if len(forms := offered(nodes[0])) > 1}
        return sorted(((n, list(f)) for n, f in many.items()), key=lambda entry: -_work(found[entry[0]]))

    def _forms(self, name: str, forms: Sequence[Form]) -> Iterator[Change]:
        for form in map(str, forms):
            yield f"{name} as {form}", partial(_lowered, name, form)

    def _settings(self) -> Iterator[Change]:
        if not self.device.threads:
            for threads in (1 << power for power in range(usable_cores().bit_length())):
                if threads < usable_cores():
                    yield f"threads={threads}", partial(_changed, threads=threads)
        yield "idle threads sleep", partial(_changed, spins="never")
        yield f"blocks by {BLOCK_BASE}", partial(_changed, block_base=BLOCK_BASE)
        yield "onnxruntime's own layout", partial(_changed, placed=False, forms=())


def _lowered(name: str, form: str, best: Trial) -> Tuning:
    """The best tuning so far, with that form at a site; as it is when all operators there have the form already."""
    if {str(node.form) for node in best.graph.nodes if site(node) == name} == {form}:
        return best.tuning
    return replace(best.tuning, forms=tuple(sorted({**dict(best.tuning.forms), name: form}.items())))


def _changed(best: Trial, **changes: Any) -> Tuning:
    return replace(best.tuning, **changes)


def _work(nodes: Sequence[Node]) -> int:
    """How much there is to gain, roughly: operations and bytes of all these operators."""
    node = nodes[0]
    work = cost(node.op, [x.type for x in node.inputs], [y.type for y in node.outputs])
    return len(nodes) * (work.flops + work.bytes)

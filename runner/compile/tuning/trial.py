"""A step compiled in one way, to be timed and compared with the same step compiled in another way."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from runner.compile.onnx.lower import lower
from runner.compile.ort.session import Session
from runner.compile.passes import optimize, placing
from runner.core.graph import Graph
from runner.core.value import Parameter
from runner.device import Device, Tuning
from runner.observe.dump.metrics import DEFAULT
from runner.types import TensorType

BLOCK_SECONDS = 0.02  # steps are timed in blocks that take about as long
# Threads that wait busily when their step is over would take a core from the step that it is compared with.
BETWEEN = {"always": "running"}
PAIRS, FEWEST = 9, 2
MOST = 0.75  # of the blocks must be won: a median alone is now and then 2% below 1 by chance
LOST = 1.02  # a block that takes longer by so much has lost, and another one would hardly change it


class Trial:
    """A training step under a tuning. It computes with the present values of the parameters and changes none.

    `graph` is what the passes before the layout made, `arrays` are its inputs. Raises what compiling and the device
    raise.
    """

    def __init__(self, graph: Graph, arrays: Sequence[np.ndarray], device: Device, tuning: Tuning) -> None:
        self.tuning = tuning
        on = device.tuned(replace(tuning, spins=BETWEEN.get(tuning.spins, tuning.spins)))
        self.graph = optimize(graph, placing(on))
        inputs = [f"input{k}" for k in range(len(arrays))]
        outputs = [f"output{k}" for k in range(len(graph.outputs))]
        model = lower(self.graph, inputs, outputs).SerializeToString()
        self.session = Session(model, on, optimize=not self.graph.has_forms)
        self._values = [self.session.put(array) for array in (*arrays, *(p.data for p in graph.parameters))]

    def results(self) -> list[np.ndarray]:
        """Outputs, new values of parameters, and what effects would tell."""
        return [self.session.fetch(value) for value in self.session.step(self._values)]

    def seconds(self, count: int) -> float:
        """The time of so many steps."""
        start = time.perf_counter()
        for _ in range(count):
            self.session.step(self._values)
        return time.perf_counter() - start


class Race:
    """What a step takes in one way and in another: blocks of both by turns, and the median of their ratios."""

    def __init__(self, known: Trial, other: Trial) -> None:
        self.known, self.other = known, other
        for way in (known, other):
            way.seconds(1)  # the first step touches new memory
        self.count = max(1, round(BLOCK_SECONDS / max(known.seconds(1), 1e-6)))
        self.ratios: list[float] = []
        self.milliseconds: tuple[float, float] = (0.0, 0.0)

    def ratio(self, pairs: int = PAIRS) -> float:
        """Time of the other by time of the known one; the race ends early when the other one is plainly slower."""
        times = list(self._pairs(pairs))
        self.ratios = [b / a for a, b in times]
        a, b = (statistics.median(part) / self.count * 1e3 for part in zip(*times, strict=True))
        self.milliseconds = a, b
        return statistics.median(self.ratios)

    @property
    def is_won(self) -> bool:
        """Whether the other one was faster in most blocks."""
        return sum(ratio < 1 for ratio in self.ratios) >= MOST * len(self.ratios)

    def _pairs(self, pairs: int) -> Iterator[tuple[float, float]]:
        lost = 0
        for turn in range(pairs):
            ways = (self.known, self.other) if turn % 2 else (self.other, self.known)
            taken = {way: way.seconds(self.count) for way in ways}
            yield taken[self.known], taken[self.other]
            lost += taken[self.other] > LOST * taken[self.known]
            if lost == turn + 1 >= FEWEST:
                return


def agree(graph: Graph, expected: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> bool:
    """Whether two ways to make a step give the same results, within the tolerance that `runner compare` has.

    What matters of a parameter is how much it changed: an error is judged by the size of the change. Rounding of the
    new value itself is allowed too.
    """
    before: list[Parameter | None] = [None] * len(graph.outputs)
    before += [*graph.updates, *(None for _ in graph.effect_operands)]
    return all(_near(a, b, None if p is None else p.data) for a, b, p in zip(expected, made, before, strict=True))


def _near(expected: np.ndarray, made: np.ndarray, before: np.ndarray | None) -> bool:
    if expected.dtype.kind != "f":
        return np.array_equal(expected, made)
    kind = TensorType.of(expected).dtype
    a, b = expected.astype(np.float64), made.astype(np.float64)
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

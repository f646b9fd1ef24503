"""A step compiled with one tuning, and its comparison with the same step under another tuning."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from runner.compile.onnx.lower import lower
from runner.compile.ort.session import Session
from runner.compile.passes import device_passes, optimize
from runner.compile.work import suited
from runner.core.graph import Graph
from runner.core.values import Parameter
from runner.device import Device, Tuning
from runner.observe.tolerance import DEFAULT
from runner.types import TensorType

BLOCK_SECONDS = 0.02  # the approximate duration of the blocks in which steps are timed
# Threads that spin after their step would take a core from the step that it is compared with.
SPINS = {"always": "running"}
PAIRS, MIN_PAIRS = 9, 2
FASTER_SHARE = 0.75  # of the blocks must be faster: a median alone is sometimes 2% below 1 by chance
SLOWER = 1.02  # a first few blocks with at least this ratio end the comparison


class Trial:
    """A training step under a tuning. It uses the current values of the parameters and does not change them.

    `graph` is the graph before the passes of the device, `arrays` are its inputs. Raises what compiling and the device
    raise.
    """

    def __init__(self, graph: Graph, arrays: Sequence[np.ndarray], device: Device, tuning: Tuning) -> None:
        self.tuning = tuning
        device = replace(device, tuning=replace(tuning, spins=SPINS.get(tuning.spins, tuning.spins)))
        self.graph = optimize(graph, device_passes(device))
        model = lower(self.graph).SerializeToString()
        self.session = Session(model, suited(device, self.graph), optimize=not self.graph.has_forms)
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
        """Time of the other trial / time of the reference; it ends early when the other one is clearly slower."""
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

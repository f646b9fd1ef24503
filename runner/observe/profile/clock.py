"""The facts of one profiled training, as they come in while it goes on."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from runner.observe.profile.counters import COUNTERS, Counters
from runner.observe.profile.record import DATA, EXCHANGES, Call, Look, Operator, Record, Span
from runner.observe.profile.schedule import ENDLESS, Plan, planned
from runner.observe.profile.settings import ProfileSettings

SHORTEST = 20_000  # ns; what is shorter is not worth a line of the timeline
SPANS = 20_000  # of one track; those that follow are only counted
CALLS = 200_000  # to the device, the same


class Clock:
    """Collects the `record` of a training. `looks_at` says whether a step's operators are timed."""

    def __init__(self, settings: ProfileSettings) -> None:
        self.settings = settings
        self.record = Record(time.perf_counter_ns())
        self.plan = Plan(0, 1, 1, 0, 0)
        self._waited = 0
        self._exchanges: list[tuple[int, int]] = []
        self._lock = Lock()  # the dataset's threads tell too
        self._dropped: dict[str, int] = {}
        self._later = 0  # steps after those that are recorded
        self.counters = Counters(COUNTERS.get(settings.ai_core_metrics or "", ()))

    def begin(self, first_step: int, total: int, sunk: bool = False) -> None:
        """A training of the steps from `first_step` to `total` begins."""
        self.record = Record(time.perf_counter_ns(), sunk)
        self.plan = planned(first_step, total, self.settings.operators)
        self._waited = self._later = 0
        self._exchanges = []
        self._dropped = {}

    def looks_at(self, step: int) -> bool:
        """Whether the operators of a step are to be timed."""
        return self.settings.steps and self.plan.looks(step)

    def alike(self, step: int) -> int:
        """How many steps from this one on may go into one call."""
        return self.plan.alike(step) if self.settings.steps else ENDLESS

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the host waits for data."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._waited += stop - start
        self.span(DATA, "wait for data", start, stop)

    @contextmanager
    def doing(self, track: str, name: str) -> Iterator[None]:
        """Inside, somebody does something."""
        start = time.perf_counter_ns()
        yield
        self.span(track, name, start, time.perf_counter_ns())

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Inside, ranks exchange, and wait for each other."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._exchanges.append((start, stop))
        self.span(EXCHANGES, "exchange with other ranks", start, stop)

    @contextmanager
    def calling(self, first: int, steps: int) -> Iterator[None]:
        """Inside, the device makes steps."""
        self._exchanges = []
        before = self.counters.read()
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        for name, count in self.counters.read().items():
            self.record.counted[name] = self.record.counted.get(name, 0) + count - before[name]
        exchanges = tuple(self._exchanges)
        self._called(Call(first, steps, start, stop, self._waited, self.looks_at(first), exchanges))
        self._waited = 0

    def _called(self, call: Call) -> None:
        if len(self.record.calls) < CALLS:
            self.record.calls.append(call)
        else:
            self._later += call.steps

    def span(self, track: str, name: str, start: int, stop: int) -> None:
        """Note what somebody did. Safe to call from several threads."""
        if stop - start < SHORTEST:
            return
        with self._lock:
            spans = self.record.tracks.setdefault(track, [])
            if len(spans) < SPANS:
                spans.append(Span(name, start, stop))
            else:
                self._dropped[track] = self._dropped.get(track, 0) + 1

    def ready(self, batches: int) -> None:
        """So many batches were ready when one was asked for."""
        if len(self.record.waiting) < CALLS:
            self.record.waiting.append(batches)

    def looked(self, operators: Iterable[Operator], looks: Iterable[Look]) -> None:
        """Steps whose operators were timed; those that warm up are left out."""
        self.record.know(operators)
        looks = list(looks)
        self.record.windows |= {look.step: (look.start, look.stop) for look in looks}
        self.record.looks += [look for look in looks if self.plan.counts(look.step)]

    def end(self) -> Record:
        """No step follows: everything that is known."""
        for track, count in self._dropped.items():
            self.record.remarks.append(f"the timeline leaves out {count} later entries of the track {track!r}")
        if self._later:
            self.record.remarks.append(
                f"the last {self._later} steps are not in the profile: it has {CALLS} calls at most"
            )
        self.record.missing = self.counters.missing
        self.record.looks.sort()
        return self.record

"""The clock of a profiled training: it collects the measurements of the record while the training runs."""

import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from runner.observe.profile.counters import COUNTERS, Counters
from runner.observe.profile.record import (
    DATA,
    EXCHANGES,
    HOST,
    DeviceCall,
    ProfiledOperator,
    ProfiledStep,
    ProfileRecord,
    Span,
)
from runner.observe.profile.schedule import ENDLESS, schedule
from runner.observe.profile.settings import ProfileSettings

SHORTEST = 20_000  # ns; shorter spans are not recorded
SPANS = 20_000  # of one track; later ones are only counted
CALLS = 200_000  # to the device; later ones are only counted


class Clock:
    """Collects the `record` of a training. `is_profiled` says whether the operators of a step are timed."""

    def __init__(self, settings: ProfileSettings) -> None:
        self.settings = settings
        self.begin(0, 0)
        self._lock = Lock()  # the dataset's threads add spans too
        self.counters = Counters(COUNTERS.get(settings.ai_core_metrics or "", ()))

    def begin(self, first_step: int, total: int, sunk: bool = False) -> None:
        """Start the record of a training of the steps from `first_step` to `total`."""
        self.record = ProfileRecord(time.perf_counter_ns(), sunk)
        self.schedule = schedule(first_step, total, self.settings.operators)
        self._waited = self._prepared = self._unrecorded_steps = 0
        self._profiles: dict[Hashable, tuple[list[ProfiledOperator], list[ProfiledStep]]] = {}
        self._exchanges: list[tuple[int, int]] = []
        self._dropped: dict[str, int] = {}

    def is_profiled(self, step: int) -> bool:
        """Whether the operators of a step are timed."""
        return self.settings.steps and self.schedule.is_profiled(step)

    def run_length(self, step: int) -> int:
        """The number of steps from this one on that can run in one call."""
        return self.schedule.run_length(step) if self.settings.steps else ENDLESS

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time the block as a wait for data."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._waited += stop - start
        self.add_span(DATA, "wait for data", start, stop)

    @contextmanager
    def span(self, track: str, name: str) -> Iterator[None]:
        """Time the block as a span of a track."""
        start = time.perf_counter_ns()
        yield
        self.add_span(track, name, start, time.perf_counter_ns())

    @contextmanager
    def preparing(self, name: str) -> Iterator[None]:
        """Time the block as preparation of the next call, such as compiling."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._prepared += stop - start
        self.add_span(HOST, name, start, stop)

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Time the block as an exchange with other ranks, including the wait for them."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._exchanges.append((start, stop))
        self.add_span(EXCHANGES, "exchange with other ranks", start, stop)

    @contextmanager
    def calling(self, first: int, steps: int, profiled: bool) -> Iterator[None]:
        """Time the block as a call to the device for `steps` steps from the number `first` on.

        `profiled`: whether operators are timed in it.
        """
        self._exchanges = []
        before = self.counters.read()
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        for name, count in self.counters.read().items():
            self.record.counters[name] = self.record.counters.get(name, 0) + count - before[name]
        exchanges = tuple(self._exchanges)
        self._add_call(DeviceCall(first, steps, start, stop, self._waited, profiled, exchanges, self._prepared))
        self._waited = self._prepared = 0

    def _add_call(self, call: DeviceCall) -> None:
        if len(self.record.calls) < CALLS:
            self.record.add_call(call, self.schedule.is_counted)
        else:
            self._unrecorded_steps += call.steps

    def add_span(self, track: str, name: str, start: int, stop: int) -> None:
        """Add a span to a track. Thread-safe."""
        if stop - start < SHORTEST:
            return
        with self._lock:
            spans = self.record.tracks.setdefault(track, [])
            if len(spans) < SPANS:
                spans.append(Span(name, start, stop))
            else:
                self._dropped[track] = self._dropped.get(track, 0) + 1

    def sample_queue(self, batches: int) -> None:
        """Record the number of batches that were ready when one was requested."""
        if len(self.record.queue_sizes) < CALLS:
            self.record.queue_sizes.append(batches)

    def add_profiled_steps(
        self, program: Hashable, operators: Iterable[ProfiledOperator], steps: Iterable[ProfiledStep]
    ) -> None:
        """Add steps of a program whose operators were timed, and these operators.

        The record gets those of the program with the most steps: times of a smaller last batch are no times of others.
        """
        steps = list(steps)
        self.record.windows |= {step.step: (step.start, step.stop) for step in steps}
        known = self._profiles.setdefault(program, ([], []))
        known[0].extend(operators)
        known[1].extend(step for step in steps if self.schedule.is_counted(step.step))

    def end(self) -> ProfileRecord:
        """The complete record; no step follows."""
        for track, count in self._dropped.items():
            self.record.remarks.append(f"the timeline leaves out {count} later entries of the track {track!r}")
        if self._unrecorded_steps:
            self.record.remarks.append(
                f"the last {self._unrecorded_steps} steps are not in the profile: it has {CALLS} calls at most"
            )
        self._add_profile()
        self.record.missing_counters = self.counters.missing
        return self.record

    def _add_profile(self) -> None:
        chosen = max(self._profiles.values(), key=lambda profile: len(profile[1]), default=([], []))
        self.record.add_operators(chosen[0])
        self.record.profiled_steps = sorted(chosen[1])
        if left := sum(len(steps) for _, steps in self._profiles.values()) - len(chosen[1]):
            self.record.remarks.append(f"{left} timed steps with batches of another size are not in the figures")

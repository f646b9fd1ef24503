"""Training with a clock: the same steps, made by the same programs, and a `Clock` that hears where the time goes.

wait for data, call the device, callbacks      by the host's clock, in every step
operators, PyNative mode                       the interpreter `Timing`, in the steps that the clock looks at
operators, graph mode                          the twin of the program's session, with onnxruntime's profile on
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from runner.communication.world import world
from runner.compile.ort.profiled_session import ProfiledProgram
from runner.compile.program import Executable, SunkProgram
from runner.core.observers import ValueObserver
from runner.core.recorder import Timing
from runner.dataset.pipeline import Batch, Dataset
from runner.nn.steps import EagerStep, GraphStep, Step
from runner.observe.profile.clock import Clock
from runner.observe.profile.record import HOST, WORKERS, WRITERS, Look, Moment, Operator, operators_in, with_parts
from runner.train.callback import Callback, CallbackList, RunContext
from runner.train.callback.base import Event
from runner.train.sink import Sink
from runner.types import TensorType


class TimedDataset(Dataset):
    """A dataset whose fetching is heard by a clock."""

    def __init__(self, dataset: Dataset, clock: Clock) -> None:
        super().__init__(dataset._columns, dataset._order, dataset._workers)
        self.clock, self.ready = clock, clock.ready

    def fetch(self, visits: np.ndarray) -> Batch:
        with self.clock.doing(WORKERS, "fetch"):
            return super().fetch(visits)

    def prepared(self, visits: Iterable[np.ndarray]) -> Generator[Batch, None, None]:
        """As ever; waiting for each of them is told."""
        batches = super().prepared(visits)
        try:
            while True:
                with self.clock.waiting():
                    batch = next(batches)
                yield batch
        finally:
            batches.close()


class Twins:
    """The profiled twins of programs, made when they are first needed."""

    def __init__(self, clock: Clock, sunk: bool) -> None:
        self.clock, self.sunk = clock, sunk
        self._made: dict[int, ProfiledProgram] = {}

    def of(self, program: Executable) -> ProfiledProgram:
        """The twin of a program."""
        key = id(program)
        if key not in self._made:
            with self.clock.doing(HOST, "open a session that is profiled"):
                self._made[key] = ProfiledProgram(program, self.sunk)
        return self._made[key]

    def close(self) -> None:
        """Tell the clock what they know."""
        for twin in self._made.values():
            looks, remarks = twin.close()
            graph = twin.program.graph
            fetching = twin.program.fetching if isinstance(twin.program, SunkProgram) else None
            operators = operators_in(graph) if fetching is None else operators_in(graph, fetching)
            self.clock.looked(operators, looks)
            self.clock.record.remarks += remarks


class TimedGraphStep:
    """`GraphStep` with a clock."""

    def __init__(self, step: GraphStep, clock: Clock, first_step: int) -> None:
        self.step, self.clock, self.number = step, clock, first_step
        self.cell, self.programs = step.cell, step.programs
        self.twins = Twins(clock, sunk=False)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One step; compiling is not part of its time."""
        types = tuple([TensorType.of(array) for array in arrays])
        if types not in self.step.programs:
            with self.clock.doing(HOST, "compile"):
                self.step.program(types)
        number, self.number = self.number, self.number + 1
        inside = (
            self.twins.of(self.step.program(types)).profiling(number) if self.clock.looks_at(number) else nullcontext()
        )
        with inside, self.clock.calling(number, 1):
            return self.step(arrays)

    def show(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """Not timed: whoever is shown values takes longer than the step."""
        self.number += 1
        return self.step.show(arrays, step, observer)

    def close(self) -> None:
        """No step follows."""
        self.twins.close()


class TimedEagerStep:
    """`EagerStep` with a clock."""

    def __init__(self, step: EagerStep, clock: Clock, first_step: int) -> None:
        self.step, self.clock, self.number = step, clock, first_step
        self.cell = step.cell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One step."""
        number, self.number = self.number, self.number + 1
        if not self.clock.looks_at(number) or self.step.records:
            with self.clock.calling(number, 1):
                return self.step(arrays)
        timing = Timing()
        with self.clock.calling(number, 1):
            made = self.step.under(timing, arrays)
        self._looked(number, timing)
        return made

    def show(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """Not timed."""
        self.number += 1
        return self.step.show(arrays, step, observer)

    def close(self) -> None:
        """No step follows."""

    def _looked(self, number: int, timing: Timing) -> None:
        call, known = self.clock.record.calls[-1], self.clock.record.operators
        moments = [Moment((t.name,), "", t.start, t.stop) for t in timing.timed]
        new = [] if known else [Operator(t.name, t.op, t.number, t.inputs, t.outputs) for t in timing.timed]
        self.clock.looked(with_parts(new), [Look(number, call.start, call.stop, moments)])


TimedStep = TimedGraphStep | TimedEagerStep


def timed_step(step: Step, clock: Clock, first_step: int) -> TimedStep:
    """A step with a clock."""
    if isinstance(step, GraphStep):
        return TimedGraphStep(step, clock, first_step)
    assert isinstance(step, EagerStep)
    return TimedEagerStep(step, clock, first_step)


class TimedSink(Sink):
    """`Sink` with a clock; steps whose operators are timed go into calls of their own."""

    def __init__(self, clock: Clock, *rest: Any) -> None:
        self.clock = clock
        self.twins = Twins(clock, sunk=True)
        super().__init__(*rest)

    def _take(self, limit: int) -> np.ndarray:
        self._program_ahead()
        with self.clock.waiting():
            return super()._take(min(limit, self.clock.alike(self._taken)))

    def _entries(self, visits: np.ndarray) -> list[np.ndarray]:
        if self._ahead is not None:
            self.clock.ready(int(self._ahead[1].done()))
        with self.clock.waiting():
            return super()._entries(visits)

    def _run(self, visits: np.ndarray, entries: list[np.ndarray]) -> np.ndarray:
        first, (steps, size) = self._made, visits.shape
        inside = self.twins.of(self._program(size)).profiling(first) if self.clock.looks_at(first) else nullcontext()
        with inside, self.clock.calling(first, steps):
            return super()._run(visits, entries)

    def _program_ahead(self) -> None:
        """Compile before the clock runs."""
        size = self.dataset.get_batch_size()
        if size not in self.programs:
            with self.clock.doing(HOST, "compile"):
                self._program(size)

    def close(self) -> None:
        """No step follows."""
        self.twins.close()


class TimedCallbacks(CallbackList):
    """Callbacks with a clock."""

    def __init__(self, callbacks: Callback | Sequence[Callback] | None, clock: Clock) -> None:
        super().__init__(callbacks)
        self.clock = clock

    def fire(self, event: Event, run_context: RunContext) -> None:
        for callback in self.list:
            with self.clock.doing(WRITERS, type(callback).__name__):
                getattr(callback, event)(run_context)

    def wants_to_leave(self) -> bool:
        return any(map(self._wants_to_leave, self.list))

    def _wants_to_leave(self, callback: Callback) -> bool:
        with self.clock.doing(WRITERS, type(callback).__name__):
            return callback.wants_to_leave()


@contextmanager
def timed_exchanges(clock: Clock) -> Iterator[None]:
    """Inside, sums over all ranks are timed, with what a rank waits for the others."""
    present = world()
    present.exchanging = clock.exchanging
    try:
        yield
    finally:
        present.exchanging = nullcontext

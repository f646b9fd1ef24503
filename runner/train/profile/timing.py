"""Training with a clock: the same steps, run by the same programs, and a `Clock` that measures them.

wait for data, calls to the device, callbacks   by the host's clock, in every step
operators, PyNative mode                        by `TimedInterpreter`, in profiled steps
operators, graph mode                           by a second session of the program, with onnxruntime's profile
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from runner.communication.world import world
from runner.compile.profiled_session import ProfiledProgram
from runner.compile.program import Executable, SunkProgram
from runner.core.graph import ValueObserver
from runner.core.recorder import TimedInterpreter
from runner.dataset.pipeline import Batch, Dataset
from runner.nn.steps import EagerStep, GraphStep, Step
from runner.observe.profile import record
from runner.observe.profile.record import Clock
from runner.train.callback import Callback, CallbackList, RunContext
from runner.train.callback.base import Event
from runner.train.sink import Sink
from runner.types import TensorType


class TimedDataset(Dataset):
    """A dataset whose fetches are timed."""

    def __init__(self, dataset: Dataset, clock: Clock) -> None:
        super().__init__(dataset._columns, dataset._order, dataset._workers)
        self.described_as(dataset)
        self.clock, self.queue_observer = clock, clock.sample_queue

    def fetch(self, visits: np.ndarray) -> Batch:
        with self.clock.span(record.WORKERS, "fetch"):
            return super().fetch(visits)

    def prepared(self, visits: Iterable[np.ndarray]) -> Generator[Batch, None, None]:
        """The batches of these visits; the wait for each of them is timed."""
        batches = super().prepared(visits)
        try:
            while True:
                with self.clock.waiting():
                    batch = next(batches)
                yield batch
        finally:
            batches.close()


class ProfiledPrograms:
    """The profiled programs of a training, created when they are first needed."""

    def __init__(self, clock: Clock, sunk: bool) -> None:
        self.clock, self.sunk = clock, sunk
        self._programs: dict[int, ProfiledProgram] = {}

    @contextmanager
    def calling(self, program: Executable, first: int, steps: int) -> Iterator[None]:
        """Context of a call of a program for steps from the number `first` on: it is profiled if the first step is."""
        profiled = self.clock.is_profiled(first)
        profiling = self._profiled(program).profiling(first) if profiled else nullcontext()
        with profiling, self.clock.calling(first, steps, profiled):
            yield

    def _profiled(self, program: Executable) -> ProfiledProgram:
        key = id(program)
        if key not in self._programs:
            with self.clock.preparing("open a session that is profiled"):
                self._programs[key] = ProfiledProgram(program, self.sunk)
            self.clock.record.threads = program.session.device.workers
        return self._programs[key]

    def close(self) -> None:
        """End the profiles and add their steps to the record of the clock."""
        for key, profiled in self._programs.items():
            steps, remarks = profiled.close()
            program = profiled.program
            graphs = (program.graph, program.fetching) if isinstance(program, SunkProgram) else (program.graph,)
            self.clock.add_profiled_steps(key, record.operators_in(*graphs), steps)
            self.clock.record.remarks += remarks


class TimedStep:
    """Base: a step with a clock; `number` is that of the next step."""

    def __init__(self, step: Step, clock: Clock, first_step: int) -> None:
        self.step, self.clock, self.number = step, clock, first_step
        self.cell = step.cell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One step."""
        raise NotImplementedError

    def observe(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """One step with an observer; not timed, because observing takes longer than the step."""
        self.number += 1
        return self.step.observe(arrays, step, observer)

    def close(self) -> None:
        """End the steps."""


class TimedGraphStep(TimedStep):
    """`GraphStep` with a clock."""

    step: GraphStep

    def __init__(self, step: GraphStep, clock: Clock, first_step: int) -> None:
        super().__init__(step, clock, first_step)
        self.programs = step.programs
        self.profiled = ProfiledPrograms(clock, sunk=False)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One step; compiling is not part of its time."""
        types = tuple([TensorType.of(array) for array in arrays])
        if types not in self.step.programs:
            with self.clock.preparing("compile"):
                self.step.program(types)
        number, self.number = self.number, self.number + 1
        with self.profiled.calling(self.step.program(types), number, 1):
            return self.step(arrays)

    def close(self) -> None:
        self.profiled.close()


class TimedEagerStep(TimedStep):
    """`EagerStep` with a clock."""

    step: EagerStep

    def __init__(self, step: EagerStep, clock: Clock, first_step: int) -> None:
        super().__init__(step, clock, first_step)
        self._known: set[tuple[TensorType, ...]] = set()  # types of batches whose operators are in the record

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One step."""
        number, self.number = self.number, self.number + 1
        if not self.clock.is_profiled(number) or self.step.records:
            with self.clock.calling(number, 1, profiled=False):
                return self.step(arrays)
        interpreter = TimedInterpreter()
        with self.clock.calling(number, 1, profiled=True):
            outputs = self.step.run_with(interpreter, arrays)
        self._add_profiled_step(number, tuple([TensorType.of(array) for array in arrays]), interpreter)
        return outputs

    def _add_profiled_step(self, number: int, types: tuple[TensorType, ...], interpreter: TimedInterpreter) -> None:
        call, timed = self.clock.record.calls[-1], interpreter.timings
        executions = [record.NodeExecution((t.name,), "", t.start, t.stop) for t in timed]
        new: list[record.ProfiledOperator] = []
        if types not in self._known:
            self._known.add(types)
            new = [record.ProfiledOperator(t.name, t.op, t.number, t.inputs, t.outputs) for t in timed]
        self.clock.add_profiled_steps(
            types, record.with_parts(new), [record.ProfiledStep(number, call.start, call.stop, executions)]
        )


def timed_step(step: Step, clock: Clock, first_step: int) -> TimedStep:
    """A step with a clock."""
    if isinstance(step, GraphStep):
        return TimedGraphStep(step, clock, first_step)
    assert isinstance(step, EagerStep)
    return TimedEagerStep(step, clock, first_step)


class TimedSink(Sink):
    """`Sink` with a clock; profiled steps run in separate calls."""

    def __init__(self, clock: Clock, *rest: Any) -> None:
        self.clock = clock
        self.profiled = ProfiledPrograms(clock, sunk=True)
        super().__init__(*rest)

    def _take(self, limit: int) -> np.ndarray:
        self._compile_ahead()
        with self.clock.waiting():
            return super()._take(min(limit, self.clock.run_length(self._taken)))

    def _entries(self, visits: np.ndarray) -> list[np.ndarray]:
        if self._ahead is not None:
            self.clock.sample_queue(int(self._ahead[1].done()))
        with self.clock.waiting():
            return super()._entries(visits)

    def _run(self, visits: np.ndarray, entries: list[np.ndarray]) -> np.ndarray:
        first, (steps, size) = self._made, visits.shape
        with self.profiled.calling(self._program(size), first, steps):
            return super()._run(visits, entries)

    def _compile_ahead(self) -> None:
        """Compile before the timing starts."""
        size = self.dataset.get_batch_size()
        if size not in self.programs:
            with self.clock.preparing("compile"):
                self._program(size)

    def close(self) -> None:
        """End the steps."""
        self.profiled.close()


class TimedCallbacks(CallbackList):
    """Callbacks with a clock."""

    def __init__(self, callbacks: Callback | Sequence[Callback] | None, clock: Clock) -> None:
        super().__init__(callbacks)
        self.clock = clock

    def fire(self, event: Event, run_context: RunContext) -> None:
        for callback in self.list:
            with self.clock.span(record.WRITERS, type(callback).__name__):
                getattr(callback, event)(run_context)

    def wants_to_leave(self) -> bool:
        return any(map(self._wants_to_leave, self.list))

    def _wants_to_leave(self, callback: Callback) -> bool:
        with self.clock.span(record.WRITERS, type(callback).__name__):
            return callback.wants_to_leave()


@contextmanager
def timed_exchanges(clock: Clock) -> Iterator[None]:
    """Within the block, sums over all ranks are timed, including the wait for other ranks."""
    present = world()
    present.exchanging = clock.exchanging
    try:
        yield
    finally:
        present.exchanging = nullcontext

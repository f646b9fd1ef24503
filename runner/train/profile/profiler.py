"""The profiler of `Model.train`: steps and callbacks with a clock, and the files at the end.

First dataset, steps, sink and callbacks with a clock, then `TrainingProfiler`, which a `Model` uses in place of those
without, and last the measurement of one operator.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from runner import context
from runner.communication.world import world
from runner.compile.profiled_session import ProfiledProgram
from runner.compile.program import Executable, Program, SunkProgram
from runner.core.graph import GraphObserver, ValueObserver
from runner.core.recorder import TimedInterpreter
from runner.core.trace import trace
from runner.dataset.pipeline import Batch, Dataset
from runner.dataset.stages import stages
from runner.device import Device
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.steps import EagerStep, GraphStep, Step
from runner.observe.profile import files, record
from runner.observe.profile.record import Clock, ProfileRecord, operators_in
from runner.observe.profile.settings import ProfileSettings, ProfileTarget
from runner.observe.profile.single_op import SingleOperator, TimingStatistics, measure_time, parse_operator
from runner.observe.profile.steps import check_point
from runner.train.callback import Callback, CallbackList, RunContext
from runner.train.callback.base import Event
from runner.train.loop import StepByStep
from runner.train.sink import Sink
from runner.types import TensorType

# Training with a clock: the same steps, run by the same programs, and a `Clock` that measures them.
#
# wait for data, calls to the device, callbacks   by the host's clock, in every step
# operators, PyNative mode                        by `TimedInterpreter`, in profiled steps
# operators, graph mode                           by a second session of the program, with onnxruntime's profile


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


# The profiler

Writer = Callable[[ProfileRecord, Dataset], object]


class TrainingProfiler:
    """Profiles trainings. `write` receives the record and the dataset of each training, and writes the files."""

    def __init__(self, settings: ProfileSettings, write: Writer) -> None:
        self.settings, self.write = settings, write
        self.clock = Clock(settings)

    def callbacks(self, callbacks: Callback | Sequence[Callback] | None) -> CallbackList:
        """The callbacks as one, with the clock."""
        return TimedCallbacks(callbacks, self.clock)

    @contextmanager
    def training(
        self,
        step: Step,
        data: Dataset,
        device: Device,
        graphs: GraphObserver,
        values: ValueObserver,
        *,
        sunk: bool,
        first: int,
        total: int,
    ) -> Iterator[StepByStep | Sink]:
        """The executor of the steps from number `first` to `total`; at the end the files are written.

        `graphs` observes what is compiled, `values` the values of steps. Raises ConfigError when no operator has the
        name of a point.
        """
        self.clock.begin(first, total, sunk)
        if first:
            line = f"the run was resumed after step {first}: the steps before are not in the profile"
            self.clock.record.remarks.append(line)
        self.clock.record.threads = device.workers  # graphs that are profiled have numbers of their own
        timed = TimedDataset(data, self.clock)
        self._check_points(step.cell, data)
        with ExitStack() as stack:
            stack.enter_context(timed_exchanges(self.clock))
            stack.callback(self._write, data)  # also when the training fails: the measurements may explain the failure
            if sunk:
                sink = stack.enter_context(closing(TimedSink(self.clock, step.cell, device, timed, graphs, values)))
                sink.rewind(first)
                yield sink
            else:
                timed_steps = stack.enter_context(closing(timed_step(step, self.clock, first)))
                batches = timed.prepared(timed.visits_from(first))
                yield stack.enter_context(closing(StepByStep(timed_steps, batches, first, values)))

    def _write(self, data: Dataset) -> None:
        if self.clock.record.calls:
            self.write(self.clock.end(), data)

    def _check_points(self, cell: Cell, data: Dataset) -> None:
        points = {"forward": ("fp_point", self.settings.fp_point), "backward": ("bp_point", self.settings.bp_point)}
        if any(point for _, point in points.values()):
            operators = operators_in(trace(cell.compute, data.column_types(), "train_step"))
            names = [operator.name for operator in operators]
            for part, (name, point) in points.items():
                if point:
                    of_part = [operator.name for operator in operators if operator.part == part]
                    key = self.settings.keys.get(name, name)
                    # The words of a session need both points: only profiling=trace finds them.
                    of_session = key == f"session.{name}"
                    hint = "profiling=trace detects it" if of_session else "leave it out, and it is found"
                    check_point(point, key, names, hint, of_part, part)


def find_operator(text: str, cell: Cell, types: Sequence[TensorType]) -> SingleOperator:
    """The operator in a text: its full name in the graph of `cell` for inputs of these types, or a type with shapes.

    Raises ConfigError.
    """
    return parse_operator(text, lambda: trace(cell.compute, types, "train_step"))


def measure_in_both_modes(operator: SingleOperator, device: Device) -> dict[str, TimingStatistics]:
    """The times of a single operator by mode: of its kernel, and of a session with only this operator.

    Raises what compiling and the device raise.
    """
    arrays = operator.operands()
    program = Program(lambda *operands: operator.op(*operands), operator.inputs, device, "op_trace")
    values = [program.session.put(array) for array in arrays]
    with np.errstate(all="ignore"):
        return {
            "graph": measure_time(lambda: program.session.step(values)),
            "pynative": measure_time(lambda: operator.op.kernel(*arrays)),
        }


_trainings: dict[Path, int] = {}  # that this process has profiled into a folder
MODES = {context.GRAPH_MODE: "graph", context.PYNATIVE_MODE: "pynative"}


def profiler_from_context(mode: int, device: Device) -> TrainingProfiler | None:
    """The profiler that the context requests for a model of this mode and device; None without `enable_profiling`.

    Of several ranks the first one prints. Raises ConfigError for `op_trace`, which trains nothing, and StorageError
    when the folder cannot be created.
    """
    settings = context.profiling_settings()
    if settings is None:
        return None
    if settings.op_trace:
        hint = f"runner profiling=trace profiling.op_trace='{settings.op_trace}'"
        raise ConfigError("a model that trains has no op_trace", key="profiling_options.op_trace", hint=hint)
    return profiler_from_settings(settings, mode, device, scripted=True)


def profiler_from_settings(
    settings: ProfileSettings, mode: int, device: Device, scripted: bool = False, tuned: bool = False
) -> TrainingProfiler:
    """A profiler of trainings in this mode on this device. It writes the files; the first rank prints the summary.

    Trainings of a script (`scripted`) after the first one in a folder have `profile_2` and on below it; otherwise they
    replace it, as a resumed run does. `tuned`: whether the run was tuned.
    """

    def write_files(record: ProfileRecord, data: Dataset) -> None:
        target = ProfileTarget(
            *(MODES[mode], device.target.lower(), world().rank, world().size),
            scripted=scripted,
            tuned=tuned,
            can_sink=not data.has_whole_batches,
        )
        place = settings.result_path
        trainings = _trainings[place] = _trainings.get(place, 0) + 1
        later = scripted and trainings > 1
        own = replace(settings, result_path=place / f"profile_{trainings}") if later else settings
        for line in files.write(record, own, target, stages(data)):
            print(line)  # noqa: T201  the summary

    return TrainingProfiler(settings, write_files)

"""The profiler of `Model.train`: steps and callbacks with a clock, and the files at the end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import numpy as np

from runner import context
from runner.communication.world import world
from runner.compile.program import Program
from runner.core.graph import GraphObserver, ValueObserver
from runner.core.tracer import trace
from runner.dataset.pipeline import Dataset
from runner.dataset.stages import stages
from runner.device import Device
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.steps import Step
from runner.observe.profile import files
from runner.observe.profile.fp_bp_points import check_point
from runner.observe.profile.record import Clock, ProfileRecord, operators_in
from runner.observe.profile.settings import ProfileSettings, ProfileTarget
from runner.observe.profile.single_op import SingleOperator, TimingStatistics, measure_time, parse_operator
from runner.train.callback import Callback, CallbackList
from runner.train.profile.timing import TimedCallbacks, TimedDataset, TimedSink, timed_exchanges, timed_step
from runner.train.sink import Sink
from runner.train.steps import StepByStep
from runner.types import TensorType

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
                    key, hint = self.settings.keys.get(name, name), "leave it out, and it is found"
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
    return profiler_from_settings(settings, mode, device)


def profiler_from_settings(settings: ProfileSettings, mode: int, device: Device) -> TrainingProfiler:
    """A profiler of trainings in this mode on this device. It writes the files; the first rank prints the summary."""

    def write_files(record: ProfileRecord, data: Dataset) -> None:
        target = ProfileTarget(MODES[mode], device.target.lower(), world().rank, world().size)
        for line in files.write(record, settings, target, stages(data)):
            print(line)  # noqa: T201  the summary

    return TrainingProfiler(settings, write_files)

"""What `Model.train` asks when a training is profiled: steps and callbacks with a clock, and at the end the files."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import numpy as np

from runner import context
from runner.communication.world import world
from runner.compile.program import Program
from runner.core.observers import GraphObserver, ValueObserver
from runner.core.tracer import trace
from runner.dataset.pipeline import Dataset
from runner.dataset.stages import stages
from runner.device import Device
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.steps import Step
from runner.observe.profile import write
from runner.observe.profile.clock import Clock
from runner.observe.profile.fp_bp_points import check
from runner.observe.profile.record import Record
from runner.observe.profile.settings import Place, ProfilingSettings
from runner.observe.profile.single_op import Alone, Timing, measured, wanted
from runner.train.callback import Callback, CallbackList
from runner.train.profile.timed import TimedCallbacks, TimedDataset, TimedSink, timed_exchanges, timed_step
from runner.train.sink import Sink
from runner.train.steps import StepByStep
from runner.types import TensorType

Written = Callable[[Record, Dataset], object]


class Profiler:
    """Profiles trainings. `written` gets the record of each, with its data, and writes the files."""

    def __init__(self, settings: ProfilingSettings, written: Written) -> None:
        self.settings, self.written = settings, written
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
        """What makes the steps from number `first` to `total`; afterwards the files are written.

        `graphs` hears of what is compiled, `values` is shown values. Raises ConfigError when no operator has the name
        of a point.
        """
        self.clock.begin(first, total, sunk)
        timed = TimedDataset(data, self.clock)
        self._check_points(step.cell, data)
        with ExitStack() as stack:
            stack.enter_context(timed_exchanges(self.clock))
            stack.callback(self._write, data)  # also when the training fails: what is known may tell why
            if sunk:
                sink = stack.enter_context(closing(TimedSink(self.clock, step.cell, device, timed, graphs, values)))
                sink.rewind(first)
                yield sink
            else:
                watched = stack.enter_context(closing(timed_step(step, self.clock, first)))
                batches = timed.prepared(timed.visits_from(first))
                yield stack.enter_context(closing(StepByStep(watched, batches, first, values)))

    def _write(self, data: Dataset) -> None:
        if self.clock.record.calls:
            self.written(self.clock.end(), data)

    def _check_points(self, cell: Cell, data: Dataset) -> None:
        points = {"fp_point": self.settings.fp_point, "bp_point": self.settings.bp_point}
        if any(points.values()):
            graph = trace(cell.construct, data.column_types(), "train_step")
            for key, point in points.items():
                if point:
                    check(point, key, [node.name for node in graph.nodes], "leave it out, and it is found")


def find(text: str, cell: Cell, types: Sequence[TensorType]) -> Alone:
    """The operator that a text asks for: its full name in the graph of `cell` for inputs of these types, or a type with
    shapes. Raises ConfigError.
    """
    return wanted(text, lambda: trace(cell.construct, types, "train_step"))


def both_modes(alone: Alone, device: Device) -> dict[str, Timing]:
    """The times of the operator by itself, by mode: its kernel, and a session that holds nothing else.

    Raises what compiling and the device raise.
    """
    arrays = alone.operands()
    program = Program(lambda *operands: alone.op(*operands), alone.inputs, device, "op_trace")
    values = [program.session.put(array) for array in arrays]
    with np.errstate(all="ignore"):
        return {
            "graph": measured(lambda: program.session.step(values)),
            "pynative": measured(lambda: alone.op.kernel(*arrays)),
        }


MODES = {context.GRAPH_MODE: "graph", context.PYNATIVE_MODE: "pynative"}


def of_context(mode: int, device: Device) -> Profiler | None:
    """Who profiles a model of this mode on this device, writes the files and prints the summary; None when nobody asks.

    Of several ranks the first one prints. Raises ConfigError for `op_trace`, which trains nothing, and StorageError
    when the folder cannot be made.
    """
    settings = context.profiling_settings()
    if settings is None:
        return None
    if settings.op_trace:
        hint = f"runner profiling=trace profiling.op_trace='{settings.op_trace}'"
        raise ConfigError("a model that trains has no op_trace", key="profiling_options.op_trace", hint=hint)
    return telling(settings, mode, device)


def telling(settings: ProfilingSettings, mode: int, device: Device) -> Profiler:
    """Who profiles trainings of this mode and device, writes the files and, on the first rank, prints the summary."""

    def written(record: Record, data: Dataset) -> None:
        place = Place(MODES[mode], device.target.lower(), device.workers, world().rank, world().size)
        for line in write.write(record, settings, place, stages(data)):
            print(line)  # noqa: T201  the summary

    return Profiler(settings, written)

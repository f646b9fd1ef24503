"""What `Model.train` asks when a training is profiled: steps and callbacks with a clock, and at the end the files."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from runner.core.observer import GraphObserver, ValueObserver
from runner.dataset.pipeline import Dataset
from runner.device import Device
from runner.engine.tracer import trace
from runner.nn.cell import Cell
from runner.profiling.clock import Clock
from runner.profiling.points import check
from runner.profiling.record import Record
from runner.profiling.settings import ProfilingSettings
from runner.train.callback import Callback, CallbackList
from runner.train.heard import heard
from runner.train.sink import Sink
from runner.train.step import Step, StepByStep
from runner.train.timed import TimedCallbacks, TimedDataset, TimedSink, timed_step

Written = Callable[[Record, Dataset], object]


class Profiler:
    """Profiles trainings. `written` gets the record of each, with its data, and writes the files."""

    def __init__(self, settings: ProfilingSettings, written: Written) -> None:
        self.settings, self.written = settings, written
        self.clock = Clock(settings)

    def callbacks(self, callbacks: Callback | Sequence[Callback] | None) -> CallbackList:
        """The callbacks as one, heard by the clock."""
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
            stack.enter_context(heard(self.clock))
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

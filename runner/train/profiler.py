"""What `Model.train` asks when a training is profiled: steps and callbacks with a clock, and at the end the files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from runner.dataset.pipeline import Dataset
from runner.engine.tracer import trace
from runner.profiling.clock import Clock
from runner.profiling.points import named
from runner.profiling.record import Record, operators_of
from runner.profiling.settings import ProfilingSettings
from runner.train.callback import Callback, CallbackList
from runner.train.sink import Sink
from runner.train.step import StepByStep
from runner.train.timed import TimedCallbacks, TimedDataset, TimedSink, timed_step

if TYPE_CHECKING:
    from runner.train.model import Model

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
        self, model: "Model", data: Dataset, sunk: bool, first: int, total: int
    ) -> Iterator[StepByStep | Sink]:
        """What makes the steps from number `first` to `total`; afterwards the files are written.

        Raises ConfigError when no operator has the name of a point.
        """
        self.clock.begin(first, total)
        timed = TimedDataset(data, self.clock)
        if sunk:
            sink = TimedSink(self.clock, model.train_network, model.device, timed, model.observer, model.observed())
            sink.rewind(first)
            self._check_points(model, data, sink.root)
            yield sink
            sink.close()
        else:
            self._check_points(model, data, "Default")
            step = timed_step(model.train_step, self.clock, first)
            batches = timed.prepared(timed.visits_from(first))
            with closing(StepByStep(step, batches, first, model.observed())) as steps:
                yield steps
            step.close()
        if self.clock.record.calls:
            self.written(self.clock.end(), data)

    def _check_points(self, model: "Model", data: Dataset, root: str) -> None:
        points = {"fp_point": self.settings.fp_point, "bp_point": self.settings.bp_point}
        if any(points.values()):
            graph = trace(model.train_network.construct, data.column_types(), "train_step", root)
            known = {operator.name: operator for operator in operators_of(graph.nodes)}
            for key, point in points.items():
                if point:
                    named(point, key, known)

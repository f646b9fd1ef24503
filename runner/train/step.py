"""Two ways to run a cell once: operator by operator, or as a compiled graph. Both take and give arrays."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import numpy as np

from runner import context
from runner.compile.program import Program
from runner.core.observer import SILENT, GraphObserver
from runner.core.value import Tensor
from runner.device import Device
from runner.engine.eager import Eager
from runner.nn.cell import EXECUTORS, Cell
from runner.nn.optim import one_step, scheduled
from runner.startup import lazy_import
from runner.types import TensorType

recorder = lazy_import("runner.engine.recorder")  # only for runs that save graphs


class Step(Protocol):
    """Runs a cell once; parameters have their new values afterwards."""

    cell: Cell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs for these inputs."""


class EagerStep:
    """PyNative mode."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the kernels in the order in which `construct` applies the operators."""
        # Numbers may overflow here as in graph mode: the loss tells, and numpy need not say it on the screen too.
        with np.errstate(all="ignore"), Eager() as interpreter:
            made = self.cell.construct(*map(Tensor, arrays))
            interpreter.commit()
        return [value.data for value in (made if isinstance(made, tuple | list) else (made,))]


class RecordedStep(EagerStep):
    """PyNative mode with the same numbers; of the first step the observer hears what graph mode would tell of it.

    The graph is called `name`.
    """

    def __init__(self, cell: Cell, name: str, observer: GraphObserver) -> None:
        super().__init__(cell)
        self.name, self.observer, self.recorded = name, observer, False

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As `EagerStep`."""
        if self.recorded:
            return super().__call__(arrays)
        self.recorded, inputs = True, tuple(map(Tensor, arrays))
        with np.errstate(all="ignore"), recorder.Recorder(inputs) as interpreter:
            try:
                made = self.cell.construct(*inputs)
            except Exception:
                self.observer.failed(interpreter.graph(self.name))
                raise
            interpreter.commit()
        values = made if isinstance(made, tuple | list) else (made,)
        graph = interpreter.graph(self.name, tuple(values))
        self.observer.stage("tape", graph)
        self.observer.executed(graph)
        return [value.data for value in values]


class GraphStep:
    """Graph mode: one program for each combination of input types, compiled when it is first met.

    `programs` holds them in the order in which they were compiled; the observer hears of each.
    """

    def __init__(
        self,
        cell: Cell,
        device: Device,
        name: str,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        observer: GraphObserver = SILENT,
    ) -> None:
        self.cell, self.device, self.name, self.observer = cell, device, name, observer
        self.inputs, self.outputs = inputs, outputs
        self.programs: dict[tuple[TensorType, ...], Program] = {}

    def program(self, types: tuple[TensorType, ...]) -> Program:
        """The program for inputs of these types."""
        if types not in self.programs:
            names = self.name, self.inputs, self.outputs
            self.programs[types] = Program(self.cell.construct, types, self.device, *names, self.observer)
        return self.programs[types]

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the program that fits."""
        return self.program(tuple([TensorType.of(array) for array in arrays]))(arrays)


class StepByStep:
    """Runs a training step with one batch after the other; `interactions` counts the steps.

    A learning rate that follows a schedule is set before each step. `batches` may have threads that prepare the next
    ones: `close` ends them.
    """

    def __init__(self, step: Step, batches: Generator[tuple[np.ndarray, ...], None, None]) -> None:
        self.step, self.batches, self.interactions = step, batches, 0
        self._scheduled = scheduled(step.cell)

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Losses of the next `count` steps; `leave` is for sinks, whose callers cannot ask between steps."""
        self.interactions += count
        return np.array([self._one() for _ in range(count)])

    def close(self) -> None:
        """No step follows."""
        self.batches.close()

    def _one(self) -> np.ndarray:
        batch = next(self.batches)
        if not self._scheduled:
            return self.step(batch)[0]
        with one_step(self._scheduled):
            return self.step(batch)[0]

    @property
    def programs(self) -> dict[Any, Program]:
        """What was compiled for it."""
        return self.step.programs if isinstance(self.step, GraphStep) else {}


def _call_eager(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    with one_step(scheduled(cell)), np.errstate(all="ignore"), Eager() as interpreter:
        made = cell.construct(*[x if isinstance(x, Tensor) else Tensor(x) for x in inputs])
        interpreter.commit()
    return made


def _call_graph(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    arrays = [x.data if isinstance(x, Tensor) else Tensor(x).data for x in inputs]
    key = (context.device(), context.reserves_class_names(), *(c.training for _, c in cell.cells_and_names()))
    # The cell keeps its own programs, so that they go when it goes.
    steps: dict[tuple[Any, ...], GraphStep] = cell.__dict__.setdefault("_graphs", {})
    if key not in steps:
        steps[key] = GraphStep(cell, context.device(), type(cell).__name__, observer=context.graph_observer())
    program = steps[key].program(tuple(TensorType.of(array) for array in arrays))
    with one_step(scheduled(cell)):
        made = program.tensors(arrays)
    return made[0] if len(made) == 1 else tuple(made)


EXECUTORS[context.PYNATIVE_MODE] = _call_eager
EXECUTORS[context.GRAPH_MODE] = _call_graph

"""Two ways to run a cell once: operator by operator, or as a compiled graph. Both take and give arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from runner import compile as compiler, context
from runner.core.eager import Eager
from runner.core.graph import Graph, Pass
from runner.core.observers import SILENT, UNSEEING, GraphObserver, ValueObserver
from runner.core.precision import working_under
from runner.core.recorder import Recorder, Showing
from runner.core.value import Tensor
from runner.device import Device
from runner.errors import StorageError
from runner.nn.cell import EXECUTORS, Cell
from runner.nn.optim import one_step, scheduled
from runner.types import TensorType


class Step(Protocol):
    """Runs a cell once; parameters have their new values afterwards."""

    cell: Cell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs for these inputs."""

    def show(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """The same outputs; the observer is shown the values of the step, which has this number."""


class EagerStep:
    """PyNative mode; of the first step the observer hears what graph mode would tell of it (as graph `name`)."""

    def __init__(self, cell: Cell, name: str, observer: GraphObserver = SILENT) -> None:
        self.cell, self.name, self.observer = cell, name, observer
        self.records = observer.records_steps

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the kernels in the order in which `construct` applies the operators."""
        if self.records:
            inputs = tuple(map(Tensor, arrays))
            return self._record(Recorder(inputs), inputs, lambda graph: None)
        return self.under(Eager(), arrays)

    def under(self, interpreter: Eager, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As a call, under an interpreter of the caller's."""
        # Numbers may overflow here as in graph mode: the loss tells, and numpy need not say it on the screen too.
        with np.errstate(all="ignore"), interpreter:
            made = _values(self.cell.construct(*map(Tensor, arrays)))
            interpreter.commit()
        return [value.data for value in made]

    def show(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """As a call; every operator is shown at once."""
        inputs = tuple(map(Tensor, arrays))
        observer.begin(step, tuple([x.type for x in inputs]))
        interpreter = Showing(inputs, step, observer)
        return self._record(interpreter, inputs, lambda graph: observer.end(step, graph))

    def _record(
        self, interpreter: Recorder, inputs: tuple[Tensor, ...], hear: Callable[[Graph], None]
    ) -> list[np.ndarray]:
        """Run with a recorder; `hear` gets the graph before parameters have their new values."""
        with np.errstate(all="ignore"), interpreter:
            try:
                made = _values(self.cell.construct(*inputs))
            except StorageError:  # of an observer: nothing is wrong with the graph
                raise
            except Exception:
                self.observer.failed(interpreter.graph(self.name))
                raise
            graph = interpreter.graph(self.name, made)
            hear(graph)
            interpreter.commit()
        if self.records:
            self.observer.stage("tape", graph)
            self.observer.executed(graph)
            self.records = False
        return [value.data for value in made]


def _values(made: Any) -> tuple[Tensor, ...]:
    if made is None:
        return ()
    return tuple(made) if isinstance(made, tuple | list) else (made,)


class DebugPrograms:
    """Shows an observer steps of a cell in graph mode; parameters stay as they are."""

    def __init__(self, cell: Cell, device: Device, name: str, root: str, observer: ValueObserver) -> None:
        self.cell, self.device, self.name, self.root, self.observer = cell, device, name, root, observer
        self._compiled: dict[tuple[TensorType, ...], compiler.DebugProgram] = {}

    def __call__(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Compute a step for the observer."""
        types = tuple([TensorType.of(array) for array in arrays])
        if types not in self._compiled:
            names = self.name, self.root
            self._compiled[types] = compiler.DebugProgram(
                self.cell.construct, types, self.device, *names, self.observer
            )
        self._compiled[types](step, arrays)


class GraphStep:
    """Graph mode: one program for each combination of input types, compiled when it is first met.

    `programs` holds them in the order in which they were compiled; the observer hears of each. `passes` are those of
    the compiler, where they are others than usual.
    """

    def __init__(
        self,
        cell: Cell,
        device: Device,
        name: str,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        observer: GraphObserver = SILENT,
        passes: Sequence[Pass] | None = None,
    ) -> None:
        self.cell, self.device, self.name, self.observer = cell, device, name, observer
        self.inputs, self.outputs, self.passes = inputs, outputs, passes
        self.programs: dict[tuple[TensorType, ...], compiler.Program] = {}
        self._debug: DebugPrograms | None = None

    def program(self, types: tuple[TensorType, ...]) -> compiler.Program:
        """The program for inputs of these types."""
        if types not in self.programs:
            how = self.name, self.inputs, self.outputs, self.observer, self.passes
            self.programs[types] = compiler.Program(self.cell.construct, types, self.device, *how)
        return self.programs[types]

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the program that fits."""
        return self.program(tuple([TensorType.of(array) for array in arrays]))(arrays)

    def show(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """Show the step first, then make it with the program that makes the others: so its numbers stay the same."""
        if self._debug is None or self._debug.observer is not observer:
            self._debug = DebugPrograms(self.cell, self.device, self.name, "Default", observer)
        self._debug(step, arrays)
        return self(arrays)


def _call_eager(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in inputs]
    observer, number = _shown_call()
    if number is not None:
        with one_step(scheduled(cell)), working_under(context.precision()):
            shown = EagerStep(cell, type(cell).__name__).show([x.data for x in tensors], number, observer)
        return _returned([Tensor(array) for array in shown])
    with (
        one_step(scheduled(cell)),
        np.errstate(all="ignore"),
        working_under(context.precision()),
        Eager() as interpreter,
    ):
        made = cell.construct(*tensors)
        interpreter.commit()
    return made


def _call_graph(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    arrays = [x.data if isinstance(x, Tensor) else Tensor(x).data for x in inputs]
    modes = [c.training for _, c in cell.cells_and_names()]
    key = (context.device(), context.reserves_class_names(), context.precision(), *modes)
    # The cell keeps its own programs, so that they go when it goes.
    steps: dict[tuple[Any, ...], GraphStep] = cell.__dict__.setdefault("_graphs", {})
    if key not in steps:
        steps[key] = GraphStep(cell, context.device(), type(cell).__name__, observer=context.graph_observer())
    observer, number = _shown_call()
    with one_step(scheduled(cell)), working_under(context.precision()):
        if number is not None:
            made = [Tensor(array) for array in steps[key].show(arrays, number, observer)]
        else:
            made = steps[key].program(tuple(TensorType.of(array) for array in arrays)).tensors(arrays)
    return _returned(made)


def _shown_call() -> tuple[ValueObserver, int | None]:
    """Who is shown the call of a cell, and the number of the call when it asks for it."""
    observer = context.value_observer()
    if observer is UNSEEING:
        return observer, None
    number, observer.calls = observer.calls, observer.calls + 1
    return observer, number if observer.following(number) == number else None


def _returned(made: Sequence[Tensor]) -> Any:
    return made[0] if len(made) == 1 else tuple(made) or None


EXECUTORS[context.PYNATIVE_MODE] = _call_eager
EXECUTORS[context.GRAPH_MODE] = _call_graph

"""Executes a cell once, operator by operator or as a compiled graph, with arrays as inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from runner import compile as compiler
from runner.core.eager import Eager
from runner.core.graph import NO_GRAPHS, Graph, GraphObserver, Pass, ValueObserver
from runner.core.recorder import ObservingRecorder, Recorder
from runner.core.structure import values_of
from runner.core.values import Tensor
from runner.device import Device
from runner.errors import StorageError
from runner.nn.cell import Cell
from runner.types import TensorType


class Step(Protocol):
    """Executes a cell once, and updates its parameters."""

    cell: Cell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""

    def observe(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """The same outputs; the observer receives the values of the step, whose number is `step`."""


class EagerStep:
    """PyNative mode; the observer receives the graph of the first step under `name`, as from graph mode."""

    def __init__(self, cell: Cell, name: str, observer: GraphObserver = NO_GRAPHS) -> None:
        self.cell, self.name, self.observer = cell, name, observer
        self.records = observer.records_steps

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the kernels in the order in which `construct` applies the operators."""
        if self.records:
            inputs = tuple(map(Tensor, arrays))
            return self._record(Recorder(inputs), inputs, lambda graph: None)
        return self.run_with(Eager(), arrays)

    def run_with(self, interpreter: Eager, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As a call, with the given interpreter."""
        # Numbers may overflow as in graph mode: the loss shows it, without warnings of numpy.
        with np.errstate(all="ignore"), interpreter:
            outputs = values_of(self.cell.compute(*map(Tensor, arrays)))
            interpreter.commit()
        return [value.array for value in outputs]  # type: ignore[attr-defined]

    def observe(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """As a call; the observer receives every operator immediately."""
        inputs = tuple(map(Tensor, arrays))
        observer.begin(step, tuple([x.type for x in inputs]))
        interpreter = ObservingRecorder(inputs, step, observer)
        return self._record(interpreter, inputs, lambda graph: observer.end(step, graph))

    def _record(
        self, interpreter: Recorder, inputs: tuple[Tensor, ...], on_graph: Callable[[Graph], None]
    ) -> list[np.ndarray]:
        """Run with a recorder; `on_graph` receives the graph before parameters have their new values."""
        with np.errstate(all="ignore"), interpreter:
            try:
                outputs = values_of(self.cell.compute(*inputs))
            except StorageError:  # raised by an observer: the graph is valid
                raise
            except Exception:
                self.observer.failed(interpreter.graph(self.name))
                raise
            graph = interpreter.graph(self.name, outputs)
            on_graph(graph)
            interpreter.commit()
        if self.records:
            self.observer.stage("tape", graph)
            self.observer.executed(graph)
            self.records = False
        return [value.array for value in outputs]  # type: ignore[attr-defined]


class DebugPrograms:
    """Passes the values of steps of a cell in graph mode to an observer, without changing parameters."""

    def __init__(self, cell: Cell, device: Device, name: str, root: str, observer: ValueObserver) -> None:
        self.cell, self.device, self.name, self.root, self.observer = cell, device, name, root, observer
        self._compiled: dict[tuple[TensorType, ...], compiler.DebugProgram] = {}

    def __call__(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Execute a step for the observer."""
        types = tuple([TensorType.of(array) for array in arrays])
        if types not in self._compiled:
            names = self.name, self.root
            self._compiled[types] = compiler.DebugProgram(self.cell.compute, types, self.device, *names, self.observer)
        self._compiled[types](step, arrays)


class GraphStep:
    """Graph mode: one program for each combination of input types, compiled on first use.

    `columns` are the names of the inputs of programs that are compiled from now on; `programs` holds all in the order
    of compilation, and the observer receives the events of each. `passes` replace the default ones of the compiler.
    """

    def __init__(
        self,
        cell: Cell,
        device: Device,
        name: str,
        columns: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        observer: GraphObserver = NO_GRAPHS,
        passes: Sequence[Pass] | None = None,
    ) -> None:
        self.cell, self.device, self.name, self.observer = cell, device, name, observer
        self.columns, self.outputs, self.passes = columns, outputs, passes
        self.programs: dict[tuple[TensorType, ...], compiler.Program] = {}
        self._debug: DebugPrograms | None = None

    def program(self, types: tuple[TensorType, ...]) -> compiler.Program:
        """The program for inputs of these types."""
        if types not in self.programs:
            how = self.name, self.columns, self.outputs, self.observer, self.passes
            self.programs[types] = compiler.Program(self.cell.compute, types, self.device, *how)
        return self.programs[types]

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the program for these types."""
        return self.program(tuple([TensorType.of(array) for array in arrays]))(arrays)

    def observe(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """Run the debug program for the observer, then the step with its usual program: results do not change."""
        if self._debug is None or self._debug.observer is not observer:
            self._debug = DebugPrograms(self.cell, self.device, self.name, "Default", observer)
        self._debug(step, arrays)
        return self(arrays)

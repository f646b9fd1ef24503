"""Observers of graphs while they are compiled, and of the values of a step while it runs."""

from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import NamedTuple

import numpy as np

from runner.core.graph import Graph
from runner.core.lowering import PLAIN, Layout
from runner.core.primitive import Node
from runner.types import TensorType


class GraphObserver:
    """Base of graph observers, which ignores every event. For each program: `traced`, a `stage` per pass, `lowered`,
    `compiled`, and finally `executed` or `failed`.
    """

    records_steps = False  # whether the first step of PyNative mode is recorded and reported
    disables_optimization = False  # whether neither passes nor the device may change the traced graph

    def traced(self, graph: Graph) -> None:
        """The complete program, as traced."""

    def stage(self, name: str, graph: Graph) -> None:
        """The graph after a pass, which may be unchanged."""

    def lowered(self, graph: Graph, describe: Callable[[int], object]) -> None:
        """The graph was lowered to an ONNX model; `describe` returns the listing of that model under a number."""

    def compiled(self, graph: Graph, model: object) -> None:
        """The ONNX model (a ModelProto) for the device."""

    def executed(self, graph: Graph) -> None:
        """The program is ready to run."""

    def failed(self, graph: Graph) -> None:
        """Tracing (`graph` is then the part traced so far), a pass, lowering or the device failed."""


NO_GRAPHS = GraphObserver()


class GraphObservers(GraphObserver):
    """Forwards every event to its observers. What one of them requires applies to all."""

    def __init__(self, *observers: GraphObserver) -> None:
        self.observers = observers
        self.records_steps = any(x.records_steps for x in observers)
        self.disables_optimization = any(x.disables_optimization for x in observers)

    def fire(self, event: str, *arguments: object) -> None:
        """Call this method of every observer."""
        for observer in self.observers:
            getattr(observer, event)(*arguments)


for _event, _method in vars(GraphObserver).items():
    if callable(_method):
        setattr(GraphObservers, _event, partialmethod(GraphObservers.fire, _event))


class ObservedValue(NamedTuple):
    """A value in memory: an array, which must not be changed, and its layout."""

    array: np.ndarray
    layout: Layout = PLAIN


class ValueObserver:
    """Base of value observers, which requests no step. Observers receive the inputs and outputs of operators in the
    training steps that they request: `begin`, `operator` for each in the order of execution, `end`. Steps count from 0;
    `end` comes before parameters have their new values.
    """

    device_layout = False  # whether values come in the layout of the device, or else plain
    supports_sinks = True  # whether it may request steps inside of a sink
    cell_calls = 0  # number of observed calls of cells outside of a training

    def next_step(self, step: int) -> int | None:
        """The first requested step that is not before `step`; None when there is none."""
        return None

    def selects(self, node: Node) -> bool:
        """Whether the inputs and outputs of this operator are requested."""
        return True

    def begin(self, step: int, types: tuple[TensorType, ...]) -> None:
        """A step with inputs of these types begins."""

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """An operator that was selected."""

    def failed(self, step: int, node: Node, inputs: Sequence[ObservedValue]) -> None:
        """An operator of PyNative mode that could not be computed; an error is being raised."""

    def end(self, step: int, graph: Graph) -> None:
        """The step is complete; `graph` has all its operators, and its parameters the values that the step used."""

    def rewind(self, step: int) -> None:
        """Discard what is left of the steps from number `step` on: a resumed run executes them again."""

    def flush(self) -> None:
        """Return when everything that was observed is stored."""

    def close(self) -> None:
        """No more steps follow."""


NO_VALUES = ValueObserver()

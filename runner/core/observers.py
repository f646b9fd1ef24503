"""Who hears of a graph while it is compiled, and who is shown the values of a step while it runs.

Those who tell do not care what becomes of it.
"""

from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import NamedTuple

import numpy as np

from runner.core.graph import Graph
from runner.core.lowering import PLAIN, Layout
from runner.core.primitive import Node
from runner.types import TensorType


class GraphObserver:
    """Hears of one program after the other: `traced`, a `stage` for each pass, `lowered`, `compiled`, and at the end
    `executed` or `failed`.

    This one, the default, looks away.
    """

    records_steps = False  # whether the first step of PyNative mode is to be recorded for it
    as_traced = False  # whether graphs are to stay as they were traced: neither passes nor the device optimise them

    def traced(self, graph: Graph) -> None:
        """The whole program as it was traced."""

    def stage(self, name: str, graph: Graph) -> None:
        """What a pass made of it; perhaps nothing new."""

    def lowered(self, graph: Graph, describe: Callable[[int], object]) -> None:
        """It is an ONNX model now; `describe` gives the listing of that under a number."""

    def compiled(self, graph: Graph, model: object) -> None:
        """The ONNX model (a ModelProto) that the device is given."""

    def executed(self, graph: Graph) -> None:
        """It is ready to run, and will."""

    def failed(self, graph: Graph) -> None:
        """It could not be traced (then this is the part that was), changed, lowered or run; an error is on its way."""


SILENT = GraphObserver()


class Observers(GraphObserver):
    """Several observers as one; what one of them needs, all of them get."""

    def __init__(self, *observers: GraphObserver) -> None:
        self.observers = observers
        self.records_steps = any(one.records_steps for one in observers)
        self.as_traced = any(one.as_traced for one in observers)

    def fire(self, event: str, *arguments: object) -> None:
        """Call this method of each observer."""
        for one in self.observers:
            getattr(one, event)(*arguments)


for _event, _method in vars(GraphObserver).items():
    if callable(_method):
        setattr(Observers, _event, partialmethod(Observers.fire, _event))


class Shown(NamedTuple):
    """A value: the array as it lies in memory, and the layout that this is. It must stay unchanged."""

    array: np.ndarray
    layout: Layout = PLAIN


class ValueObserver:
    """Is shown what operators take and make, in the steps of a training that it asks for: `begin`, `operator` for each
    in the order of execution, `end`. Steps count from 0; `end` comes before parameters have their new values.

    This one, the default, asks for nothing.
    """

    as_lying = False  # whether values are shown as they lie on the device, or else plain
    sinks = True  # whether it may ask for steps of a sink
    calls = 0  # how many cells were shown to it that were called by themselves

    def following(self, step: int) -> int | None:
        """The first step that it wants to see and that is not before `step`."""
        return None

    def chooses(self, node: Node) -> bool:
        """Whether it wants to see what this operator takes and makes."""
        return True

    def begin(self, step: int, types: tuple[TensorType, ...]) -> None:
        """A step begins, with inputs of these types."""

    def operator(self, step: int, node: Node, inputs: Sequence[Shown], outputs: Sequence[Shown]) -> None:
        """An operator that it has chosen."""

    def failed(self, step: int, node: Node, inputs: Sequence[Shown]) -> None:
        """An operator of PyNative mode that could not be computed; an error is on its way."""

    def end(self, step: int, graph: Graph) -> None:
        """The step is over; `graph` has all its operators, and parameters with the values that it has used."""

    def close(self) -> None:
        """Nothing follows."""


UNSEEING = ValueObserver()

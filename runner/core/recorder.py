"""PyNative mode while somebody looks: it computes as ever, and writes down the graph that the tracer would make."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from runner.core.eager import Eager
from runner.core.graph import Graph
from runner.core.lowering import LAST
from runner.core.observers import ObservedValue, ValueObserver
from runner.core.primitive import Node, Primitive
from runner.core.tracer import Tracer, symbols
from runner.core.value import Parameter, Symbol, Tensor, Value
from runner.errors import TrainingError
from runner.types import TensorType


class _Named(Tensor):
    """A result that knows its symbol. So the record holds no data, and activations die as early as without it."""

    __slots__ = ("symbol",)
    symbol: Symbol


class Recorder(Eager):
    """`Eager`, with the record of a `Tracer`: symbols, scopes and source lines."""

    def __init__(self, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()
        self._tracer = Tracer()
        self._inputs: dict[Value, Symbol] = {x: Symbol(x.type, f"input{k}") for k, x in enumerate(inputs)}

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, and note it."""
        taped, source = self.tape, self.source()
        made = super().apply(op, inputs, types)
        named = symbols(types, self.count)
        outputs = tuple([_named(y, symbol) for y, symbol in zip(made, named, strict=True)])
        if taped:  # what gradients are formed of, and where it stands
            self.nodes[-1].outputs, self.nodes[-1].source = outputs, source
        operands = tuple([self._symbol(x) for x in inputs])
        self._tracer.nodes.append(Node(op, operands, named, self.current_scope(), self.count, source))
        return outputs

    def assign(self, parameter: Parameter, value: Value) -> None:
        """As in every interpreter; `commit` forgets it, the record does not."""
        super().assign(parameter, value)
        self._tracer.updates[parameter] = self._symbol(value)

    @property
    def recorded_nodes(self) -> list[Node]:
        """What was applied so far, with symbols."""
        return self._tracer.nodes

    def graph(self, name: str, returned: tuple[Value, ...] = ()) -> Graph:
        """What was computed so far, with these outputs."""
        return self._tracer.graph(name, tuple(self._inputs.values()), tuple([self._symbol(x) for x in returned]))

    def _symbol(self, value: Value) -> Symbol:
        if isinstance(value, _Named):
            return value.symbol
        found = self._inputs[value] if value in self._inputs else self._tracer.lift(value)
        assert isinstance(found, Symbol)
        return found


def _named(value: Value, symbol: Symbol) -> _Named:
    assert isinstance(value, Tensor)
    named = object.__new__(_Named)
    named.type, named._data, named.symbol = value.type, value.data, symbol
    return named


class ObservingRecorder(Recorder):
    """`Recorder` of the step that has this number, for an observer of values."""

    def __init__(self, inputs: tuple[Tensor, ...], step: int, observer: ValueObserver) -> None:
        super().__init__(inputs)
        self.step, self.observer = step, observer

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, note it, and show it to the observer if it chooses to see it."""
        try:
            outputs = super().apply(op, inputs, types)
        except TrainingError:
            node = Node(op, (), (), self.current_scope(), self.count, self.source())
            self.observer.failed(self.step, node, self._shown(inputs))
            raise
        node = self.recorded_nodes[-1]
        if self.observer.selects(node):
            self.observer.operator(self.step, node, self._shown(inputs), self._shown(outputs))
        return outputs

    def _shown(self, values: Sequence[Value]) -> list[ObservedValue]:
        return [
            observed_value(value.data, self.observer.device_layout) for value in values if isinstance(value, Tensor)
        ]


def observed_value(array: np.ndarray, device_layout: bool) -> ObservedValue:
    """An array as it is shown: the kernels of convolutions and pools leave (N, C, H, W) batch last in memory."""
    if device_layout and array.ndim == 4 and not array.flags.c_contiguous:
        turned = array.transpose(1, 2, 3, 0)
        if turned.flags.c_contiguous:
            return ObservedValue(turned, LAST)
    return ObservedValue(array)


class TimedOperator(NamedTuple):
    """An operator that was computed, from `start` to `stop` (ns of `time.perf_counter_ns`). It holds no data."""

    op: Primitive
    scope: str
    number: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Full name, as of a `Node`."""
        return f"{self.scope}/{self.op.name}-op{self.number}"


class TimedInterpreter(Eager):
    """`Eager` with `timed`: the operators in the order in which they were computed."""

    def __init__(self) -> None:
        super().__init__()
        self.timings: list[TimedOperator] = []

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, and note when."""
        start = time.perf_counter_ns()
        made = super().apply(op, inputs, types)
        stop = time.perf_counter_ns()
        self.timings.append(
            TimedOperator(op, self.current_scope(), self.count, tuple([x.type for x in inputs]), types, start, stop)
        )
        return made

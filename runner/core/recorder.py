"""PyNative mode with a record of the graph that the tracer would build, with observed values, or with times."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from runner.core.graph import Graph, ObservedValue, ValueObserver, as_symbol
from runner.core.interpreter import Eager
from runner.core.lowering import LAST
from runner.core.operators import Node, Primitive
from runner.core.trace import Tracer, symbols
from runner.core.values import Parameter, Symbol, Tensor, Value
from runner.errors import TrainingError
from runner.types import TensorType


class Recorder(Eager):
    """`Eager`, with the record of a `Tracer`: symbols, scopes and source lines.

    A result has its symbol, so the record holds no data, and activations are freed as early as without it.
    """

    def __init__(self, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.tracer = Tracer()
        self._inputs: dict[Value, Symbol] = {x: Symbol(x.type, f"input{k}") for k, x in enumerate(inputs)}
        self._rebound: dict[Value, Symbol] = {}

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, and record it."""
        taped, source = self.tape.is_on, self.source()
        computed = super().apply(op, inputs, types)
        named = symbols(types, self.count)
        for result, symbol in zip(computed, named, strict=True):
            result.symbol = symbol  # type: ignore[attr-defined]
        if taped:  # the errors of gradients have the source lines of the tape
            self.tape.nodes[-1].source = source
        operands = tuple([self._symbol(x) for x in inputs])
        scope, instance = self.current_scope(), op.attrs.get("instance_name", "")
        self.tracer.tape.nodes.append(Node(op, operands, named, scope, self.count, source, instance=instance))
        return computed

    def rebind(self, target: Value, value: Value) -> None:
        """As in `Eager`; in the record, the symbol of the new value stands for `target`."""
        symbol = self._symbol(value)
        super().rebind(target, value)
        self._rebound[target] = symbol

    def assign(self, parameter: Parameter, value: Value) -> None:
        """As in every interpreter; the record keeps it after `commit`."""
        super().assign(parameter, value)
        self.tracer.assignments.latest[parameter] = self._symbol(self.assignments.latest[parameter])

    def graph(self, name: str, returned: tuple[Value, ...] = ()) -> Graph:
        """The graph of all operators so far, with these outputs."""
        return self.tracer.graph(name, tuple(self._inputs.values()), tuple([self._symbol(x) for x in returned]))

    def _symbol(self, value: Value) -> Symbol:
        for known in (self._rebound, self._inputs):
            if value in known:
                return known[value]
        if isinstance(symbol := getattr(value, "symbol", None), Symbol):
            return symbol
        if isinstance(value, Parameter):  # unassigned when it was read
            return as_symbol(self.tracer.entry(value))
        return as_symbol(self.tracer.lift(value))


class ObservingRecorder(Recorder):
    """`Recorder` that passes the values of step number `step` to an observer."""

    def __init__(self, inputs: tuple[Tensor, ...], step: int, observer: ValueObserver) -> None:
        super().__init__(inputs)
        self.step, self.observer = step, observer

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, record it, and pass its values to the observer if it selects the operator."""
        try:
            outputs = super().apply(op, inputs, types)
        except TrainingError:
            operands = tuple([self._symbol(x) for x in inputs])
            node = Node(op, operands, (), self.current_scope(), self.count, self.source())
            self.tracer.tape.nodes.append(node)
            self.observer.failed(self.step, node, self._observed(inputs), self.graph("step"))
            raise
        node = self.tracer.tape.nodes[-1]
        if self.observer.selects(node):
            self.observer.operator(self.step, node, self._observed(inputs), self._observed(outputs))
        return outputs

    def _observed(self, values: Sequence[Value]) -> list[ObservedValue]:
        return [
            observed_value(value.array, self.observer.device_layout) for value in values if isinstance(value, Tensor)
        ]


def observed_value(array: np.ndarray, device_layout: bool) -> ObservedValue:
    """An array for an observer: kernels of convolutions and pools return (N, C, H, W) in batch-last memory order."""
    if device_layout and array.ndim == 4 and not array.flags.c_contiguous:
        batch_last = array.transpose(1, 2, 3, 0)
        if batch_last.flags.c_contiguous:
            return ObservedValue(batch_last, LAST)
    return ObservedValue(array)


class TimedOperator(NamedTuple):
    """One application of an operator, from `start` to `stop` (ns of `time.perf_counter_ns`), without data."""

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
    """`Eager` with `timings` of the operators, in the order of execution."""

    def __init__(self) -> None:
        super().__init__()
        self.timings: list[TimedOperator] = []

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, and record its start and end."""
        start = time.perf_counter_ns()
        outputs = super().apply(op, inputs, types)
        stop = time.perf_counter_ns()
        self.timings.append(
            TimedOperator(op, self.current_scope(), self.count, tuple([x.type for x in inputs]), types, start, stop)
        )
        return outputs

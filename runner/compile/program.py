"""Compiled functions: traced, optimised, lowered to ONNX and loaded into a session on a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.compile.channels_last import with_channels_last
from runner.compile.onnx import describe
from runner.compile.onnx.locate_error import add_location, locate_errors
from runner.compile.onnx.lower import column_names, lower, lower_sunk, with_defaults
from runner.compile.ort.session import Session
from runner.compile.passes import default_passes, optimize
from runner.compile.passes.dce import dce
from runner.compile.split_at_collectives import SplitSession, has_collectives
from runner.compile.work import suited
from runner.core.graph import NO_GRAPHS, Graph, GraphObserver, Pass
from runner.core.lowering import Layout
from runner.core.operators import Effect
from runner.core.tracer import trace
from runner.core.values import Parameter, Tensor, Value
from runner.device import Device
from runner.errors import RunnerError
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.onnx.lower import ModelProto


class Executable:
    """A model in a session on a device, bound to the parameters of its graph.

    `graph` is the optimised graph, `model` the ONNX model, `compile_seconds` the time since `start`, when tracing
    began. The parameters `fed` are passed with the arrays of each call. The observer is notified when the graph is
    lowered, compiled and executed, or when it fails. A graph with collectives is split and runs in parts; `layouts` are
    then the layouts of results that are not plain. `optimize` says whether onnxruntime may optimise the model. Raises
    what the device raises.
    """

    def __init__(
        self,
        graph: Graph,
        model: ModelProto,
        device: Device,
        start: float,
        fed: Collection[Parameter] = frozenset(),
        observer: GraphObserver = NO_GRAPHS,
        layouts: Mapping[Value, Layout] | None = None,
    ) -> None:
        self.graph, self.model, self.observer = graph, model, observer
        observer.lowered(graph, lambda number: describe.describe_model(model, graph, number))
        observer.compiled(graph, model)
        # A graph with layouts is optimised and ordered for short lifetimes of values: onnxruntime must not reorder it.
        self.optimize = not (graph.has_forms or observer.disables_optimization)
        device = with_channels_last(suited(device, graph), graph)
        self.session: Session | SplitSession = (
            SplitSession(graph, device, self.optimize, layouts)
            if has_collectives(graph)
            else Session(model.SerializeToString(), device, optimize=self.optimize)
        )
        observer.executed(graph)
        self.compile_seconds = time.perf_counter() - start
        self._parameters = tuple(p for p in graph.parameters if p not in fed)
        self._updated = tuple(graph.updates)
        self._effects = [(node.op, len(node.inputs)) for node in graph.effects if isinstance(node.op, Effect)]
        self._outputs = len(graph.outputs)
        self._emitted = self._outputs + len(self._updated)  # results from here on are operands of effects

    def __call__(self, operands: Sequence[Any]) -> list[np.ndarray]:
        """Run once and return the outputs; updated parameters take their new values, which stay on the device.

        Operands are arrays, or values that `session.put` has moved to the device. The effects of the graph are emitted.
        Raises what the device and the effects raise.
        """
        put, fetch = self.session.put, self.session.fetch
        values = [put(operand) if isinstance(operand, np.ndarray | np.generic) else operand for operand in operands]
        for parameter in self._parameters:
            if parameter.resident is None:
                parameter.resident = put(parameter.array)
            values.append(parameter.resident)
        try:
            results = self.session.step(values)
        except RunnerError as error:
            self.observer.failed(self.graph)
            add_location(error, self.graph)
            raise
        for parameter, value in zip(self._updated, results[self._outputs : self._emitted], strict=True):
            parameter.set_resident(value, fetch)
        outputs = [fetch(value) for value in results[: self._outputs]]
        self._emit(outputs, [fetch(value) for value in results[self._emitted :]])
        return outputs

    def _emit(self, outputs: Sequence[np.ndarray], operands: Sequence[np.ndarray]) -> None:
        """Emit the effects of one step; `operands` are those of all effects, in order."""
        rest = iter(operands)
        for effect, count in self._effects:
            effect.emit(*islice(rest, count))


class Program(Executable):
    """Compile `function` for operands of the given types, with `passes` instead of the default ones of the device.

    `columns` are the names of the operands, columns of a dataset: inputs get these names if no other value has them.
    Raises what tracing, lowering and the device raise.
    """

    def __init__(
        self,
        function: Callable[..., object],
        types: Sequence[TensorType],
        device: Device,
        name: str,
        columns: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        observer: GraphObserver = NO_GRAPHS,
        passes: Sequence[Pass] | None = None,
    ) -> None:
        start = time.perf_counter()
        passes = _passes(device, observer, passes)
        graph = optimize(trace(function, types, name, observer=observer), passes, observer)
        with locate_errors(graph, observer):
            inputs = columns and column_names(graph, columns, outputs or ())
            super().__init__(graph, lower(graph, inputs, outputs), device, start, observer=observer)

    def tensors(self, arrays: Sequence[np.ndarray]) -> list[Tensor]:
        """Run once and return the outputs as tensors."""
        return [Tensor.of(a, s.type) for a, s in zip(self(arrays), self.graph.outputs, strict=True)]


class SunkProgram(Executable):
    """Compile many steps of a training function into one call.

    `fetch` computes the operands of a step from one entry of each input in `scanned` and from the whole `columns`
    (both: name to type; the types of `scanned` are those of one entry). The parameters `stepped` have a separate value
    for every step, and so have those in `restarted` that the step reads: what it assigns to them ends with the step.
    Call it with stacked entries, then columns, then stacked values of `stepped` and of the attribute `restarted`; the
    result is the losses of all steps. `graph` is the graph of one step, `fetching` that of `fetch`; `root` is the root
    of its scopes.
    """

    def __init__(
        self,
        function: Callable[..., object],
        fetch: Callable[..., object],
        scanned: Mapping[str, TensorType],
        columns: Mapping[str, TensorType],
        stepped: Sequence[Parameter],
        restarted: Collection[Parameter],
        device: Device,
        root: str,
        observer: GraphObserver = NO_GRAPHS,
    ) -> None:
        start = time.perf_counter()
        passes = _passes(device, observer)
        fetching = optimize(trace(fetch, [*scanned.values(), *columns.values()], "fetch", root="Dataset"), passes)
        self.fetching = fetching
        types = [output.type for output in fetching.outputs]
        traced = trace(function, types, "train_step", root, observer)
        updates = {p: value for p, value in traced.updates.items() if p not in restarted}
        # A sink returns losses only.
        step = optimize(replace(traced, outputs=traced.outputs[:1], updates=updates), passes, observer)
        self.restarted = [p for p in restarted if p in step.parameters]
        fed = [*stepped, *self.restarted]
        with locate_errors(step, observer):
            model = lower_sunk(fetching, step, list(scanned), list(columns), fed)
            super().__init__(step, model, device, start, set(fed), observer)

    def _emit(self, outputs: Sequence[np.ndarray], operands: Sequence[np.ndarray]) -> None:
        """Emit the effects of all steps, one step after the other."""
        for step in range(len(outputs[0]) if self._effects else 0):
            super()._emit(outputs, [rows[step] for rows in operands])


def _passes(device: Device, observer: GraphObserver, passes: Sequence[Pass] | None = None) -> Sequence[Pass]:
    if observer.disables_optimization:
        return ()
    return default_passes(device) if passes is None else passes


def standalone_step(
    graph: Graph, columns: Sequence[str], outputs: Sequence[str], values: Mapping[str, np.ndarray]
) -> bytes:
    """The serialised model of one step, self-contained: these values of the parameters are its defaults.

    Its inputs have the names of the columns, as those of `Program`. It has no effects. Its nodes have operator, scope,
    source line and IR index as metadata.
    """
    graph = dce(graph.without_effects())
    model = lower(graph, column_names(graph, columns, outputs), outputs)
    describe.annotate(model, graph)
    return with_defaults(model, {p.name: values[p.name] for p in graph.parameters})

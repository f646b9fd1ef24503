"""Compiled functions: traced, optimised, lowered and opened on a device, ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from runner.compile.onnx import describe
from runner.compile.onnx.locate_error import at_home, located
from runner.compile.onnx.lower import lower, lower_sunk, with_defaults
from runner.compile.ort.session import Session
from runner.compile.passes import optimize, usual
from runner.compile.passes.dce import dce
from runner.compile.split_at_collectives import CutSession, has_collectives
from runner.core.effect import Effect
from runner.core.graph import Graph, Pass
from runner.core.lowering import Layout
from runner.core.observers import NO_GRAPHS, GraphObserver
from runner.core.tracer import trace
from runner.core.value import Parameter, Tensor, Value
from runner.device import Device
from runner.errors import RunnerError
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.onnx.lower import ModelProto


class Executable:
    """A model that is open on a device, between arrays and the parameters of its graph.

    `graph` is what runs after optimisation, `model` the ONNX model, `compile_seconds` the time since `start`, when
    tracing began. The parameters `given` come with the arrays of a call. Raises what the device raises.
    The observer hears that the graph is lowered and executed, or that it failed. A graph with collectives is cut, and
    runs in parts; `ways` are then the layouts of results that are not to be plain. `optimize` says whether the device
    may optimise it.
    """

    def __init__(
        self,
        graph: Graph,
        model: ModelProto,
        device: Device,
        start: float,
        given: Sequence[Parameter] = (),
        observer: GraphObserver = NO_GRAPHS,
        ways: Mapping[Value, Layout] | None = None,
    ) -> None:
        self.graph, self.model, self.observer = graph, model, observer
        observer.lowered(graph, lambda number: describe.described(model, graph, number))
        observer.compiled(graph, model)
        # What is placed is optimised, and in the order in which values die early: onnxruntime need not touch it.
        self.optimize = not (graph.has_forms or observer.disables_optimization)
        self.session: Session | CutSession = (
            CutSession(graph, device, self.optimize, ways)
            if has_collectives(graph)
            else Session(model.SerializeToString(), device, optimize=self.optimize)
        )
        observer.executed(graph)
        self.compile_seconds = time.perf_counter() - start
        self._parameters = tuple(p for p in graph.parameters if p not in given)
        self._updated = tuple(graph.updates)
        self._effects = [(node.op, len(node.inputs)) for node in graph.effects if isinstance(node.op, Effect)]
        self._outputs = len(graph.outputs)
        self._told = self._outputs + len(self._updated)  # where among the results that begins which effects tell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once: the outputs as arrays; updated parameters take their new values, which stay on the device.

        The effects of the graph tell what they have to tell. Raises what the device and the effects raise.
        """
        put, fetch = self.session.put, self.session.fetch
        values = [put(array) for array in arrays]
        for parameter in self._parameters:
            if parameter.resident is None:
                parameter.resident = put(parameter.data)
            values.append(parameter.resident)
        try:
            made = self.session.step(values)
        except RunnerError as error:
            self.observer.failed(self.graph)
            located(error, self.graph)
            raise
        for parameter, value in zip(self._updated, made[self._outputs : self._told], strict=True):
            parameter.set_resident(value, fetch)
        outputs = [fetch(value) for value in made[: self._outputs]]
        self._tell(outputs, [fetch(value) for value in made[self._told :]])
        return outputs

    def _tell(self, outputs: Sequence[np.ndarray], told: Sequence[np.ndarray]) -> None:
        """Let the effects tell what they were told in one step."""
        rest = iter(told)
        for effect, count in self._effects:
            effect.emit(*islice(rest, count))


class Program(Executable):
    """Compile `function` for operands of the given types, with other `passes` than are usual on the device if they are
    given. Raises what tracing, lowering and the device raise.
    """

    def __init__(
        self,
        function: Callable[..., object],
        types: Sequence[TensorType],
        device: Device,
        name: str,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        observer: GraphObserver = NO_GRAPHS,
        passes: Sequence[Pass] | None = None,
    ) -> None:
        start = time.perf_counter()
        chosen = _passes(device, observer, passes)
        graph = optimize(trace(function, types, name, observer=observer), chosen, observer)
        inputs = input_names or [f"input{k}" for k in range(len(types))]
        outputs = output_names or [f"output{k}" for k in range(len(graph.outputs))]
        with at_home(graph, observer):
            super().__init__(graph, lower(graph, inputs, outputs), device, start, observer=observer)

    def tensors(self, arrays: Sequence[np.ndarray]) -> list[Tensor]:
        """Run once, with the outputs as tensors."""
        return [Tensor.of(a, s.type) for a, s in zip(self(arrays), self.graph.outputs, strict=True)]


class SunkProgram(Executable):
    """Compile many steps of a training function into one call.

    `fetch` makes the operands of a step from one entry of each of the inputs `scanned` and from the whole `columns`
    (both: name to type; the types of `scanned` are those of one entry). The parameters `stepped` have a value of their
    own in every step. Call it with stacked entries, then columns, then stacked values of `stepped`; it gives the losses
    of all steps. `graph` is that of one step, `fetching` that of `fetch`; `root` is where its scopes begin.
    """

    def __init__(
        self,
        function: Callable[..., object],
        fetch: Callable[..., object],
        scanned: Mapping[str, TensorType],
        columns: Mapping[str, TensorType],
        stepped: Sequence[Parameter],
        device: Device,
        root: str,
        observer: GraphObserver = NO_GRAPHS,
    ) -> None:
        start = time.perf_counter()
        passes = _passes(device, observer)
        fetching = optimize(trace(fetch, [*scanned.values(), *columns.values()], "fetch", root="Dataset"), passes)
        self.fetching = fetching
        types = [output.type for output in fetching.outputs]
        step = optimize(trace(function, types, "train_step", root, observer), passes, observer)
        with at_home(step, observer):
            model = lower_sunk(fetching, step, list(scanned), list(columns), stepped)
            super().__init__(step, model, device, start, stepped, observer)

    def _tell(self, outputs: Sequence[np.ndarray], told: Sequence[np.ndarray]) -> None:
        """Let the effects tell what they were told in all steps, one step after the other."""
        for step in range(len(outputs[0]) if self._effects else 0):
            super()._tell(outputs, [rows[step] for rows in told])


def _passes(device: Device, observer: GraphObserver, passes: Sequence[Pass] | None = None) -> Sequence[Pass]:
    if observer.disables_optimization:
        return ()
    return usual(device) if passes is None else passes


def saved_step(graph: Graph, inputs: Sequence[str], outputs: Sequence[str], values: Mapping[str, np.ndarray]) -> bytes:
    """The model of one step as a file that stands alone, with these values of the parameters as defaults.

    What effects would tell is left out. Its nodes carry operator, scope, source line and number as metadata.
    """
    graph = dce(graph.without_effects())
    model = lower(graph, inputs, outputs)
    describe.annotate(model, graph)
    return with_defaults(model, {p.name: values[p.name] for p in graph.parameters})

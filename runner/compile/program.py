"""Compiled functions: traced, optimised, lowered and opened on a device, ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from runner.compile.lower import lower, lower_sunk, with_defaults
from runner.compile.passes import ON_HOST, PASSES, optimize
from runner.compile.session import Session
from runner.core.graph import Graph, Pass
from runner.core.value import Parameter, Tensor
from runner.device import Device
from runner.engine.tracer import trace
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.lower import ModelProto


class Executable:
    """A model that is open on a device, between arrays and the parameters of its graph.

    `graph` is what runs after optimisation, `model` the ONNX model, `compile_seconds` the time since `start`, when
    tracing began. The parameters `given` come with the arrays of a call. Raises what the device raises.
    """

    def __init__(
        self, graph: Graph, model: ModelProto, device: Device, start: float, given: Sequence[Parameter] = ()
    ) -> None:
        self.graph, self.model = graph, model
        # What is placed is optimised, and in the order in which values die early: onnxruntime need not touch it.
        self.session = Session(model.SerializeToString(), device, optimize=not graph.is_placed)
        self.compile_seconds = time.perf_counter() - start
        self._parameters = tuple(p for p in graph.parameters if p not in given)
        self._updated = tuple(graph.updates)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once: the outputs as arrays; updated parameters take their new values, which stay on the device."""
        put, fetch = self.session.put, self.session.fetch
        values = [put(array) for array in arrays]
        for parameter in self._parameters:
            if parameter.resident is None:
                parameter.resident = put(parameter.data)
            values.append(parameter.resident)
        made = self.session.step(values)
        count = len(made) - len(self._updated)
        for parameter, value in zip(self._updated, made[count:], strict=True):
            parameter.take(value, fetch)
        return [fetch(value) for value in made[:count]]


class Program(Executable):
    """Compile `function` for operands of the given types. Raises what tracing, lowering and the device raise."""

    def __init__(
        self,
        function: Callable[..., object],
        types: Sequence[TensorType],
        device: Device,
        name: str,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        start = time.perf_counter()
        graph = optimize(trace(function, types, name), _passes(device))
        inputs = input_names or [f"input{k}" for k in range(len(types))]
        outputs = output_names or [f"output{k}" for k in range(len(graph.outputs))]
        super().__init__(graph, lower(graph, inputs, outputs), device, start)

    def tensors(self, arrays: Sequence[np.ndarray]) -> list[Tensor]:
        """Run once, with the outputs as tensors."""
        return [Tensor.of(a, s.type) for a, s in zip(self(arrays), self.graph.outputs, strict=True)]


class SunkProgram(Executable):
    """Compile many steps of a training function into one call.

    `fetch` makes the operands of a step from one entry of each of the inputs `scanned` and from the whole `columns`
    (both: name to type; the types of `scanned` are those of one entry). The parameters `stepped` have a value of their
    own in every step. Call it with stacked entries, then columns, then stacked values of `stepped`; it gives the losses
    of all steps. `graph` is that of one step; `root` is where its scopes begin.
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
    ) -> None:
        start = time.perf_counter()
        passes = _passes(device)
        fetching = optimize(trace(fetch, [*scanned.values(), *columns.values()], "fetch", root="Dataset"), passes)
        types = [output.type for output in fetching.outputs]
        step = optimize(trace(function, types, "train_step", root), passes)
        model = lower_sunk(fetching, step, list(scanned), list(columns), stepped)
        super().__init__(step, model, device, start, stepped)


def _passes(device: Device) -> Sequence[Pass]:
    return ON_HOST if device.target == "CPU" else PASSES


def saved_step(graph: Graph, inputs: Sequence[str], outputs: Sequence[str], values: Mapping[str, np.ndarray]) -> bytes:
    """The model of one step as a file that stands alone, with these values of the parameters as defaults."""
    return with_defaults(lower(graph, inputs, outputs), {p.name: values[p.name] for p in graph.parameters})

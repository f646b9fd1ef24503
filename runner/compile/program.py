"""`Program`: a function that was traced, optimised, lowered and opened on a device, ready to run."""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from runner.compile.lower import lower, with_defaults
from runner.compile.passes import optimize
from runner.compile.session import Session
from runner.core.graph import Graph
from runner.core.value import Tensor
from runner.device import Device
from runner.engine.tracer import trace
from runner.types import TensorType


class Program:
    """Compile `function` for operands of the given types.

    `graph` is what runs after optimisation, `model` the ONNX model, `compile_seconds` the time from tracing to the open
    session. Raises what tracing, lowering and the device raise.
    """

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
        self.graph: Graph = optimize(trace(function, types, name))
        inputs = input_names or [f"input{k}" for k in range(len(types))]
        outputs = output_names or [f"output{k}" for k in range(len(self.graph.outputs))]
        self.model = lower(self.graph, inputs, outputs)
        self.session = Session(self.model.SerializeToString(), device)
        self.compile_seconds = time.perf_counter() - start
        self._parameters = tuple(self.graph.parameters)
        self._updated = tuple(self.graph.updates)

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

    def tensors(self, arrays: Sequence[np.ndarray]) -> list[Tensor]:
        """Run once, with the outputs as tensors."""
        return [Tensor.of(a, s.type) for a, s in zip(self(arrays), self.graph.outputs, strict=True)]

    def saved(self, values: Mapping[str, np.ndarray]) -> bytes:
        """The model as a file that stands alone, with these values of the parameters as defaults."""
        return with_defaults(self.model, {p.name: values[p.name] for p in self._parameters})

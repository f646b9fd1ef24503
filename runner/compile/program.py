"""Compiled functions: traced, optimised, lowered to ONNX and loaded into a session on a device.

`Program` compiles a function, `SunkProgram` many steps of one; both are an `Executable`, which a call runs. What a
graph computes decides the threads, the memory and the layout of images that its session gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from runner import dtype
from runner.communication.world import world
from runner.compile.divided_session import DividedSession, SunkSession, has_collectives, with_one_thread
from runner.compile.onnx import describe
from runner.compile.onnx.describe import add_location, locate_errors
from runner.compile.onnx.lower import column_names, lower, lower_sunk
from runner.compile.onnx.model import with_defaults
from runner.compile.parts import DividedGraph, parts_of
from runner.compile.passes import default_passes, optimize
from runner.compile.passes.simplify import dce
from runner.compile.session import Session
from runner.core.graph import NO_GRAPHS, Graph, GraphObserver, Pass, joined
from runner.core.lowering import Layout
from runner.core.operators import Effect
from runner.core.precision import PRECISION
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor, Value
from runner.device import Device
from runner.errors import RunnerError
from runner.host.machine import keep_freed_memory
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.onnx.model import ModelProto
AnySession = Session | DividedSession | SunkSession


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
        self.optimize = not (graph.has_lowerings or observer.disables_optimization)
        self.session = self._open(suited(device, graph), layouts)
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

    def _open(self, device: Device, layouts: Mapping[Value, Layout] | None) -> AnySession:
        return session_of(self.graph, self.model, device, self.optimize, layouts)

    def _emit(self, outputs: Sequence[np.ndarray], operands: Sequence[np.ndarray]) -> None:
        """Emit the effects of one step; `operands` are those of all effects, in order."""
        rest = iter(operands)
        for effect, count in self._effects:
            effect.emit(*islice(rest, count))


def session_of(
    graph: Graph,
    model: ModelProto,
    device: Device,
    optimize: bool,
    layouts: Mapping[Value, Layout] | None = None,
) -> AnySession:
    """The session of a graph, whose model is that of the whole; divided where it has parts or collectives."""
    ranks = world().size if has_collectives(graph) else None
    division = DividedGraph(graph, parts_of(graph, device, ranks))
    if has_collectives(graph) or division.is_divided:
        return DividedSession(division, device, optimize, layouts)
    return Session(model.SerializeToString(), with_one_thread(device), optimize=optimize)


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
        self.scanned, self.fed = len(scanned), [*stepped, *self.restarted]
        with locate_errors(step, observer):
            model = lower_sunk(fetching, step, list(scanned), list(columns), self.fed)
            super().__init__(step, model, device, start, set(self.fed), observer)

    def _open(self, device: Device, layouts: Mapping[Value, Layout] | None) -> AnySession:
        """One model of all steps, unless a step has parts: then the host runs step after step."""
        parts = parts_of(self.graph, device)
        if parts is not None:
            whole = joined(self.fetching, self.graph)
            division = DividedGraph(whole, parts)
            if division.is_divided:
                return SunkSession(DividedSession(division, device, self.optimize), self.scanned, self.fed)
        return Session(self.model.SerializeToString(), with_one_thread(device), optimize=self.optimize)

    def _emit(self, outputs: Sequence[np.ndarray], operands: Sequence[np.ndarray]) -> None:
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


# How much a graph computes, and what follows from it: its memory, and an upper estimate of its time.

# Of all values. The arena of onnxruntime is faster with less, and larger by a seventh with more (BENCHMARKS.md).
ARENA_BYTES = 256 << 20
# Of one slow core.
SECONDS_PER_OPERATOR, SECONDS_PER_ELEMENT, SECONDS_PER_FLOP = 20e-6, 1.5e-9, 1 / 30e9


def suited(device: Device, graph: Graph) -> Device:
    """The device with the memory, the layout and the precision that suit a graph."""
    return with_precision(with_channels_last(with_memory(device, graph), graph))


def with_memory(device: Device, graph: Graph) -> Device:
    """The device without an arena where the graph has many values, and the C library can keep freed memory itself."""
    if device.target != "CPU" or sum(y.type.nbytes for node in graph.all_nodes for y in node.outputs) < ARENA_BYTES:
        return device
    return replace(device, arena=not keep_freed_memory())


def flops(graph: Graph) -> int:
    """Floating-point operations of one execution."""
    return sum(node.op.flops([x.type for x in node.inputs], [y.type for y in node.outputs]) for node in graph.nodes)


def estimated_seconds(graph: Graph) -> float:
    """An upper estimate of the time of one execution, in seconds."""
    elements = sum(y.type.size for node in graph.nodes for y in node.outputs)
    return SECONDS_PER_OPERATOR * len(graph.nodes) + SECONDS_PER_ELEMENT * elements + SECONDS_PER_FLOP * flops(graph)


# The layout of images on a GPU: channels last for graphs whose convolutions run on tensor cores.


def with_channels_last(device: Device, graph: Graph) -> Device:
    """The device, with channels last where cuDNN prefers them: convolutions of Float16, or of Float32 as TF32.

    The kernels of tensor cores read channels last, and cuDNN transposes each operand that is not. Those of full Float32
    read channels first. The layout is one option of a session, so a graph with convolutions of both types has one.
    """
    if device.target != "GPU":
        return device
    kinds = {x.dtype for node in graph.all_nodes if node.op.convolves for x in node.inputs}
    on_tensor_cores = dtype.float16 in kinds or (dtype.float32 in kinds and device.tf32)
    return replace(device, channels_last=True) if on_tensor_cores else device


# The element types of an NPU, whose compiler may choose others than those of the graph.


def with_precision(device: Device) -> Device:
    """The device; an NPU with the policy under which the graph was traced (`runner.compile.session.CANN_PRECISION`)."""
    policy = PRECISION.get()
    return device if device.target != "Ascend" or policy is None else replace(device, precision_mode=policy.name)

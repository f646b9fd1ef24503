"""Export of a function or a training step as ONNX files for other programs, with axes of any length, or in 8 bits."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from runner.compile.onnx.free_axes import FreeAxes, Lengths, Lowered, NotFreeError, with_free_axes
from runner.compile.onnx.lower import lower, parameter_values
from runner.compile.onnx.model import check, parse_model, with_constants, with_metadata
from runner.compile.passes import PASSES, optimize
from runner.compile.passes.simplify import cse, dce
from runner.compile.session import temporary_folder
from runner.core.graph import Graph, Pass
from runner.core.trace import trace
from runner.core.values import Parameter, Value
from runner.errors import ConfigError, RunnerError
from runner.host.files import read_bytes
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.onnx.model import ModelProto
BATCH = "batch"
UNFOLDED: tuple[Pass, ...] = (cse, dce)  # folding has a limit, so that lengths can determine what is folded
LEAST_LENGTH = 5  # of a free axis in a comparison: shorter ones are often equal to other lengths, or broadcast


def export_onnx(
    function: Callable[..., object],
    types: Sequence[TensorType],
    name: str,
    *,
    free: FreeAxes | None = None,
    input_names: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """The serialised model for inputs of these types, with parameters as constants and without effects.

    The axes in `free` may have any length if the function allows it: by default the first axis of the first input, and
    of the inputs that have as many rows. Metadata: `input` and `output`, the names; `batch`, "any" or the length of
    that axis, and then `batch_reason`; and those given. The function is traced several times. It returns tensors, or
    tensors by name of output.
    """
    exported = _Exported(function, types, name, input_names)
    free = batch_axes(types) if free is None else free
    model = _with_facts(*exported.generalized(free), free, metadata or {})
    return with_constants(model, parameter_values(exported.graph))


def export_network(
    function: Callable[..., object],
    types: Sequence[TensorType],
    name: str,
    *,
    input_names: Sequence[str],
    metadata: Mapping[str, str],
    fixed: Collection[Parameter] = (),
) -> tuple[ModelProto, ModelProto]:
    """Two models of a network, as `export_onnx`: with parameters as constants, and with parameters as inputs.

    What it assigns to parameters is no output. Those in `fixed` are constants of both models.
    """
    exported = _Exported(function, types, name, input_names, None)
    free = batch_axes(types)
    model = _with_facts(*exported.generalized(free), free, metadata)
    values = parameter_values(exported.graph)
    names = {parameter.name for parameter in fixed}
    constants = {name: value for name, value in values.items() if name in names}
    return parse_model(with_constants(model, values)), parse_model(with_constants(model, constants))


def _with_facts(model: ModelProto, reason: str, free: FreeAxes, metadata: Mapping[str, str]) -> ModelProto:
    """The model with the metadata that follow from it, and those given."""
    inputs, outputs = [x.name for x in model.graph.input][: len(free)], [y.name for y in model.graph.output]
    entries = {"input": json.dumps(inputs), "output": json.dumps(outputs)}
    if free and BATCH in free[0].values():
        length = model.graph.input[0].type.tensor_type.shape.dim[0]
        entries["batch"] = str(length.dim_value) if length.dim_value else "any"
        if length.dim_value:
            entries["batch_reason"] = reason
    return with_metadata(model, entries | dict(metadata))


def batch_axes(types: Sequence[TensorType]) -> FreeAxes:
    """The first axis of every input that has as many rows as the first one."""
    rows = types[0].shape[:1] if types else ()
    return [{0: BATCH} if rows and x.shape[:1] == rows else {} for x in types]


class StepModel(NamedTuple):
    """A training step as an ONNX model. Its inputs are the columns, then the parameters of `graph`; its outputs those
    of the step, then the updates of `graph`. `batch_reason`: why the batch has one size, empty if it has any."""

    model: ModelProto
    graph: Graph
    batch_reason: str


def export_step(
    function: Callable[..., object],
    types: Sequence[TensorType],
    name: str,
    input_names: Sequence[str],
    hidden: Collection[Parameter] = (),
) -> StepModel:
    """A training step, which assigns parameters, as a model of standard operators for batches of any size if possible.

    The new values of `hidden` parameters are no outputs. `function` returns its outputs by name. Raises ConfigError
    when two values have the same name.
    """
    exported = _Exported(function, types, name, input_names, hidden)
    model, reason = exported.generalized(batch_axes(types), quotients=True)
    return StepModel(model, exported.graph, reason)


class _Exported:
    """A function that is lowered for several types of its inputs; `graph` is the one for the given types.

    What it assigns to parameters are results of the graph, except `hidden` ones; None hides all.
    """

    def __init__(
        self,
        function: Callable[..., object],
        types: Sequence[TensorType],
        name: str,
        inputs: Sequence[str] | None,
        hidden: Collection[Parameter] | None = (),
    ) -> None:
        self.function, self.types, self.name, self.inputs, self.hidden = function, types, name, inputs, hidden
        traced, outputs = self._traced(types)
        self.graph = optimize(traced)
        self.model = lower(self.graph, self.inputs, outputs)

    def generalized(self, free: FreeAxes, quotients: bool = False) -> tuple[ModelProto, str]:
        """The model with as many free axes as possible, and why it does not have all of them."""
        reason = ""
        for axes in _choices(free):
            for passes in (PASSES, UNFOLDED):
                try:
                    return check(with_free_axes(self._compared(axes, passes), axes, quotients)), reason
                except NotFreeError as error:
                    reason = reason or str(error)
                except Exception as error:  # user code that cannot compute with another length
                    first = error.what if isinstance(error, RunnerError) else f"{type(error).__name__}: {error}"
                    reason = reason or first.split("\n")[0]
        return self.model, reason

    def _compared(self, free: FreeAxes, passes: Sequence[Pass]) -> list[Lowered]:
        """Models for unusual lengths, and last the one for the given types."""
        given = {name: x.shape[axis] for x, axes in zip(self.types, free, strict=True) for axis, name in axes.items()}
        unusual = self._unusual_lengths()
        low = {name: next(unusual) for name in given}
        compared = [low, *({**low, name: next(unusual)} for name in given)]
        lowered = [Lowered(lengths, self._lowered(lengths, free, passes)) for lengths in compared]
        return [*lowered, Lowered(given, self._lowered(given, free, passes))]

    def _unusual_lengths(self) -> Iterator[int]:
        """Prime numbers that are no length in the graph."""
        used = {n for node in self.graph.nodes for x in (*node.inputs, *node.outputs) for n in x.shape}
        number = LEAST_LENGTH
        while True:
            if number not in used and all(number % k for k in range(2, math.isqrt(number) + 1)):
                yield number
            number += 1

    def _lowered(self, lengths: Lengths, free: FreeAxes, passes: Sequence[Pass]) -> ModelProto:
        types = []
        for given, axes in zip(self.types, free, strict=True):
            types.append(given.with_shape(*(lengths[axes[k]] if k in axes else n for k, n in enumerate(given.shape))))
        if passes is PASSES and types == list(self.types):
            return self.model
        graph, outputs = self._traced(types)
        return lower(optimize(graph, passes), self.inputs, outputs, checked=False)

    def _traced(self, types: Sequence[TensorType]) -> tuple[Graph, list[str] | None]:
        """The graph, and the names of its outputs if the function returns them by name."""
        names: list[str] | None = None

        def function(*inputs: Value) -> object:
            nonlocal names
            returned = self.function(*inputs)
            if isinstance(returned, dict):
                names = list(returned)
                return tuple(returned.values())
            return returned

        graph = trace(function, types, self.name).without_effects()
        hidden = graph.updates if self.hidden is None else self.hidden
        return replace(graph, updates={p: x for p, x in graph.updates.items() if p not in hidden}), names


def _choices(free: FreeAxes) -> Iterator[FreeAxes]:
    """The free axes, and then only the batch, if that is less."""
    only = [{axis: name for axis, name in axes.items() if name == BATCH} for axes in free]
    for choice in [list(map(dict, free)), only][: 1 + (only != list(map(dict, free)))]:
        if any(choice):
            yield choice


# Networks in integers of 8 bits, by onnxruntime's own quantization tool.

MODEL_LIMIT = 2 << 30  # bytes of a model in one file


def quantize(model: bytes, batches: Iterable[Mapping[str, np.ndarray]]) -> bytes:
    """The serialised model in 8 bits: weights Int8, activations UInt8 with ranges as in these batches.

    `model` has constant weights; QuantizeLinear and DequantizeLinear surround its operators. Raises ConfigError when
    the tool cannot convert the model.
    """
    import onnxruntime.quantization as tool

    with temporary_folder("runner-quantize-") as folder, _silent_root_logger():
        source, path = Path(folder) / "network.onnx", Path(folder) / "quantized.onnx"
        source.write_bytes(model)  # the tool changes a model in memory
        try:
            tool.quantize_static(source, path, _Calibration(batches), weight_type=tool.QuantType.QInt8)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            rows = {"reason": reason, "repair": "leave --quantize out"}
            raise ConfigError("onnxruntime's tool cannot quantize the network", **rows) from error
        return read_bytes(path, MODEL_LIMIT)


class _Calibration:
    """The batches from which the tool determines the ranges of values, in the form that it reads."""

    def __init__(self, batches: Iterable[Mapping[str, np.ndarray]]) -> None:
        self.batches = iter(batches)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """The next batch; None after the last one."""
        return next(self.batches, None)


@contextlib.contextmanager
def _silent_root_logger() -> Iterator[None]:
    """Without the advice that the tool logs for every model: to run its preprocessing, which the passes replace."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    root = logging.getLogger()
    root.addFilter(is_error)
    try:
        yield
    finally:
        root.removeFilter(is_error)

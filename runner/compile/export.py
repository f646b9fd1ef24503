"""Export of a function as an ONNX file for other programs."""

from collections.abc import Callable, Sequence

from runner.compile.onnx.lower import lower, parameter_values, with_constants
from runner.compile.passes import optimize
from runner.core.tracer import trace
from runner.types import TensorType


def export_onnx(function: Callable[..., object], types: Sequence[TensorType], name: str) -> bytes:
    """The serialised model for inputs of these types, with parameters as constants and without effects."""
    graph = optimize(trace(function, types, name).without_effects())
    return with_constants(lower(graph), parameter_values(graph))

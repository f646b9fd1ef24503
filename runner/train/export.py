"""A network as a file that other programs run."""

from collections.abc import Sequence

from runner import nn
from runner.compile.onnx.lower import lower, parameters_in, with_constants
from runner.compile.passes import optimize
from runner.core.tracer import trace
from runner.types import TensorType


def exported(network: nn.Cell, types: Sequence[TensorType]) -> bytes:
    """The network in inference mode as an ONNX file for inputs of these types, with its parameters as constants."""
    network.set_train(False)
    graph = optimize(trace(network.construct, types, "network").silent())
    network.set_train(True)
    inputs, outputs = [f"input{k}" for k in range(len(types))], [f"output{k}" for k in range(len(graph.outputs))]
    return with_constants(lower(graph, inputs, outputs), parameters_in(graph))

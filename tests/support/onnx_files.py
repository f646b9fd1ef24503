"""Small ONNX models for the tests of the importer."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    initializers: Mapping[str, np.ndarray],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of these nodes with inputs and outputs of Float32."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def saved(path: Path, made: onnx.ModelProto) -> Path:
    """The file of a model."""
    path.write_bytes(made.SerializeToString())
    return path


def classifier(shape: Sequence[int] = (6,), classes: int = 3) -> onnx.ModelProto:
    """(n, *shape) to probabilities (n, classes): Flatten, Gemm, BatchNormalization, Relu, MatMul, Add, Softmax."""
    rng = np.random.default_rng(0)

    def normal(*lengths: int) -> np.ndarray:
        return rng.normal(size=lengths).astype(np.float32)

    arrays = {"a.weight": normal(8, math.prod(shape)), "a.bias": normal(8)}
    arrays |= {"b.weight": normal(8, classes), "b.bias": normal(classes)}
    arrays |= {"n.scale": normal(8), "n.bias": normal(8), "n.mean": normal(8), "n.var": np.exp(normal(8))}
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"], "/Flatten"),
        helper.make_node("Gemm", ["f", "a.weight", "a.bias"], ["h"], "/a/Gemm", transB=1),
        helper.make_node("BatchNormalization", ["h", "n.scale", "n.bias", "n.mean", "n.var"], ["m"], "/n/Norm"),
        helper.make_node("Relu", ["m"], ["r"], "/Relu"),
        helper.make_node("MatMul", ["r", "b.weight"], ["p"], "/b/MatMul"),
        helper.make_node("Add", ["p", "b.bias"], ["logits"], "/b/Add"),
        helper.make_node("Softmax", ["logits"], ["y"], "/Softmax", axis=-1),
    ]
    return model(nodes, {"x": ["n", *shape]}, ["y"], arrays)

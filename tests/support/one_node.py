"""ONNX models of one node: the imported network against stock onnxruntime, and its gradients against differences."""

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime
import pytest
from both_modes import MODES, step_of
from onnx import TensorProto, helper, numpy_helper

from runner.core.gradients import gradients
from runner.errors import ConfigError
from runner.importer.network import OnnxNetwork

RNG = np.random.default_rng(17)
STEP = 1e-6


@dataclass(frozen=True)
class Constant:
    """An input that is an initializer: known when the network is imported, unless it is a trained parameter."""

    array: np.ndarray


@dataclass(frozen=True)
class OneNode:
    """A node with its inputs: arrays, `Constant`s, and None for one that is left out.

    `ints` are the outputs that are not Float32, which the model casts.
    """

    operator: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    opset: int
    outputs: int
    ints: tuple[int, ...]
    note: str

    def __str__(self) -> str:
        shapes = " ".join(str(getattr(x, "array", x).shape) for x in self.inputs if x is not None)
        return f"{self.operator}-{self.opset} {self.note or self.attributes} {shapes}"

    @property
    def given(self) -> list[np.ndarray]:
        """The inputs of the model."""
        return [x for x in self.inputs if isinstance(x, np.ndarray)]

    def write(self, folder: Path) -> Path:
        """The model as a file, whose outputs are f0, f1, ..."""
        names = ["" if x is None else f"x{k}" for k, x in enumerate(self.inputs)]
        made = [f"y{k}" if k in self.ints else f"f{k}" for k in range(self.outputs)]
        nodes = [helper.make_node(self.operator, names, made, name="node", **self.attributes)]
        for k in self.ints:
            nodes.append(helper.make_node("Cast", [f"y{k}"], [f"c{k}"], to=TensorProto.FLOAT))
            nodes.append(helper.make_node("Add", [f"c{k}", "zero"], [f"f{k}"]))
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in zip(names, self.inputs, strict=True)
            if isinstance(x, np.ndarray)
        ]
        if self.ints:
            inputs.append(helper.make_tensor_value_info("zero", TensorProto.FLOAT, (1,)))
        outputs = [helper.make_tensor_value_info(f"f{k}", TensorProto.FLOAT, None) for k in range(self.outputs)]
        initializers = [
            numpy_helper.from_array(x.array, name)
            for name, x in zip(names, self.inputs, strict=True)
            if isinstance(x, Constant)
        ]
        graph = helper.make_graph(nodes, "one_node", inputs, outputs, initializers)
        opset = helper.make_opsetid("", self.opset)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=min(8, onnx_ir_version(self.opset)))
        path = folder / f"{self.operator}-{zlib.crc32(model.SerializeToString())}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    def arrays(self) -> dict[str, np.ndarray]:
        """What the model is called with, by name."""
        given = {f"x{k}": x for k, x in enumerate(self.inputs) if isinstance(x, np.ndarray)}
        return {**given, "zero": np.zeros(1, np.float32)} if self.ints else given

    def network(self, path: Path, output: int = 0) -> "ImportedOutput":
        """The network of one output."""
        return ImportedOutput(OnnxNetwork(str(path), f"f{output}", logits=False), self.arrays())


class ImportedOutput:
    """An imported network with the inputs that its output needs."""

    def __init__(self, network: OnnxNetwork, arrays: dict[str, np.ndarray]) -> None:
        self.network, self.names = network, [value.name for value in network.graph.inputs]
        self.arrays = [arrays[name] for name in self.names]

    def run(self, mode: str) -> np.ndarray:
        """The output."""
        return step_of(self.network.construct, mode)(*self.arrays)[0]

    @property
    def floats(self) -> list[int]:
        """The positions of the inputs that have a gradient."""
        return [k for k, x in enumerate(self.arrays) if x.dtype.kind == "f" and self.names[k] != "zero"]

    def gradients(self, factors: np.ndarray, mode: str) -> list[np.ndarray]:
        """The gradients of the weighted sum of the output with respect to the inputs of floats."""

        def slopes(*inputs):
            return gradients(self.network.construct(*inputs) * factors, [inputs[k] for k in self.floats])

        return step_of(slopes, mode)(*self.arrays)

    def difference(self, at: int, factors: np.ndarray, direction: np.ndarray) -> float:
        """The central difference of the weighted sum along a direction of an input, in Float64."""
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in self.arrays]
        run, ends = step_of(self.network.construct, "pynative"), []
        for step in (STEP, -STEP):
            with patch.object(OnnxNetwork, "_converted", lambda network, declared, x: x):  # to Float32
                (y,) = run(*wide[:at], wide[at] + step * direction, *wide[at + 1 :])
            assert y.dtype == np.float64
            ends.append(float((np.where(np.isfinite(y), y, 0.0) * factors).sum()))
        return (ends[0] - ends[1]) / (2 * STEP)


def onnx_ir_version(opset: int) -> int:
    """The version of the format that came with an opset; from 4 on, initializers need not be inputs."""
    return max(4, helper.find_min_ir_version_for([helper.make_opsetid("", opset)]))


def node(
    operator: str,
    *inputs: Any,
    opset: int = 18,
    outputs: int = 1,
    ints: Sequence[int] = (),
    note: str = "",
    **attributes: Any,
) -> OneNode:
    return OneNode(operator, inputs, attributes, opset, outputs, tuple(ints), note)


def stock(path: Path, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of stock onnxruntime."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, arrays)]


def check_outputs(row: OneNode, folder: Path, expected: Sequence[np.ndarray] | None = None, most: float = 1e-5) -> None:
    """Shapes and numbers of both modes are those of stock onnxruntime, or those given where it lacks the node."""
    path = row.write(folder)
    wanted = stock(path, row.arrays()) if expected is None else expected
    for mode, (k, right) in itertools.product(MODES, enumerate(wanted)):
        made = row.network(path, k).run(mode)
        assert made.shape == right.shape, (mode, made.shape, right.shape)
        assert np.allclose(made, right, most, most, equal_nan=True), (mode, np.abs(made - right).max())


def check_gradients(row: OneNode, folder: Path, most: float = 1e-3) -> None:
    """In both modes, the gradients of a weighted sum of each output agree with differences in Float64 along two random
    directions."""
    path = row.write(folder)
    for output in set(range(row.outputs)) - set(row.ints):
        network = row.network(path, output)
        assert not network.network.trainable_params(), "a constant is trained: pass it as an input"
        factors = RNG.normal(size=network.run("pynative").shape).astype(np.float32)
        assert network.floats, "no input to differentiate"
        made = [network.gradients(factors, mode) for mode in MODES]
        for at, of_modes in zip(network.floats, zip(*made, strict=True), strict=True):
            for _ in range(2):
                direction = RNG.normal(size=of_modes[0].shape)
                slope = network.difference(at, factors, direction)
                for mode, gradient in zip(MODES, of_modes, strict=True):
                    found = float((gradient * direction).sum())
                    scale = max(float(np.abs(gradient * direction).sum()), 1e-6)
                    assert abs(found - slope) <= most * scale, (mode, network.names[at], output, found, slope)


def refused(row: OneNode, folder: Path) -> ConfigError:
    """The error of a node that cannot be imported, or not executed with these operands."""
    path = row.write(folder)
    with pytest.raises(ConfigError) as caught:
        step_of(OnnxNetwork(str(path)).construct, "pynative")(*row.given)
    return caught.value

"""ONNX models of one node: the imported network against stock onnxruntime, and its gradients against differences."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from both_modes import MODES, step_of
from onnx import TensorProto, helper, numpy_helper

from runner.core.autodiff import gradients
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

    def arrays(self) -> list[np.ndarray]:
        """What the model is called with."""
        return [*self.given, *([np.zeros(1, np.float32)] if self.ints else [])]


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


def stock(path: Path, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of stock onnxruntime."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return [np.asarray(y) for y in session.run(None, dict(zip(names, arrays, strict=True)))]


def imported(row: OneNode, path: Path, mode: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of the imported network, each from a network of its own."""
    networks = [OnnxNetwork(str(path), f"f{k}", logits=False) for k in range(row.outputs)]
    return [step_of(network.construct, mode)(*arrays)[0] for network in networks]


def check_outputs(row: OneNode, folder: Path, expected: Sequence[np.ndarray] | None = None, most: float = 1e-5) -> None:
    """Shapes and numbers of both modes are those of stock onnxruntime, or those given where it lacks the node."""
    path = row.write(folder)
    wanted = stock(path, row.arrays()) if expected is None else expected
    for mode in MODES:
        for made, right in zip(imported(row, path, mode, row.arrays()), wanted, strict=True):
            assert made.shape == right.shape, (mode, made.shape, right.shape)
            assert np.allclose(made, right, most, most, equal_nan=True), (mode, np.abs(made - right).max())


def check_gradients(row: OneNode, folder: Path, most: float = 1e-3) -> None:
    """In both modes, the gradients of a weighted sum of all outputs are those of differences in Float64."""
    path, arrays = row.write(folder), row.arrays()
    floats = [k for k, x in enumerate(row.given) if x.dtype.kind == "f"]
    parameters = OnnxNetwork(str(path), "f0", logits=False).trainable_params()
    assert floats, "no input to differentiate"
    assert not parameters, "a constant is trained: pass it as an input"
    for k in range(row.outputs):
        if k in row.ints:
            continue
        network = OnnxNetwork(str(path), f"f{k}", logits=False)
        factors = RNG.normal(size=imported_shape(network, arrays)).astype(np.float32)
        for at in floats:
            slopes = _slopes(network, arrays, factors, at)
            for mode in MODES:

                def slope(*inputs, network=network, factors=factors, at=at):
                    return gradients(network.construct(*inputs) * factors.astype(inputs[at].dtype.numpy), [inputs[at]])

                (made,) = step_of(slope, mode)(*arrays)
                scale = max(float(np.abs(slopes).max(initial=0)), 1e-6)
                found = float(np.abs(made - slopes).max(initial=0)) / scale
                assert found <= most, f"{mode}: the gradient of input {at} for output {k} differs by {found:.1e}"


def imported_shape(network: OnnxNetwork, arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    return step_of(network.construct, "pynative")(*arrays)[0].shape


def _slopes(network: OnnxNetwork, arrays: Sequence[np.ndarray], factors: np.ndarray, at: int) -> np.ndarray:
    """Central differences for each element of an input, in Float64."""
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in arrays]
    run, slopes = step_of(network.construct, "pynative"), np.zeros(wide[at].shape)
    for place in np.ndindex(slopes.shape):
        ends = []
        for step in (STEP, -STEP):
            moved = wide[at].copy()
            moved[place] += step
            (y,) = run(*wide[:at], moved, *wide[at + 1 :])
            assert y.dtype == np.float64
            ends.append(float((y * factors).sum()))
        slopes[place] = (ends[0] - ends[1]) / (2 * STEP)
    return slopes

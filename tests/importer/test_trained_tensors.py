"""Which tensors of a file are trained: losses of six steps are those of the framework that made it, and users overrule.

`make_trained_files.py` made the files: parameters, buffers and what exporters compute, equal layers and shared ones.
"""

import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from both_modes import MODES, relative, step_of
from onnx import TensorProto, helper, numpy_helper

from runner import nn
from runner.cli import main
from runner.core.values import Value
from runner.errors import ConfigError
from runner.importer.file import read_model
from runner.importer.network import OnnxNetwork
from runner.importer.roles import roles_of
from runner.importer.tensors import own_tensors
from runner.report.onnx_file import inspect

FOLDER = Path(__file__).parent / "trained"
FILES = sorted(FOLDER.glob("*.onnx"))
RATE = 0.2


class Entropy(nn.Cell):
    """The network with a loss of classes."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, x: Value, targets: Value) -> Value:
        return self.loss(self.network(x), targets)


def batch(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with np.load(path.with_suffix(".npz")) as found:
        x = found["x"]
        return x.astype(np.int32) if x.dtype == np.int64 else x, found["targets"], found["losses"]


def trained(path: Path, **settings) -> list[str]:
    return sorted(p.name for p in OnnxNetwork(str(path), **settings).trainable_params())


def losses(path: Path, mode: str, **settings) -> list[float]:
    x, targets, wanted = batch(path)
    network = OnnxNetwork(str(path), **settings)
    step = nn.TrainOneStepCell(Entropy(network), nn.SGD(network.trainable_params(), RATE))
    step.set_train()
    run = step_of(step, mode)
    return [float(run(x, targets)[0]) for _ in wanted]


def test_every_exporter_is_here() -> None:
    exporters = {path.stem.rpartition("-")[2] for path in FILES}
    assert exporters == {"leg", "legn", "dyn", "dynn", "train", "jax2onnx"}
    assert len(FILES) == 62


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
@pytest.mark.parametrize("mode", MODES)
def test_losses_are_those_of_the_framework(path, mode):
    np.testing.assert_allclose(losses(path, mode), batch(path)[2], rtol=2e-5)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_outputs_stay_those_of_onnxruntime(path):
    """Biases of zeros, rows and functions of parameters that were put back do not change what the file computes."""
    x = batch(path)[0]
    network = OnnxNetwork(str(path), logits=False)
    network.set_train(False)
    (made,) = step_of(network, "pynative")(x)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kind = np.int64 if "int64" in session.get_inputs()[0].type else x.dtype
    stock = session.run(None, {session.get_inputs()[0].name: x.astype(kind)})[0]
    assert relative(made, stock) < 1e-5


def test_a_token_of_a_fixed_batch_is_one_row_for_every_batch():
    path = FOLDER / "positions-dyn.onnx"
    network = OnnxNetwork(str(path))
    assert {p.name: p.shape for p in network.trainable_params()}["token"] == (1, 1, 8)
    network.set_train(False)
    x = batch(path)[0]
    whole, half = (step_of(network, "pynative")(part)[0] for part in (x, x[:3]))
    assert relative(half, whole[:3]) < 1e-6


def test_a_table_that_repeats_a_parameter_is_that_parameter():
    """One element for each distance of two positions, the trained rows once, the rows of an embedding."""
    shapes = {}
    for name in ("relative-dyn", "queries-dyn", "embedded-dynn"):
        shapes |= {p.name: p.shape for p in OnnxNetwork(str(FOLDER / f"{name}.onnx")).trainable_params()}
    assert (shapes["biases"], shapes["rows"]) == ((9,), (1, 5, 8))
    assert shapes["embedding"] == (5, 8)  # the name in the file, since it may be a part


def test_parameters_have_the_names_of_the_program():
    names = trained(FOLDER / "attention-dyn.onnx")
    parts = "attention.in_proj_weight", "attention.in_proj_bias", "attention.out_proj.weight", "attention.out_proj.bias"
    assert names == sorted([*parts, "head.weight", "head.bias"])


def roles(path: Path) -> dict[str, tuple[str, str, bool]]:
    graph = own_tensors(read_model(path)).graph
    return {name: (role.kind, role.reason, role.in_doubt) for name, role in roles_of(graph).items()}


COMPUTED = "computed by the exporter: the file has all parameters of the program"
LITERAL = "the value of a Constant node, which is no weight of a layer"


@pytest.mark.parametrize(
    ("file", "tensor", "kind", "reason", "doubt"),
    [
        ("pixels-leg", "mean", "constant", "mean or deviation of the input", True),
        ("pixels-dynn", "mean", "constant", "a buffer of the exported program", False),
        ("blur-legn", "kernel", "constant", "one filter for every channel", True),
        ("sines-legn", "table", "constant", "a table of sines and cosines", True),
        ("sines-dyn", "slice_1", "constant", COMPUTED, False),
        ("splines-leg", "grid", "constant", "numbers at equal distances", True),
        ("flags-legn", "mask", "constant", "a mask: zeros and ones", True),
        ("scalars-leg", "gate", "parameter", "a number that the exporter named as a parameter or buffer", True),
        ("positions-legn", "positions", "parameter", "a float tensor that an operator reads as a value", True),
        ("groups-leg", "/m/Constant_1_output_0", "constant", LITERAL, False),
        ("rms-leg", "scale", "parameter", "the scale or shift of a normalization", False),
        ("jax_dense-jax2onnx", "const_2", "parameter", "the scale or shift of a normalization", False),
    ],
)  # fmt: skip
def test_reasons(file, tensor, kind, reason, doubt):
    assert roles(FOLDER / f"{file}.onnx")[tensor] == (kind, reason, doubt)


def test_a_run_says_in_one_line_what_is_in_doubt(caplog):
    with caplog.at_level(logging.INFO, "runner"):
        OnnxNetwork(str(FOLDER / "positions-legn.onnx"))
    (line,) = [r.message for r in caplog.records if "tensors are trained" in r.message]
    assert line.startswith(
        "positions-legn.onnx: 6 tensors are trained; in doubt: positions (parameter), token (parameter)"
    )
    assert "network.train and network.constant" in line


def test_copies_of_a_layer_are_a_line(caplog):
    with caplog.at_level(logging.INFO, "runner"):
        OnnxNetwork(str(FOLDER / "copies-dyn.onnx"))
    assert "equal weights of several layers are a parameter for each: layers.1.0.weight" in caplog.text


def test_users_overrule_the_evidence():
    path = FOLDER / "pixels-leg.onnx"
    assert trained(path, train=("mean",)) == sorted([*trained(path), "mean"])
    assert trained(path, train=("m*", "dev*")) == sorted([*trained(path), "mean", "deviation"])
    assert trained(path, constant=("conv.*",)) == ["head.bias", "head.weight"]
    assert not np.allclose(losses(path, "pynative", train=("mean", "deviation")), batch(path)[2], rtol=1e-3)


def test_copies_stay_one_parameter_where_the_user_wants_it():
    path = FOLDER / "copies-leg.onnx"
    assert len(trained(path)) == 8
    assert trained(path, untie=()) == ["head.bias", "head.weight", "layers.0.0.bias", "layers.0.0.weight"]
    shared = FOLDER / "shared-leg.onnx"
    assert len(trained(shared)) == 4
    assert len(trained(shared, untie=("layers.0.0.weight",))) == 6
    np.testing.assert_allclose(losses(shared, "pynative", untie=("layers*",)), batch(path)[2], rtol=2e-5)


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"train": ("haed.weight",)}, "network.train", "haed.weight"),
        ({"constant": ("conv.weights",)}, "network.constant", "conv.weights"),
        ({"untie": ("conv.weight",)}, "network.untie", "conv.weight"),  # one node reads it
        ({"train": ("mean",), "constant": ("mea*",)}, "network.train, network.constant", "mean"),
    ],
)
def test_what_no_tensor_has_is_refused(settings, key, value):
    with pytest.raises(ConfigError) as caught:
        OnnxNetwork(str(FOLDER / "pixels-leg.onnx"), **settings)
    assert (caught.value.rows["key"], caught.value.rows["value"]) == (key, value)


def test_whole_numbers_are_not_trained(tmp_path):
    nodes = [helper.make_node("Add", ["x", "offset"], ["h"]), helper.make_node("Cast", ["h"], ["y"], to=1)]
    x = helper.make_tensor_value_info("x", TensorProto.INT32, ("n", 3))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 3))
    offset = numpy_helper.from_array(np.arange(3, dtype=np.int32), "offset")
    path = tmp_path / "whole.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "whole", [x], [y], [offset])), path)
    with pytest.raises(ConfigError, match="a tensor cannot be trained") as caught:
        OnnxNetwork(str(path), train=("offset",))
    assert caught.value.rows["reason"] == "only tensors of floats can be trained"


def test_inspect_lists_trained_constant_and_tied_tensors(capsys):
    def listed(name: str) -> dict[str, dict]:
        path = FOLDER / name
        found = inspect(path)
        return {row["name"]: row for row in (*found["parameters"], *found["constants"])}

    gate = {"role": "parameter", "reason": "a number that the exporter named as a parameter or buffer"}
    assert listed("scalars-leg.onnx")["gate"].items() >= {**gate, "in_doubt": True, "type": "Float32[]"}.items()
    assert listed("pixels-dynn.onnx")["mean"]["role"] == "constant"
    assert len(listed("shared-leg.onnx")["layers.0.0.weight"]["nodes"]) == 3
    assert main(["inspect", str(FOLDER / "pixels-leg.onnx")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "mean Float32[1, 3, 1, 1] constant in doubt: mean or deviation of the input" in text

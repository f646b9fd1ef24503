"""`network=onnx`: outputs of onnxruntime, training in both modes, names of the file."""

import json

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx_files import classifier, model, saved

import runner
from runner import Tensor, cli, context, nn
from runner.errors import ConfigError, ShapeError
from runner.host.console import LOG
from runner.importer.network import OnnxNetwork

MODES = (context.GRAPH_MODE, context.PYNATIVE_MODE)


def stock(path, **feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path / "classifier.onnx", classifier())


@pytest.mark.parametrize("mode", MODES)
def test_inference_is_that_of_onnxruntime(path, mode):
    context.set_context(mode=mode)
    x = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    network = OnnxNetwork(str(path), logits=False).set_train(False)
    np.testing.assert_allclose(network(Tensor(x)).asnumpy(), stock(path, x=x), atol=1e-6)


def test_names_and_roles_are_those_of_the_file(path):
    network = OnnxNetwork(str(path))
    trained = {p.name: p.requires_grad for p in network.get_parameters()}
    assert trained == {
        **dict.fromkeys(("a.weight", "a.bias", "n.scale", "n.bias", "b.weight", "b.bias"), True),
        **dict.fromkeys(("n.mean", "n.var"), False),
    }


def test_the_softmax_at_the_end_is_left_out(path, caplog):
    with caplog.at_level("INFO", logger=LOG.name):
        network = OnnxNetwork(str(path)).set_train(False)
        network.attach_loss(nn.SoftmaxCrossEntropyWithLogits(sparse=True))
    assert "the Softmax Softmax at the end is left out" in caplog.text
    x = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    exponentials = np.exp(network(Tensor(x)).asnumpy())
    np.testing.assert_allclose(exponentials / exponentials.sum(1, keepdims=True), stock(path, x=x), atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_normalizations_train_and_follow_their_statistics(path, mode):
    context.set_context(mode=mode)
    network = OnnxNetwork(str(path))
    step = nn.TrainOneStepCell(
        nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")),
        nn.SGD(network.trainable_params(), 0.1),
    ).set_train()
    rng = np.random.default_rng(2)
    x, labels = Tensor(rng.normal(size=(8, 6)).astype(np.float32)), Tensor(rng.integers(0, 3, 8).astype(np.int32))
    hidden = x.asnumpy().astype(np.float64) @ network.parameters_dict()["a.weight"].asnumpy().T
    hidden += network.parameters_dict()["a.bias"].asnumpy()
    before = network.parameters_dict()["n.mean"].asnumpy().astype(np.float64)
    losses = [float(step(x, labels).asnumpy())]
    np.testing.assert_allclose(
        network.parameters_dict()["n.mean"].asnumpy(), 0.9 * before + 0.1 * hidden.mean(0), rtol=1e-5, atol=1e-6
    )
    losses += [float(step(x, labels).asnumpy()) for _ in range(40)]
    assert losses[-1] < losses[0] / 2


def test_both_modes_have_the_same_names_and_losses(tmp_path):
    path = saved(tmp_path / "digits.onnx", classifier((1, 32, 32), 10))
    settings = ["dataset=digits", "max_steps=20", "dataset_sink_mode=false", "callbacks=quiet", "dump=sync"]
    losses = {}
    for mode in ("graph", "pynative"):
        folder = tmp_path / mode
        runner.run(["network=onnx", f"network.path={path}", *settings, f"mode={mode}", f"hydra.run.dir={folder}"])
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        losses[mode] = [row["loss"] for row in rows if row["event"] == "step"]
    np.testing.assert_allclose(losses["graph"], losses["pynative"], rtol=1e-4)
    # The gradient of a bias before a normalization is 0 but for rounding.
    assert cli.main(["compare", str(tmp_path / "graph"), str(tmp_path / "pynative"), "--atol=1e-7"]) == 0
    assert cli.main(["compare", str(path), str(tmp_path / "graph")]) == 0


def test_another_number_of_inputs_and_another_shape(path):
    network = OnnxNetwork(str(path))
    with pytest.raises(ShapeError, match="another number of inputs"):
        network(Tensor(np.ones((2, 6), np.float32)), Tensor(np.ones(2, np.float32)))
    with pytest.raises(ShapeError, match="another shape") as raised:
        network(Tensor(np.ones((2, 7), np.float32)))
    assert raised.value.rows["input"] == "x: Float32[n, 6]"


def test_an_output_that_the_file_does_not_have(path):
    with pytest.raises(ConfigError, match="no such output") as raised:
        OnnxNetwork(str(path), output="z")
    assert raised.value.rows["allowed"] == "y"


def test_a_fixed_batch_size_may_be_another_one(tmp_path):
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    arrays = {"shape": np.array([1, -1]), "w": rng.normal(size=(6, 2)).astype(np.float32)}
    path = saved(tmp_path / "fixed.onnx", model(nodes, {"x": [1, 2, 3]}, ["y"], arrays))
    x = rng.normal(size=(4, 2, 3)).astype(np.float32)
    rows = np.concatenate([stock(path, x=row[None]) for row in x])
    np.testing.assert_allclose(OnnxNetwork(str(path))(Tensor(x)).asnumpy(), rows, rtol=1e-5)


def test_a_length_below_0_is_a_free_one(tmp_path):
    made = classifier()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    path = saved(tmp_path / "free.onnx", made)
    x = np.ones((5, 6), np.float32)
    network = OnnxNetwork(str(path), logits=False).set_train(False)
    np.testing.assert_allclose(network(Tensor(x)).asnumpy(), stock(path, x=x), rtol=1e-5)


def test_errors_name_node_and_line_of_the_file(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "/dense/MatMul")]
    arrays = {"w": np.ones((5, 2), np.float32)}
    path = saved(tmp_path / "wrong.onnx", model(nodes, {"x": ["n", 6]}, ["y"], arrays))
    with pytest.raises(ShapeError, match="inner axes differ") as raised:
        OnnxNetwork(str(path))(Tensor(np.ones((2, 6), np.float32)))
    assert raised.value.rows["line"] == f"{path}:1  MatMul(x, w) -> y"
    assert raised.value.rows["scope"].endswith("dense/MatMul/MatMul-op0")


@pytest.mark.parametrize("mode", MODES)
def test_errors_of_python_in_rules_are_errors_of_their_nodes(tmp_path, mode):
    context.set_context(mode=mode)
    nodes = [
        helper.make_node("Greater", ["x", "w"], ["c"]),
        helper.make_node("Where", ["c", "x", "v"], ["y"], "choose"),
    ]
    arrays = {"w": np.ones(6, np.float32), "v": np.ones(5, np.float32)}
    path = saved(tmp_path / "wrong.onnx", model(nodes, {"x": ["n", 6]}, ["y"], arrays))
    with pytest.raises(ConfigError, match="a node does not fit what it reads") as raised:
        OnnxNetwork(str(path))(Tensor(np.ones((2, 6), np.float32)))
    assert raised.value.rows["node"] == "choose"
    assert raised.value.rows["operands"] == "Bool[2, 6], Float32[2, 6], Float32[5]"
    assert raised.value.rows["reason"].startswith("ValueError: shape mismatch")


def test_parameters_with_equal_elements_are_separate(tmp_path):
    """torch writes fresh scales once, with Identity nodes for the other layers; tied matrices stay tied."""
    arrays = {"one": np.ones(3, np.float32), "w": np.arange(9, dtype=np.float32).reshape(3, 3)}
    nodes = [
        helper.make_node("Identity", ["one"], ["two"]),
        helper.make_node("Identity", ["w"], ["v"]),
        helper.make_node("Mul", ["x", "one"], ["a"]),
        helper.make_node("Mul", ["a", "two"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("MatMul", ["c", "v"], ["y"]),
    ]
    network = OnnxNetwork(str(saved(tmp_path / "m.onnx", model(nodes, {"x": ["n", 3]}, ["y"], arrays))))
    assert [p.name for p in network.trainable_params()] == ["one", "w", "two"]


def test_constants_are_not_trained(tmp_path):
    arrays = {
        "half": np.float32(0.5),
        "mask": np.array([[0, -np.inf], [0, 0]], np.float32),
        "low": np.float32(-1),
        "w": np.ones((2, 2), np.float32),
    }
    nodes = [
        helper.make_node("Constant", [], ["shift"], value_floats=[0.5, 1.0]),
        helper.make_node("Mul", ["x", "half"], ["a"]),
        helper.make_node("Clip", ["a", "low"], ["b"]),
        helper.make_node("Add", ["b", "mask"], ["c"]),
        helper.make_node("Softmax", ["c"], ["d"]),
        helper.make_node("Add", ["d", "shift"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["y"]),
    ]
    network = OnnxNetwork(str(saved(tmp_path / "m.onnx", model(nodes, {"x": [2, 2]}, ["y"], arrays))))
    assert [p.name for p in network.trainable_params()] == ["w"]

"""Which initializers are trained."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import model, saved

from runner import Tensor
from runner.importer.file import read_model
from runner.importer.network import OnnxNetwork
from runner.importer.roles import roles_of
from runner.importer.tensors import own_tensors


def test_equal_numbers_that_the_exporter_computed_are_constants(tmp_path):
    """torch.export names them val_1 and so on: scales of attention, zeros. Folded weights are trained."""
    arrays = {
        "val_1": np.full(1, 0.5),
        "val_2": np.zeros((1, 4)),
        "val_3": np.ones((3, 4)),  # a folded weight, by its place
        "val_4": np.array([0.5, -1.0, 2.0, 0.25]),  # it may be a part of a table of positions
        "scale": np.full(1, 0.5),
        "bias": np.zeros(4),
    }
    nodes = [helper.make_node("MatMul", ["x", "val_3"], ["y0"])]
    for k, (operator, name) in enumerate(
        [("Mul", "val_1"), ("Add", "val_2"), ("Add", "val_4"), ("Mul", "scale"), ("Add", "bias")]
    ):
        nodes.append(helper.make_node(operator, [f"y{k}", name], [f"y{k + 1}"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))
    y = helper.make_tensor_value_info("y5", TensorProto.FLOAT, ("n", 4))
    initializers = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "roles", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (tmp_path / "roles.onnx").write_bytes(model.SerializeToString())
    network = OnnxNetwork(str(tmp_path / "roles.onnx"))
    assert {parameter.name for parameter in network.trainable_params()} == {"val_3", "val_4", "scale", "bias"}


RNG = np.random.default_rng(4)
ROOT = RNG.normal(size=(5, 5))


def role(tmp_path, nodes, name, array, shape=("n", 5), producer="pytorch"):
    """The role of one tensor among nodes, each an operator with its inputs; the last one computes y from x."""
    last = len(nodes) - 1
    made = [helper.make_node(op, inputs, ["y" if k == last else f"y{k}"]) for k, (op, inputs) in enumerate(nodes)]
    file = model(made, {"x": shape}, ["y"], {name: np.asarray(array, np.float32)})
    file.producer_name = producer
    found = roles_of(own_tensors(read_model(saved(tmp_path / "one.onnx", file))).graph)[name]
    return found.kind, found.reason, found.in_doubt


LAYER, READ = "the weight or bias of a layer", "a float tensor that an operator reads as a value"
WAVES = [("MatMul", ["x", "t"]), ("Sin", ["y0"]), ("Cos", ["y0"]), ("Add", ["y1", "y2"])]
SPACED = np.tile(np.linspace(-1, 1, 5), (3, 1))


@pytest.mark.parametrize(
    ("name", "nodes", "array", "kind", "reason"),
    [
        ("limit", [("Clip", ["x", "limit"])], 0.5, "constant", "a bound of Clip"),
        ("t", [("MatMul", ["x", "t"])], ROOT, "parameter", LAYER),
        ("t", [("MatMul", ["x", "t"])], ROOT + ROOT.T, "constant", "a symmetric matrix"),
        ("t", [("MatMul", ["x", "t"])], np.eye(5), "parameter", LAYER),
        ("t", WAVES, ROOT, "constant", "frequencies of sines and cosines"),
        ("t", [*WAVES[:2], ("Relu", ["y0"]), WAVES[3]], ROOT, "parameter", LAYER),
        ("t", [("Sub", ["x", "t"])], ROOT[0], "constant", "mean or deviation of the input"),
        ("t", [("Relu", ["x"]), ("Div", ["y0", "t"])], ROOT[0], "parameter", READ),
        ("t", [("Add", ["x", "t"])], ROOT[0], "parameter", READ),
        ("t", [("Relu", ["x"]), ("Sub", ["y0", "t"])], SPACED, "constant", "numbers at equal distances"),
        ("out.y_mean", [("Relu", ["x"]), ("Add", ["y0", "out.y_mean"])], ROOT[0], "constant", "named as buffers are"),
        ("y_std", [("Relu", ["x"]), ("Mul", ["y0", "y_std"])], 2.0, "constant", "a number without axes"),
        ("meaning", [("Relu", ["x"]), ("Add", ["y0", "meaning"])], ROOT[0], "parameter", READ),
    ],
)  # fmt: skip
def test_evidence(tmp_path, name, nodes, array, kind, reason):
    found = role(tmp_path, nodes, name, array)
    assert found[:2] == (kind, reason)


def test_rows_that_repeat_a_parameter_are_this_parameter(tmp_path):
    """As the first step of a recurrent layer that starts from zeros, of which an exporter leaves the bias."""
    bias = RNG.normal(size=4).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "first"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Add", ["c", "bias"], ["y"]),
    ]
    arrays = {"w": RNG.normal(size=(3, 4)), "v": RNG.normal(size=(4, 4)), "bias": bias, "first": np.tile(bias, (2, 1))}
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    path = saved(tmp_path / "rows.onnx", model(nodes, {"x": (2, 3)}, ["y"], arrays))
    network, x = OnnxNetwork(str(path), logits=False), RNG.normal(size=(2, 3)).astype(np.float32)
    assert [parameter.name for parameter in network.trainable_params()] == ["w", "v", "bias"]
    np.testing.assert_allclose(network(Tensor(x)).asnumpy(), (x @ arrays["w"] + bias) @ arrays["v"] + bias, rtol=1e-5)
    bias_of_network = network.trainable_params()[2]
    bias_of_network.set_data(Tensor(bias + 1))
    np.testing.assert_allclose(
        network(Tensor(x)).asnumpy(), (x @ arrays["w"] + bias + 1) @ arrays["v"] + bias + 1, rtol=1e-5
    )

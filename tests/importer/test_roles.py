"""Which initializers are trained."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import model, saved

from runner import Tensor
from runner.importer.file import ExportedCall, read_model
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
REPEATS = "a matrix whose numbers repeat"
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
        ("t", [("MatMul", ["x", "t"])], np.kron(np.eye(5), [0.25, 0.5, 0.25]), "constant", REPEATS),
        ("t", [("MatMul", ["x", "t"])], np.vander([1.0, 2, 3, 4], 5).T, "constant", REPEATS),
        ("t", [("Gemm", ["x", "t"])], np.vander([1.0, 2, 3, 4], 5).T, "parameter", LAYER),
        ("t", [("MatMul", ["x", "t"])], np.full((5, 4), 0.1), "parameter", LAYER),
        ("t", [("MatMul", ["x", "t"])], RNG.normal(size=(5, 4)).astype(np.float16), "parameter", LAYER),
        ("t", [("Sub", ["x", "t"])], ROOT[0], "constant", "mean or deviation of the input"),
        ("t", [("Relu", ["x"]), ("Div", ["y0", "t"])], ROOT[0], "parameter", READ),
        ("t", [("Add", ["x", "t"])], ROOT[0], "parameter", READ),
        ("t", [("Relu", ["x"]), ("Max", ["y0", "t"])], SPACED, "constant", "numbers at equal distances"),
        ("out.y_mean", [("Relu", ["x"]), ("Add", ["y0", "out.y_mean"])], ROOT[0], "constant", "named as buffers are"),
        ("y_std", [("Relu", ["x"]), ("Mul", ["y0", "y_std"])], 2.0, "constant", "a number without axes"),
        ("meaning", [("Relu", ["x"]), ("Add", ["y0", "meaning"])], ROOT[0], "parameter", READ),
    ],
)  # fmt: skip
def test_evidence(tmp_path, name, nodes, array, kind, reason):
    found = role(tmp_path, nodes, name, array)
    assert found[:2] == (kind, reason)


def test_helpers_of_a_signature_are_no_parameters(tmp_path):
    """An InstanceNorm without scale, in a program of which another parameter has another shape in the file."""
    arrays = {"val_1": np.ones(3), "val_2": np.zeros(3), "unsqueeze_1": RNG.normal(size=(1, 3, 1)), "w": ROOT}
    nodes = [
        helper.make_node("InstanceNormalization", ["x", "val_1", "val_2"], ["a"]),
        helper.make_node("Mul", ["a", "unsqueeze_1"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    graph = read_model(saved(tmp_path / "noted.onnx", model(nodes, {"x": ("n", 3, 5)}, ["y"], arrays)))
    called = [
        replace(graph.nodes[k], call=ExportedCall(f"c{k}", "aten.x", passed))
        for k, passed in enumerate(((), ("p",), ("w",)))
    ]
    signature = {name: ("PARAMETER", name) for name in "pw"}
    roles = roles_of(replace(graph, producer="pytorch", nodes=tuple(called), signature=signature))
    assert {name: role.kind for name, role in roles.items()} == {
        "val_1": "constant",
        "val_2": "constant",
        "unsqueeze_1": "parameter",
        "w": "parameter",
    }


def test_the_scale_of_a_layer_that_is_called_again_is_one(tmp_path):
    """Its nodes have a number behind the name of the layer; a scale of another layer that is equal is its own."""
    nodes, before = [], "x"
    for layer in ("norm", "norm_1", "last"):
        nodes += [
            helper.make_node(
                "LayerNormalization", [before, "ones", "zeros"], [f"{layer}.y"], f"/{layer}/Normalization"
            ),
            helper.make_node("Mul", [f"{layer}.y", "norm.weight"], [f"{layer}.z"], f"/{layer}/Mul"),
        ]
        before = f"{layer}.z"
    arrays = {name: np.full(5, value, np.float32) for name, value in (("ones", 1), ("zeros", 0), ("norm.weight", 1))}
    file = model(nodes, {"x": ("n", 5)}, [before], arrays)
    file.producer_name = "pytorch"
    graph = own_tensors(read_model(saved(tmp_path / "again.onnx", file))).graph
    scales = [node.inputs[1] for node in graph.nodes if node.op_type == "Mul"]
    assert scales[0] == scales[1] == "norm.weight" != scales[2]


def test_a_scale_of_one_with_the_name_of_a_layer_is_trained(tmp_path):
    """Its result is added to another normalized value, as in a residual block."""
    nodes = [
        ("InstanceNormalization", ["x", "block.in2.weight", "zeros"]),
        ("InstanceNormalization", ["y0", "block.in2.weight", "zeros"]),
        ("Add", ["y0", "y1"]),
    ]
    made = [helper.make_node(op, inputs, ["y" if k == 2 else f"y{k}"]) for k, (op, inputs) in enumerate(nodes)]
    arrays = {"block.in2.weight": np.ones(3, np.float32), "zeros": np.zeros(3, np.float32)}
    file = model(made, {"x": ("n", 3, 5)}, ["y"], arrays)
    file.producer_name = "pytorch"
    roles = roles_of(own_tensors(read_model(saved(tmp_path / "block.onnx", file))).graph)
    assert {role.kind for name, role in roles.items() if "weight" in name} == {"parameter"}


def test_parameters_may_have_the_names_of_methods(tmp_path):
    arrays = {"values": ROOT.astype(np.float32), "training": ROOT[0].astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "values"], ["a"]), helper.make_node("Add", ["a", "training"], ["y"])]
    network = OnnxNetwork(
        str(saved(tmp_path / "names.onnx", model(nodes, {"x": ("n", 5)}, ["y"], arrays))), logits=False
    )
    assert [parameter.name for parameter in network.trainable_params()] == ["values", "training"]
    x = RNG.normal(size=(2, 5)).astype(np.float32)
    np.testing.assert_allclose(network(Tensor(x)).asnumpy(), x @ arrays["values"] + arrays["training"], rtol=1e-5)


def test_a_batch_normalization_without_scale_learns_its_statistics(tmp_path):
    arrays = {"mean": np.zeros(5, np.float32), "variance": np.ones(5, np.float32)}
    nodes = [
        helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.ones(5, np.float32))),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.zeros(5, np.float32))),
        helper.make_node("BatchNormalization", ["x", "one", "zero", "mean", "variance"], ["y"]),
    ]
    network = OnnxNetwork(str(saved(tmp_path / "bn.onnx", model(nodes, {"x": ("n", 5)}, ["y"], arrays))), logits=False)
    x = RNG.normal(2, 3, size=(64, 5)).astype(np.float32)
    y = network.set_train()(Tensor(x)).asnumpy()
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-4, atol=1e-5)
    assert np.abs(network.parameters_dict()["mean"].asnumpy()).min() > 0.1


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_beta_of_a_product_without_a_third_operand_has_no_effect(tmp_path, beta):
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], beta=beta)]
    file = model(nodes, {"x": ("n", 5)}, ["y"], {"w": ROOT.astype(np.float32)})
    network, x = OnnxNetwork(str(saved(tmp_path / "gemm.onnx", file)), logits=False), ROOT[:2].astype(np.float32)
    np.testing.assert_allclose(network(Tensor(x)).asnumpy(), x @ ROOT.astype(np.float32), rtol=1e-4)


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

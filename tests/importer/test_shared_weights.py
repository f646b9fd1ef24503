"""Which weights of a file are one parameter, and which are several that were equal by chance."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from runner.importer.network import OnnxNetwork

ONES, ZEROS = np.ones(3, np.float32), np.zeros(3, np.float32)
MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)


def network(folder, nodes, arrays, shape=("n", 3), kind=TensorProto.FLOAT):
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return OnnxNetwork(str(path))


def of_layer(node, layer):
    """The node with the note that PyTorch's exporter leaves."""
    steps = ["", *[layer[:k] for k, mark in enumerate(layer) if mark == "."], layer, "operator"]
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(steps))
    return node


def names(cell):
    return [p.name for p in cell.get_parameters()], [p.name for p in cell.trainable_params()]


def test_a_normalization_whose_scale_is_written_as_its_variance_too(tmp_path):
    nodes = [
        of_layer(helper.make_node("BatchNormalization", ["x", "a.weight", "a.bias", "a.bias", "a.weight"], ["h"]), "a"),
        of_layer(
            helper.make_node("BatchNormalization", ["h", "a.weight", "a.bias", "a.bias", "a.weight"], ["y"]), "b.c"
        ),
    ]
    every, trained = names(network(tmp_path, nodes, {"a.weight": ONES, "a.bias": ZEROS}))
    parts = "weight", "bias", "running_mean", "running_var"
    assert sorted(every) == sorted(f"{layer}.{part}" for layer in ("a", "b.c") for part in parts)
    assert sorted(trained) == ["a.bias", "a.weight", "b.c.bias", "b.c.weight"]


def test_without_notes_the_names_are_those_of_nodes(tmp_path):
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["h"], name="first"),
        helper.make_node("LayerNormalization", ["h", "scale", "shift"], ["y"], name="second"),
    ]
    _, trained = names(network(tmp_path, nodes, {"scale": ONES, "shift": ZEROS}))
    assert sorted(trained) == ["scale", "second.bias", "second.weight", "shift"]


def test_biases_of_other_lengths_in_one_layer(tmp_path):
    nodes = [
        of_layer(helper.make_node("Add", ["x", "a.bias"], ["h"], name="n1"), "a"),
        of_layer(helper.make_node("Add", ["h", "a.bias"], ["k"], name="n2"), "b"),
        helper.make_node("Concat", ["k", "k"], ["c"], axis=1),
        of_layer(helper.make_node("Add", ["c", "wide.bias"], ["d"], name="n3"), "b"),
        of_layer(helper.make_node("Add", ["d", "wide.bias"], ["y"], name="n4"), "b"),
    ]
    cell = network(tmp_path, nodes, {"a.bias": ZEROS, "wide.bias": np.zeros(6, np.float32)})
    assert sorted(names(cell)[1]) == ["a.bias", "n2.bias", "n4.bias", "wide.bias"]


def test_equal_weights_with_values_stay_one(tmp_path):
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["h"], name="first"),
        helper.make_node("LayerNormalization", ["h", "scale"], ["y"], name="second"),
    ]
    assert names(network(tmp_path, nodes, {"scale": MATRIX[1]}))[1] == ["scale"]


def test_an_embedding_that_is_also_the_last_layer(tmp_path):
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["h"]),
        helper.make_node("MatMul", ["h", "onnx::MatMul_7"], ["y"]),
    ]
    cell = network(tmp_path, nodes, {"table": MATRIX, "onnx::MatMul_7": MATRIX.T.copy()}, ("n",), TensorProto.INT64)
    assert names(cell)[1] == ["table"]
    assert np.array_equal(cell.compile_and_run(np.array([1, 3])).asnumpy(), MATRIX[[1, 3]] @ MATRIX.T)


def test_numbers_that_an_exporter_computed_are_not_trained(tmp_path):
    mask = np.array([0.0, -100.0, 0.0], np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "val_81"], ["h"]),
        helper.make_node("Add", ["h", "mask"], ["k"]),
        helper.make_node("Mul", ["k", "layer.scale"], ["y"]),
    ]
    arrays = {"val_81": np.array([0.5], np.float32), "mask": mask, "layer.scale": np.array([0.5], np.float32)}
    assert names(network(tmp_path, nodes, arrays))[1] == ["layer.scale"]

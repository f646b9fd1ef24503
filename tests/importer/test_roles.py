"""Which initializers are trained."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from runner.importer.network import OnnxNetwork


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

"""Branches whose condition is known when the network is imported."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from onnx import TensorProto, helper, numpy_helper

from runner.core.gradients import gradients
from runner.importer.network import OnnxNetwork


def branch(operator: str) -> object:
    """A graph that applies an operator to x, which is outside of it."""
    node = helper.make_node(operator, ["x"], ["inner"], name=operator)
    return helper.make_graph([node], operator, [], [helper.make_tensor_value_info("inner", TensorProto.FLOAT, (3,))])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("count", "expected", "slope"), [(1, [1, 0, 2], [1, 0, 1]), (2, [-1, 3, -2], [-1, -1, -1])])
def test_a_branch_reads_values_outside_of_it(mode, count, expected, slope, tmp_path):
    """The exporter of torch writes such branches: the condition follows from a shape."""
    nodes = [
        helper.make_node("Equal", ["count", "one"], ["condition"], name="compare"),
        helper.make_node("If", ["condition"], ["y"], "if", then_branch=branch("Relu"), else_branch=branch("Neg")),
    ]
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (3,)) for name in ("x", "y")]
    constants = [numpy_helper.from_array(np.array(n, np.int64), name) for n, name in ((count, "count"), (1, "one"))]
    graph = helper.make_graph(nodes, "branches", types[:1], types[1:], constants)
    path = tmp_path / "branches.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    network, x = OnnxNetwork(str(path), logits=False), np.array([1, -3, 2], np.float32)
    assert step_of(network.construct, mode)(x)[0].tolist() == expected
    assert step_of(lambda value: gradients(network.construct(value), [value]), mode)(x)[0].tolist() == slope

"""Shapes of a file for its own batch size, for batches of another one."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from one_node import Constant, node, refused
from onnx import TensorProto, helper, numpy_helper
from tables import table

from runner.errors import ConfigError, ShapeError
from runner.importer.network import OnnxNetwork
from runner.importer.node_call import OtherBatch

ROWS = (  # of the file: batch size, shape, new shape; now: batch size, shape, new shape
    ((2, (2, 12, 32), (2, 12, 2, 16)), (5, (5, 12, 32), (5, 12, 2, 16))),
    ((2, (2, 12, 32), (24, 32)), (5, (5, 12, 32), (60, 32))),
    ((4, (48, 96), (4, 12, 96)), (2, (24, 96), (2, 12, 96))),
    ((1, (12, 96), (1, 12, 96)), (4, (48, 96), (4, 12, 96))),
    ((1, (1, 8, 8, 3), (1, 2, 4, 2, 4, 3)), (4, (4, 8, 8, 3), (4, 2, 4, 2, 4, 3))),
    ((1, (1, 2, 2, 4, 4, 3), (4, 16, 3)), (4, (4, 2, 2, 4, 4, 3), (16, 16, 3))),
    ((1, (17, 1, 32), (17, 2, 16)), (8, (17, 8, 32), (17, 16, 16))),
    ((1, (17, 1, 2, 16), (17, 32)), (8, (17, 8, 2, 16), (136, 32))),
    ((1, (1, 24, 1, 1), (1, 24)), (8, (8, 24, 1, 1), (8, 24))),
)


@table(("file", "now"), ROWS, ids=str)
def test_reshape(file, now):
    other = OtherBatch(file[0], now[0], {"x": file[1], "y": file[2]})
    assert other.reshaped("x", "y", now[1]) == now[2]
    assert other.reshaped("x", "y", file[1]) is None


def test_axes_that_were_joined_with_the_batch_are_separated_again():
    other = OtherBatch(1, 8, {"x": (17, 1, 32), "rows": (17, 32), "y": (17, 1, 32)})
    assert other.reshaped("x", "rows", (17, 8, 32)) == (136, 32)
    assert other.reshaped("rows", "y", (136, 32)) == (17, 8, 32)


def test_expand():
    other = OtherBatch(2, 5, {"token": (1, 1, 32), "tokens": (2, 1, 32), "x": (2, 1), "wide": (2, 7), "same": (3, 4)})
    assert other.expanded("token", "tokens", (1, 1, 32)) == (5, 1, 32)
    assert other.expanded("x", "wide", (5, 1)) == (5, 7)
    assert other.expanded("token", "same", (1, 4)) is None


def test_a_file_that_reads_samples_by_number_is_refused(tmp_path):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    rows = numpy_helper.from_array(np.array([1, 0]), "rows")
    graph = helper.make_graph([helper.make_node("Gather", ["x", "rows"], ["y"])], "graph", inputs, outputs, [rows])
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    network = OnnxNetwork(str(path))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(network.compile_and_run(x).asnumpy(), x[[1, 0]])
    with pytest.raises(ConfigError, match="reads samples by number"):
        network.compile_and_run(np.zeros((4, 3), np.float32))


def constant_plus_rows(path, samples):
    """A file for two rows: x + c, with c a constant for these two, as exporters compute it from a state of zeros."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(samples))
    nodes = [constant, helper.make_node("Add", ["c", "x"], ["y"])]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    return OnnxNetwork(str(path))


def test_constants_that_are_the_same_for_all_samples(tmp_path):
    sample, x = np.array([1, -2, 3], np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    network = constant_plus_rows(tmp_path / "model.onnx", np.stack([sample, sample]))
    assert np.array_equal(network.compile_and_run(x).asnumpy(), x + sample)
    other = constant_plus_rows(tmp_path / "model.onnx", np.stack([sample, sample + 1]))
    with pytest.raises(ShapeError, match="do not broadcast"):
        other.compile_and_run(x)


def test_a_value_that_cannot_have_a_shape(tmp_path):
    row = node("Expand", np.zeros((2, 3), np.float32), Constant(np.array([4, 3])))
    assert "cannot be broadcast" in refused(row, tmp_path).what


def of_two_rows(path, nodes, arrays):
    """A file for two rows x (2, 3)."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    return OnnxNetwork(str(path))


X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_that_is_tiled_for_each_sample(tmp_path, mode):
    nodes = [helper.make_node("Tile", ["token", "times"], ["t"]), helper.make_node("Concat", ["t", "x"], ["y"], axis=1)]
    token = np.array([[0.5, -1.5]], np.float32)
    cell = of_two_rows(tmp_path / "model.onnx", nodes, {"token": token, "times": np.array([2, 1])})
    assert [p.name for p in cell.trainable_params()] == ["token"]
    expected = np.concatenate([np.tile(token, (4, 1)), X], 1)
    np.testing.assert_array_equal(step_of(cell.construct, mode)(X)[0], expected)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_scattered_into_zeros_of_the_batch(tmp_path, mode):
    places = np.array([[0, 3, 3], [0, 3, 3]])
    nodes = [helper.make_node("ScatterElements", ["zeros", "places", "x"], ["y"], axis=1, reduction="add")]
    cell = of_two_rows(tmp_path / "model.onnx", nodes, {"zeros": np.zeros((2, 4), np.float32), "places": places})
    expected = np.stack([X[:, 0], X[:, 0] * 0, X[:, 0] * 0, X[:, 1] + X[:, 2]], 1)
    np.testing.assert_array_equal(step_of(cell.construct, mode)(X)[0], expected)


@pytest.mark.parametrize("mode", MODES)
def test_the_start_of_a_recurrent_layer_that_is_expanded_from_a_parameter(tmp_path, mode):
    """(1, 1, H) as (1, 2, H) for a file of two rows, and the same for each of four."""
    rng = np.random.default_rng(0)
    w, r, h = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 2, 3), (1, 2, 2), (1, 1, 2)))
    nodes = [
        helper.make_node("Unsqueeze", ["x", "zero"], ["steps"]),
        helper.make_node("Expand", ["h", "shape"], ["start"]),
        helper.make_node("RNN", ["steps", "w", "r", "", "", "start"], ["", "last"], hidden_size=2),
        helper.make_node("Squeeze", ["last", "zero"], ["y"]),
    ]
    arrays = {"w": w, "r": r, "h": h, "zero": np.array([0]), "shape": np.array([1, 2, 2])}
    cell = of_two_rows(tmp_path / "model.onnx", nodes, arrays)
    expected = np.tanh(X @ w[0].T.astype(np.float64) + h[0].astype(np.float64) @ r[0].T)
    np.testing.assert_allclose(step_of(cell.construct, mode)(X)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_what_the_network_computes_is_no_constant_of_the_batch(tmp_path, mode):
    """Two equal rows that follow from a parameter have gradients, so they do not fit a batch of four."""
    nodes = [
        helper.make_node("MatMul", ["ones", "w"], ["rows"]),
        helper.make_node("Add", ["rows", "x"], ["y"]),
    ]
    cell = of_two_rows(tmp_path / "model.onnx", nodes, {"ones": np.ones((2, 3), np.float32), "w": np.eye(3, dtype="f")})
    with pytest.raises(ShapeError, match="do not broadcast"):
        step_of(cell.construct, mode)(X)

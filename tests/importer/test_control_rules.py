"""Branches: their condition is known when the network is imported, or depends on data."""

from pathlib import Path

import numpy as np
import pytest
from both_modes import MODES, step_of
from onnx import TensorProto, helper, numpy_helper
from onnx_files import model, saved

from runner import Tensor, dtype as dt, nn
from runner.compile.export import export_onnx
from runner.core.gradients import gradients
from runner.errors import ConfigError
from runner.importer.network import OnnxNetwork
from runner.types import TensorType


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


# A condition that depends on data.


def of_layers(then: str, other: str, path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """x (n, 4) to (n, 3): one of two layers by the sum of x, each with weights inside of its branch, by these names."""
    rng, arrays, branches = np.random.default_rng(5), {}, {}
    for name, key in ((then, "then_branch"), (other, "else_branch")):
        weights = {f"{name}.weight": rng.normal(size=(3, 4)), f"{name}.bias": rng.normal(size=3)}
        arrays[key] = {part: array.astype(np.float32) for part, array in weights.items()}
        node = helper.make_node("Gemm", ["x", *weights], [key], f"{key}/Gemm", transB=1)
        output = helper.make_tensor_value_info(key, TensorProto.FLOAT, ("n", 3))
        inner = [numpy_helper.from_array(array, part) for part, array in arrays[key].items()]
        branches[key] = helper.make_graph([node], "branch", [], [output], inner)
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["condition"]),
        helper.make_node("If", ["condition"], ["y"], "if", **branches),
    ]
    made = model(nodes, {"x": ["n", 4]}, ["y"], {"zero": np.zeros((), np.float32)})
    return saved(path / "layers.onnx", made), arrays


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("names", [("a", "b"), ("a", "a")])
def test_each_step_trains_the_branch_that_its_data_choose(mode, names, tmp_path):
    """Against the update rule in Float64; two branches may have the same names for weights of their own."""
    path, arrays = of_layers(*names, tmp_path)
    network, rng = OnnxNetwork(str(path)), np.random.default_rng(6)
    assert len(network.trainable_params()) == 4
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.SGD(network.trainable_params(), 0.1))
    run = step_of(step.construct, mode)
    layers = {key: [array.astype(np.float64) for array in layer.values()] for key, layer in arrays.items()}
    for k in range(6):
        x = np.abs(rng.normal(size=(5, 4)).astype(np.float32)) * (-1 if k % 3 else 1)
        target = rng.normal(size=(5, 3)).astype(np.float32)
        weight, bias = layers["else_branch" if k % 3 else "then_branch"]
        error = x @ weight.T + bias - target
        assert float(run(x, target)[0]) == pytest.approx((error**2).mean(), rel=1e-5)
        weight -= 0.1 * 2 / error.size * error.T @ x
        bias -= 0.1 * 2 / error.size * error.sum(0)
    for parameter, array in zip(
        network.trainable_params(), [*layers["else_branch"], *layers["then_branch"]], strict=True
    ):
        np.testing.assert_allclose(parameter.asnumpy(), array, rtol=1e-5, atol=1e-6)


class Branches(nn.Cell):
    """Layers, normalization and shapes in branches, one of them inside of another one."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.dense = nn.Conv2d(1, 2, 3, has_bias=True), nn.BatchNorm2d(2), nn.Dense(32, 3)
        self.other = nn.Dense(16, 3)

    def construct(self, x):
        if x.sum() > 0:
            h = self.norm(self.conv(x))
            if h.max() > 1.5:
                h = h * 0.5
            return self.dense(h.reshape((x.shape[0], -1)))
        return self.other(x.reshape((x.shape[0], -1)))


@pytest.mark.parametrize("mode", MODES)
def test_our_own_export_with_branches_trains_as_the_network_that_it_was(mode, tmp_path):
    network, rng = Branches(), np.random.default_rng(7)
    for parameter in network.trainable_params():
        parameter.set_data(Tensor(rng.normal(0, 0.5, parameter.shape).astype(np.float32)))
    path = tmp_path / "branches.onnx"
    network.set_train(False)
    path.write_bytes(export_onnx(network.compute, [TensorType(dt.float32, (5, 1, 4, 4))], "network"))
    with pytest.raises(ConfigError, match="a tensor cannot be trained"):
        OnnxNetwork(str(path), train=("const:8",))
    steps = []
    for cell in (network, OnnxNetwork(str(path))):
        step = nn.TrainOneStepCell(nn.WithLossCell(cell, nn.MSELoss()), nn.Momentum(cell.trainable_params(), 0.05, 0.9))
        steps.append(step_of(step.set_train().construct, mode))
    for k in range(8):  # batches of another size than the file has, too
        rows = 5 if mode == "pynative" and k % 2 else 3
        x = np.abs(rng.normal(size=(rows, 1, 4, 4)).astype(np.float32)) * (-1 if k % 3 == 2 else 1 + k % 3)
        target = rng.normal(size=(rows, 3)).astype(np.float32)
        ours, imported = (float(step(x, target)[0]) for step in steps)
        assert imported == pytest.approx(ours, rel=2e-5), k


class Loop(nn.Cell):
    def construct(self, x):
        while x.sum() > 1:
            x = x * 0.5
        return x


def test_a_loop_of_our_own_export_is_refused_by_name(tmp_path):
    path = tmp_path / "loop.onnx"
    path.write_bytes(export_onnx(Loop().compute, [TensorType(dt.float32, (3,))], "network"))
    with pytest.raises(ConfigError, match="1 operator of an ONNX file cannot be imported") as caught:
        OnnxNetwork(str(path))
    assert caught.value.rows["operators"].startswith("Loop, opset 18: ")


@pytest.mark.parametrize("condition", [np.ones(2, bool), np.ones(0, bool)])
def test_a_condition_is_one_element(condition, tmp_path):
    nodes = [helper.make_node("If", ["c"], ["y"], "if", then_branch=branch("Relu"), else_branch=branch("Neg"))]
    path = saved(tmp_path / "two.onnx", model(nodes, {"x": [3]}, ["y"], {"c": condition}))
    with pytest.raises(ConfigError, match="the condition of a branch needs one element"):
        step_of(OnnxNetwork(str(path)).construct, "pynative")(np.ones(3, np.float32))

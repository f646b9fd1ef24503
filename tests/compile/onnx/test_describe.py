"""The saved step carries our names: operator, scope, source line and number are metadata of its nodes."""

import numpy as np
import onnx
import onnxruntime as ort
from both_modes import lenet_step

from runner import dtype as dt
from runner.compile.onnx.builder import OPERATORS
from runner.compile.onnx.lower import lower
from runner.compile.passes import default_passes, optimize
from runner.compile.program import standalone_step
from runner.core.trace import trace
from runner.device import Device
from runner.types import TensorType

KINDS = [TensorType(dt.float32, (32, 1, 32, 32)), TensorType(dt.int32, (32,))]
NAMES = ("image", "label"), ("loss",)


def saved():
    graph = optimize(trace(lenet_step().construct, KINDS, "train_step"), default_passes(Device()))
    return graph, standalone_step(graph, *NAMES, {p.name: p.array for p in graph.parameters})


def test_nodes_tell_where_they_come_from():
    graph, content = saved()
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    operators = {node.name: node for node in graph.nodes}
    found = set()
    for node in model.graph.node:
        entries = {entry.key: entry.value for entry in node.metadata_props}
        operator = operators[entries["operator"]]
        assert node.name.startswith(operator.name)
        assert (entries["scope"], entries["ir_index"]) == (operator.scope, str(operator.number))
        found.add(operator.name)
        if operator.name.endswith("/conv1-Conv2d/Conv2D-op0"):
            assert entries["source"].endswith("x = self.max_pool2d(self.relu(self.conv1(x)))")
            assert "models/lenet.py:" in entries["source"]
    # The numbers that tell how batches lie are merged; every other operator is there.
    assert {name for name in operators if "Conv2D" in name or "ApplyMomentum" in name} <= found


def test_metadata_change_nothing_and_are_not_in_what_runs():
    graph, content = saved()
    plain = lower(graph, *NAMES)
    assert {entry.key for node in plain.graph.node for entry in node.metadata_props} <= {OPERATORS}
    rng = np.random.default_rng(0)
    batch = {"image": rng.normal(size=(32, 1, 32, 32)).astype(np.float32), "label": rng.integers(0, 10, 32, np.int32)}
    weights = {p.name: p.array for p in graph.parameters}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    first = ort.InferenceSession(content, options).run(None, batch)
    second = ort.InferenceSession(plain.SerializeToString(), options).run(None, batch | weights)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)

"""From a graph to a checked ONNX model: names of inputs, outputs and nodes, and results that no node makes."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from both_modes import digits, lenet_step

from runner import dtype as dt, nn, ops
from runner.compile.onnx.builder import OnnxBuilder
from runner.compile.onnx.lower import lower, parameter_values
from runner.compile.onnx.model import with_constants, with_defaults
from runner.compile.program import Program
from runner.compile.session import Session
from runner.core.interpreter import current
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor
from runner.device import Device
from runner.errors import ConfigError, InternalError
from runner.types import TensorType

VECTOR = TensorType(dt.float32, (2,))
IMAGE = TensorType(dt.float32, (1, 1, 4, 4))
X = np.array([1.0, 2.0], np.float32)


def lowered(function, *types: TensorType, names=("x", "z")) -> onnx.ModelProto:
    graph = trace(function, types or (VECTOR,), "net")
    return lower(graph, names[: len(graph.inputs)], [f"y{k}" for k in range(len(graph.outputs))])


def run(model: onnx.ModelProto, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    return Session(model.SerializeToString(), Device(threads=1)).run(arrays)


def test_a_training_step_is_a_checked_model_with_the_contracts_names():
    step = lenet_step()
    types = [TensorType.of(a) for a in digits(1)[0]]
    model = lower(trace(step.construct, types, "train_step"), ["image", "label"], ["loss"])
    onnx.checker.check_model(model, full_check=True)
    names = [p.name for p in step.optimizer.parameters]
    state = [f"moments.{name}" for name in names]
    inputs = [i.name for i in model.graph.input]
    assert inputs[:2] == ["image", "label"]
    assert sorted(inputs[2:]) == sorted([*names, *state, "learning_rate"])
    outputs = [o.name for o in model.graph.output]
    assert outputs[0] == "loss"
    assert sorted(outputs[1:]) == sorted(f"{name}.updated" for name in [*names, *state])
    assert (model.graph.name, model.producer_name) == ("train_step", "runner")
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 18)]


def test_nodes_carry_the_full_names_of_the_operators_they_come_from():
    step = lenet_step()
    types = [TensorType.of(a) for a in digits(1)[0]]
    graph = trace(step.construct, types, "step")
    model = lower(graph, ["image", "label"], ["loss"])
    known = {node.name for node in graph.nodes}
    made = [node.name.rpartition("/") for node in model.graph.node]
    assert {operator for operator, _, _ in made} <= known
    numbered = zip(made, model.graph.node, strict=True)
    assert all(re.fullmatch(rf"{node.op_type}_\d+", kind) for (_, _, kind), node in numbered)
    assert "Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Conv2D-op0/Conv_0" in {
        node.name for node in model.graph.node
    }
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


def test_the_declared_types_are_those_that_onnxruntime_gives():
    model = lowered(lambda x: (ops.Cast(dt.int64)(x), ops.Reshape((2, 1))(x), ops.Greater()(x, 0.0)))
    made = run(model, x=X)
    declared = Session(model.SerializeToString(), Device(threads=1)).outputs
    assert {name: TensorType.of(a) for name, a in made.items()} == declared
    assert [str(t) for t in declared.values()] == ["Int64[2]", "Float32[2, 1]", "Bool[2]"]


def test_positions_of_a_pooling_are_dropped_where_nothing_uses_them():
    def outputs(function) -> list[int]:
        pools = [node for node in lowered(function, IMAGE).graph.node if node.op_type == "MaxPool"]
        return [len(node.output) for node in pools if "Cast" not in node.input[0]]  # the other finds windows with NaN

    tiles, overlapping = (2, 2), (2, 1)
    assert outputs(ops.MaxPool(*tiles)) == outputs(ops.MaxPool(*overlapping)) == [1]

    def gradient(windows):
        pool = ops.MaxPool(*windows)
        return lambda x: ops.MaxPoolGrad(*windows)(x, pool(x), pool(x))

    # The gradient compares the elements itself: providers find different ones of equal maxima.
    assert outputs(gradient(overlapping)) == outputs(gradient(tiles)) == [1]


def test_equal_nodes_and_constants_of_different_operators_are_one():
    model = lowered(lambda x: (ops.Square()(x), x * x, x + 2.0, x - 2.0))
    assert sorted(node.op_type for node in model.graph.node) == ["Add", "Identity", "Mul", "Sub"]
    assert [i.name for i in model.graph.initializer] == ["const:0"]


def test_a_result_that_is_an_input_a_constant_or_a_parameter():
    weight = Parameter(Tensor([5.0, 6.0]), "w")
    model = lowered(lambda x: (x, Tensor([3.0, 4.0]), weight, x + 0.5))
    assert [node.op_type for node in model.graph.node] == ["Add", "Identity", "Identity", "Identity"]
    made = run(model, x=X, w=weight.asnumpy())
    assert [made[f"y{k}"].tolist() for k in range(4)] == [[1, 2], [3, 4], [5, 6], [1.5, 2.5]]


def test_two_results_that_share_a_value():
    def net(x):
        y = x * 2.0
        return y, y, y + 1.0

    model = lowered(net)
    assert [node.op_type for node in model.graph.node] == ["Mul", "Add", "Identity"]
    made = run(model, x=X)
    assert [made[f"y{k}"].tolist() for k in range(3)] == [[2, 4], [2, 4], [3, 5]]


def test_an_output_that_is_also_an_update():
    weight = Parameter(Tensor([5.0, 6.0]), "w")

    def net(x):
        new = weight + x
        current().assign(weight, new)
        return new

    program = Program(net, [VECTOR], Device(threads=1), "net")
    assert program([X])[0].tolist() == [6, 8]
    assert weight.asnumpy().tolist() == [6, 8]
    assert program([X])[0].tolist() == [7, 10]


def test_two_parameters_that_swap_their_values():
    a, b = Parameter(Tensor([1.0, 2.0]), "a"), Parameter(Tensor([3.0, 4.0]), "b")

    def net(x):
        before = current().lift(a)
        current().assign(a, b)
        current().assign(b, before)
        return x

    program = Program(net, [VECTOR], Device(threads=1), "net")
    for expected in ([3, 4], [1, 2], [3, 4]):
        program([X])
        assert a.asnumpy().tolist() == expected
    assert b.asnumpy().tolist() == [1, 2]


def test_a_parameter_that_the_user_sets_between_two_steps_is_used():
    weight = Parameter(Tensor([5.0, 6.0]), "w")
    program = Program(lambda x: x * weight, [VECTOR], Device(threads=1), "net")
    assert program([X])[0].tolist() == [5, 12]
    weight.set_data(np.array([1.0, 1.0], np.float32))
    assert program([X])[0].tolist() == [1, 2]


@pytest.mark.parametrize("form", [with_defaults, with_constants])
def test_a_model_with_values_stands_alone(form):
    layer = nn.Dense(2, 3)
    graph = trace(layer.construct, [TensorType(dt.float32, (1, 2))], "network")
    model = form(lower(graph, ["image"], ["logits"]), parameter_values(graph))
    onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["image"]
    (made,) = session.run(None, {"image": X[None]})
    expected = X[None] @ layer.weight.asnumpy().T + layer.bias.asnumpy()
    assert np.abs(made - expected).max() < 1e-6
    feed = {"image": X[None], "bias": np.full(3, 10.0, np.float32)}
    if form is with_defaults:
        assert np.abs(session.run(None, feed)[0] - expected - 10.0).max() < 1e-5  # the caller may feed others
    else:
        assert [i.name for i in session.get_overridable_initializers()] == []


def test_lowering_twice_gives_the_same_bytes():
    types = [TensorType.of(a) for a in digits(1)[0]]
    models = [lower(trace(lenet_step().construct, types, "step"), "xy", ["loss"]) for _ in range(2)]
    assert len({model.SerializeToString(deterministic=True) for model in models}) == 1


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ("w", "w"),
            "two values have the same name\n  name    w\n  graph   net\n  repair  rename one of the parameters",
        ),
        (
            ("x", "w"),
            "two values have the same name\n  name    x\n  graph   net\n  repair  rename one of the parameters",
        ),
        (
            ("y0", "w"),
            "two values have the same name\n  name    y0\n  graph   net\n  repair  rename one of the parameters",
        ),
        (("", "w"), "a parameter needs a name\n  graph   net\n  repair  make it an attribute of a cell"),
    ],
)
def test_values_that_would_share_a_name(names, text):
    a, b = (Parameter(Tensor([1.0, 2.0]), name) for name in names)
    with pytest.raises(ConfigError) as caught:
        lowered(lambda x: x * a + b)
    assert str(caught.value) == f"ConfigError: {text}"


def test_a_lowering_that_onnx_does_not_accept_is_a_defect_of_runner(monkeypatch):
    monkeypatch.setattr(ops.Tanh, "lower", lambda self, b, x: b.node("Tanh", (x,), colour="red"))
    with pytest.raises(InternalError) as caught:
        lowered(ops.Tanh())
    assert caught.value.what == "ONNX does not accept the lowered graph"
    assert "Unrecognized attribute: colour" in caught.value.rows["reason"]


def test_an_error_while_lowering_names_the_operator(monkeypatch):
    monkeypatch.setattr(ops.Tanh, "lower", lambda self, b, x: b.const(1.0))
    with pytest.raises(InternalError) as caught:
        lowered(ops.Tanh())
    assert caught.value.what == "a float constant needs a value whose type it takes"
    assert caught.value.rows["operator"] == "Default/Tanh-op0"


def test_the_builder():
    b = OnnxBuilder()
    b.declare("x", TensorType(dt.float64, (2, 3)))
    b.operator = "Default/Net-op0"
    assert b.const(1.5, like="x") == b.const(np.array(1.5, np.float64))
    assert b.const(3) != b.const(3.0, like="x")
    assert b.const([1, 2]) == b.const(np.array([1, 2], np.int64))
    assert b.const(np.array(0.0, np.float32)) != b.const(np.array(-0.0, np.float32))
    assert b.reshape("x", (2, 3)) == "x"
    assert b.node("Exp", ("x",)) == b.node("Exp", ("x",)) == "Default/Net-op0/Exp_0:0"
    assert b.node("Softmax", ("x",), axis=0) != b.node("Softmax", ("x",), axis=1)
    assert b.nodes("Dropout", ("x",), 2) == ("Default/Net-op0/Dropout_3:0", "Default/Net-op0/Dropout_3:1")
    assert b.value("x") is None
    assert b.value(b.const(X)) is X

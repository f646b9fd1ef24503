"""`if` on values of a step: graph mode gives what PyNative mode gives, in every path.

The functions use only what tensors and arrays share, so numpy executes the same Python in Float64 as an oracle.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from both_modes import MODES, step_of
from spy import Losses, Spy
from tables import table

from runner import Model, Parameter, Tensor, context, nn, ops
from runner.compile.export import export_onnx
from runner.compile.onnx.describe import describe_model
from runner.compile.onnx.lower import lower
from runner.compile.program import Program
from runner.core.trace import trace
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.errors import ConfigError, RunnerError, ShapeError
from runner.host import seed
from runner.nn.steps import EagerStep, GraphStep
from runner.observe.graph import listing as reader
from runner.observe.graph.listing import describe, text
from runner.observe.graph.pictures import dot
from runner.observe.graph.proto import proto
from runner.types import TensorType

X = np.float32([[1, -2, 3], [0.5, 4, -1]])
TYPE = TensorType.of(X)


def either(x):
    return x * 2 if x.sum() > 0 else -x


def nested(x):
    if x.sum() > 0:
        if x.max() > 3.5:
            x = x + 1
            return x
        x = x * x
    elif x.min() < -3.5:
        x = x - 1
    return x * 3


def compound(x):
    inside = 0 < x.sum() < 100 and not x.max() > 3.5
    return x if inside or x.sum() == -5.5 else x * 0


def in_a_loop(x):
    for row in x:
        if row.sum() > 2:
            x = x + row
    return x


def early(x):
    for k in range(x.shape[0]):
        if x[k].sum() > 2:
            return x * (k + 2)
    return x


def membership(x):
    return x + 1 if x.sum() in (5.5, 0) else x


def in_one_branch(x):
    y = x
    if x.sum() > 0:
        y, z = x + 1, x * 2
        y = y * z
    return y


def of_a_number(x):
    return x + 1 if x.sum() else x


FUNCTIONS = either, nested, compound, in_a_loop, early, membership, in_one_branch, of_a_number


@table("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_path_gives_what_python_gives(function):
    graph, pynative = step_of(function, "graph"), step_of(function, "pynative")
    for x in (X, -X, X / 4, X * 10, X - X):
        (found,) = graph(x)
        np.testing.assert_allclose(found, function(np.float64(x)), rtol=1e-6)
        np.testing.assert_array_equal(found, pynative(x)[0])


def test_a_branch_is_an_if_of_onnx_and_a_known_one_is_none():
    assert [node.op_type for node in lower(trace(either, [TYPE], "net")).graph.node][-1] == "If"
    flag = np.float32(3)
    known = trace(lambda x: x if ops.Add()(flag, flag) > 5 else -x, [TYPE], "net")
    assert "If" not in [node.op.name for node in known.nodes]


@table("function", [nested, in_one_branch, compound], ids=lambda f: f.__name__)
def test_the_files_of_a_graph_have_its_branches(function):
    graph = trace(function, [TYPE], "net")
    program = Program(function, [TYPE], Device(threads=1), "net")
    for listing in (describe(graph), describe_model(program.model, program.graph, 0)):
        assert reader.parse(text(listing)) == listing
        names = [subgraph.name for subgraph in listing.subgraphs]
        assert len(set(names)) == len(names) > 2
        assert all(f"@{name}" in text(listing) for name in names)
    dot(describe(graph))
    proto(graph)


def test_equal_conditions_are_one_branch():
    def twice(x):
        y = x * 2 if x.sum() > 0 else x
        return y + 1 if x.sum() > 0 else y

    assert str(trace(twice, [TYPE], "net")).count(" = If(") == 1


class Branching(nn.Cell):
    """A network with a branch in a layer, statistics that only one path assigns, and a dangerous gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(3, 4), nn.Dense(4, 2)
        self.count = Parameter(np.float32(0), "count", requires_grad=False)

    def construct(self, x):
        h = self.first(x)
        if ops.ReduceMin()(h) > -1:
            self.assign(self.count, self.count + 1)
            h = ops.Sqrt()(h + 1)  # its gradient is NaN where the other path is taken
        else:
            h = ops.ReLU()(h)
        return self.last(h)


def training_step(network=None):
    seed.set_seed(5)
    network = network or nn.SequentialCell(Branching())
    rng = np.random.default_rng(3)
    for parameter in network.trainable_params():
        parameter.set_data(rng.normal(0, 0.3, parameter.shape).astype(np.float32))
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    return nn.TrainOneStepCell(loss, nn.Momentum(network.trainable_params(), 0.1, 0.9))


def batches(count=20):
    rng = np.random.default_rng(4)
    return [
        (rng.normal(0, 0.2 + k % 3, (8, 3)).astype(np.float32), rng.integers(0, 2, 8).astype(np.int32))
        for k in range(count)
    ]


def train(mode):
    cell = training_step()
    step = EagerStep(cell, "step") if mode == "pynative" else GraphStep(cell, Device(threads=1), "step")
    losses = [float(step(batch)[0]) for batch in batches()]
    return losses, {p.name: np.array(p.array) for p in cell.get_parameters()}


def test_training_with_a_branch_is_equal_in_both_modes():
    (losses, parameters), (expected, others) = train("graph"), train("pynative")
    count = float(parameters["0.count"])
    assert 3 < count < 17
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    for name, value in others.items():
        np.testing.assert_allclose(parameters[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_gradients_of_each_path_agree_with_float64():
    """The derivative of the path that was taken, written out; a parameter that this path does not use gets 0."""
    w, v = Parameter(np.float32([1, 2, 3]), "w"), Parameter(np.float32(2), "v")

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w, self.v = w, v

        def construct(self, x):
            y = (x * self.w).sum()
            return ops.Log()(y) * self.v if y > 0 else y * y

    gradient = ops.GradOperation(get_by_list=True)(Net(), [w, v])
    for mode in (context.PYNATIVE_MODE, context.GRAPH_MODE):
        context.set_context(mode=mode)
        for x in (np.float32([1, 2, -1]), np.float32([1, -2, -1])):
            y = float(np.float64(x) @ [1, 2, 3])
            expected = (2 / y * np.float64(x), np.log(y)) if y > 0 else (2 * y * np.float64(x), 0)
            for found, value in zip(gradient(Tensor(x)), expected, strict=True):
                np.testing.assert_allclose(found.asnumpy(), value, rtol=1e-6)


def model_losses(mode, sink):
    seed.set_seed(5)
    network = nn.SequentialCell(Branching())
    rng = np.random.default_rng(3)
    for parameter in network.trainable_params():
        parameter.set_data(rng.normal(0, 0.3, parameter.shape).astype(np.float32))
    xs, ys = (np.concatenate(column) for column in zip(*batches(), strict=True))
    data = NumpySlicesDataset({"x": xs, "y": ys}, shuffle=False).batch(8)
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(network, loss, optimizer, mode=mode, device=Device(threads=1))
    seen = Losses()
    model.train(1, data, seen, sink)
    return seen.all, [p.array.tobytes() for p in network.get_parameters()]


def test_a_sink_has_the_same_bits():
    sunk, single = model_losses(context.GRAPH_MODE, True), model_losses(context.GRAPH_MODE, False)
    assert len(sunk[0]) == 20
    assert sunk == single
    np.testing.assert_allclose(sunk[0], model_losses(context.PYNATIVE_MODE, False)[0], rtol=2e-5)


def test_both_modes_show_an_observer_the_same_operators():
    """Names and numbers are those of the path that the step takes."""
    seen = {}
    for mode in MODES:
        cell, spy = training_step(), Spy(range(20))
        step = EagerStep(cell, "step") if mode == "pynative" else GraphStep(cell, Device(threads=1), "step")
        for k, batch in enumerate(batches()):
            step.observe(batch, k, spy)
        seen[mode] = spy.values
    assert seen["graph"].keys() == seen["pynative"].keys()
    kinds = {name.rpartition("/")[2].partition("-")[0] for _, name, *_ in seen["graph"]}
    assert {"Sqrt", "ReLU"} <= kinds
    for key, value in seen["graph"].items():
        np.testing.assert_allclose(value, seen["pynative"][key], rtol=1e-3, atol=1e-5, err_msg=str(key))


def test_effects_of_a_path_are_emitted_when_it_is_taken(capfd):
    def printing(x):
        ops.Print()("before", x.sum())
        if x.sum() > 0:
            y = x * 2
            ops.Print()("positive", y)
            if y.max() > 7:
                ops.Print()("large", y.max())
        else:
            y = -x
        ops.Print()("after", y.sum())
        return y

    printed = {}
    for mode in MODES:
        step = step_of(printing, mode)
        capfd.readouterr()
        for x in (X, -X, X / 4):
            step(x)
        printed[mode] = capfd.readouterr()
    assert printed["graph"] == printed["pynative"]
    assert "".join(printed["graph"]).count("positive") == 2
    assert "".join(printed["graph"]).count("large") == 1


def test_an_exported_network_has_its_branch_and_a_fixed_batch():
    serialised = export_onnx(either, [TYPE], "net")
    entries = {x.key: x.value for x in onnx.load_from_string(serialised).metadata_props}
    assert entries["batch"] == "2"
    assert "branch" in entries["batch_reason"]
    session = onnxruntime.InferenceSession(serialised)
    for x in (X, -X):
        (found,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_array_equal(found, either(x))


def test_numbers_that_depend_on_a_branch_are_tensors_of_the_graph():
    def network(x):
        return x, x.sum() > 0, (3 if x.sum() > 0 else 4), bool(x.sum() > 0)

    graph = step_of(network, "graph")
    assert [y.tolist() for y in graph(X)[1:]] == [True, 3, True]
    assert [y.tolist() for y in graph(-X)[1:]] == [False, 4, False]


class Changing(nn.Cell):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def construct(self, x):
        self.calls += 1
        x = x * 2 if self.calls % 2 else x + 1
        return x if x.sum() > 0 else -x


def many(x):
    for row in x.reshape(-1):
        if row > 0:
            x = x + row
    return x * 1


def endless(x):
    while True:
        x = x / 2
        if x.max() < 1:
            return x


def asserts(x):
    assert x.sum() > 0, "negative"
    return x


def communicates(x):
    return ops.AllReduce("sum")(x) if x.sum() > 0 else x


ERRORS = [
    (communicates, X, ConfigError, "before the ranks communicate"),
    (asserts, X, ConfigError, "a path raises an exception"),
    (lambda x: x if x > 0 else -x, X, ShapeError, "a branch needs one element"),
    (lambda x: x if x.sum() > 0 else x[0], X, ShapeError, "what a network returns depends on a branch"),
    (lambda x: x if x.sum() > 0 else (x, x), X, ShapeError, "what a network returns depends on a branch"),
    (many, np.ones(7, np.float32), ConfigError, "follows every combination"),
    (endless, X, ConfigError, "follows every combination"),
]


@table(("function", "x", "kind", "what"), ERRORS)
def test_errors_of_branches(function, x, kind, what):
    with pytest.raises(kind, match=what) as caught:
        step_of(function, "graph")(x)
    if function in (asserts, many, endless):
        assert "test_branches.py" in caught.value.rows["line"]


def test_a_network_that_changes_python_values_is_refused():
    with pytest.raises(ConfigError, match="something else each time"):
        step_of(Changing().construct, "graph")(X)


def test_both_types_and_the_line_are_in_the_message():
    class Net(nn.Cell):
        def construct(self, x):
            if x.sum() > 0:
                return x
            return x[0]

    with pytest.raises(RunnerError) as caught:
        step_of(Net().construct, "graph")(X)
    assert caught.value.rows["if true"] == "Float32[2, 3]"
    assert caught.value.rows["if false"] == "Float32[3]"
    assert "if x.sum() > 0:" in caught.value.rows["line"]

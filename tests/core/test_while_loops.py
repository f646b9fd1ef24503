"""`while` on values of a step: a loop of the graph, with the numbers of Python's loop.

The functions use only what tensors and arrays share, so numpy executes the same Python in Float64 as an oracle.
"""

import numpy as np
import pytest
from both_modes import MODES, step_of
from spy import Losses, Spy
from tables import table

from runner import Model, Parameter, Tensor, context, nn, ops
from runner.compile.onnx.lower import lower
from runner.core.trace import trace
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.errors import ConfigError, ShapeError
from runner.nn.steps import EagerStep, GraphStep
from runner.types import TensorType

X = np.float32([2, 9, 30])


def halving(x):
    while x.max() > 1:
        x = x / 2
    return x


def newton(x):
    root, count = x, 0
    while abs(root * root - x).max() > 1e-3 and count < 8:
        root = (root + x / root) * 0.5
        count += 1
    return root * 1, count


def with_a_branch(x):
    total = x * 0
    while total.max() < 20:
        if total.sum() > 5:
            total = total + x
        else:
            total = total + 1
    return total


def nested(x):
    outer = x * 0
    while outer.max() < 6:
        inner = x * 0
        while not inner.max() >= 3:
            inner = inner + 1
        outer = outer + inner
    return outer


def swapping(x):
    a, b = x, x + 1
    while a.max() < 40:
        a, b = b, a + b
    return a - b


def known_count(x):
    k = 0
    while k < 3:
        x, k = x + k, k + 1
    return x


def known_at_first(x):
    k = x.size * 0
    while k < 2 or x.max() > 4:
        x = x / 2
        k = k + 1
    return x


def before_a_branch(x):
    for _ in range(2):
        while x.max() > 4:
            x = x / 2
        if x.sum() > 3:
            x = x + 7
    return x


FUNCTIONS = before_a_branch, halving, newton, with_a_branch, nested, swapping, known_count, known_at_first


@table("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_loop_gives_what_python_gives(function):
    def tensors(x):
        made = function(x)
        return [Tensor(y) for y in made] if isinstance(made, tuple) else made

    graph, pynative = step_of(function, "graph"), step_of(tensors, "pynative")
    for x in (X, X / 10, X * 0 + 50):
        expected = function(np.float64(x))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for a, b, c in zip(graph(x), pynative(x), expected, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=2e-6)


def test_a_loop_is_one_of_onnx_and_a_known_one_is_none():
    kinds = [node.op_type for node in lower(trace(halving, [TensorType.of(X)], "net")).graph.node]
    assert kinds[-1] == "Loop"
    assert "Loop" not in [x.op_type for x in lower(trace(known_count, [TensorType.of(X)], "net")).graph.node]


class Base(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(np.float32(0.5), "w")
        self.__private = 2

    def construct(self, x):
        return x * self.w

    def grown(self, x):
        while x.max() < 100:
            x = x * self.__private + self.w
        return x


class Looping(Base):
    """A method of a base class, a private name, `super()`, an assigned element, and a scope of a layer in the loop."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def construct(self, x, bound=7.0):
        k = Tensor(np.float32(0))
        while x.min() > k:
            x = self.act(super().construct(x) + bound * 0)
            x[0] = k
            k = k + 1
        return self.grown(x) + k


def test_a_loop_in_a_cell():
    results = []
    for mode in (context.PYNATIVE_MODE, context.GRAPH_MODE):
        context.set_context(mode=mode)
        net = nn.SequentialCell(Looping())
        results.append([net(Tensor(x)).asnumpy() for x in (X, X * 10, X * 0)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_both_modes_show_an_observer_the_same_operators():
    """Every iteration is there, with the numbers of Python's loop."""
    seen = {}
    for mode in MODES:
        spy, cell = Spy(range(3)), Looping()
        step = EagerStep(cell, "step") if mode == "pynative" else GraphStep(cell, Device(threads=1), "step")
        for k, x in enumerate((X, X * 2, X * 0)):
            step.observe([x], k, spy)
        seen[mode] = spy.values
    assert sorted(seen["graph"]) == sorted(seen["pynative"])
    for key, value in seen["graph"].items():
        np.testing.assert_allclose(value, seen["pynative"][key], rtol=1e-5, err_msg=str(key))


class Differentiated(nn.Cell):
    """Two loops, one inside the other, with a branch, a parameter and a layer in them."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(np.float32(1.3), "w")
        self.dense = nn.Dense(3, 3, weight_init=Tensor(WEIGHT), has_bias=False)

    def construct(self, x):
        h = x
        while h.max() < 20:
            if h.sum() > 5:
                h = self.dense(h)
            else:
                h = ops.Sqrt()(h + 2) * self.w
            count = h.sum() * 0
            while count < 2:
                h = h * self.w
                count = count + 1
        return (h * h).sum() * self.w


WEIGHT = (np.eye(3) * 1.1 + 0.1).astype(np.float32)


def in_float64(x, w, weight):
    h = x
    while h.max() < 20:
        h = h @ weight.T if h.sum() > 5 else np.sqrt(h + 2) * w
        h = h * w * w
    return (h * h).sum() * w


def differences(x, w, weight):
    """Derivatives of `in_float64` by central differences."""
    values = [np.float64(x), np.float64([w]), np.float64(weight)]
    found = []
    for value in values:
        derivative = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            at, both = value[place], []
            for value[place] in (at + 1e-6, at - 1e-6):
                both.append(in_float64(values[0], values[1][0], values[2]))
            value[place] = at
            derivative[place] = (both[0] - both[1]) / 2e-6
        found.append(derivative)
    return found


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_gradients_of_loops(mode):
    context.set_context(mode=mode)
    net = Differentiated()
    gradient = ops.GradOperation(get_all=True, get_by_list=True)(net, net.trainable_params())
    for x in ([[1, 0.2, 0.1]], [[2, 3, 1]], [[0, 30, 1]]):
        (of_x,), of_parameters = gradient(Tensor(np.float32(x)))
        expected = differences(np.float32(x), np.float32(1.3), WEIGHT)
        for found, value in zip((of_x, *of_parameters), expected, strict=True):
            np.testing.assert_allclose(found.asnumpy().reshape(value.shape), value, rtol=1e-4, atol=1e-2)


def test_training_with_a_loop_sunk_or_not():
    rng = np.random.default_rng(0)
    xs, ys = rng.uniform(0.5, 3, (160, 3)).astype(np.float32), rng.normal(size=(160, 1)).astype(np.float32)

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(3, 3, weight_init=Tensor(WEIGHT))
            self.last = nn.Dense(3, 1, weight_init=Tensor(WEIGHT[:1]))

        def construct(self, x):
            while x.mean() < 5:
                x = self.dense(x)
            return self.last(x / x.max())

    def train(mode, sink):
        losses, network = Losses(), Net()
        optimizer = nn.SGD(network.trainable_params(), 0.001)
        model = Model(network, nn.MSELoss(), optimizer, mode=mode, device=Device(threads=1))
        data = NumpySlicesDataset({"x": xs, "y": ys}, shuffle=False).batch(8)
        model.train(1, data, losses, sink)
        return losses.all, [p.array.tobytes() for p in network.get_parameters()]

    sunk, single = train(context.GRAPH_MODE, True), train(context.GRAPH_MODE, False)
    assert len(sunk[0]) == 20
    assert sunk == single
    np.testing.assert_allclose(sunk[0], train(context.PYNATIVE_MODE, False)[0], rtol=1e-4)


def grows(x):
    while x.sum() < 100:
        x = ops.Concat()((x, x))
    return x


def leaves(x):
    while x.sum() > 1:
        x = x / 2
        if x.max() < 3:
            break
    return x


def lists(x):
    found = ()
    while x.sum() > 1:
        x = x / 2
        found = (*found, x)
    return x


def prints(x):
    while x.sum() > 1:
        x = x / 2
        ops.Print()(x)
    return x


def several(x):
    while x > 1:
        x = x / 2
    return x


ERRORS = [
    (grows, ShapeError, "changes its type", "while x.sum() < 100:"),
    (leaves, ConfigError, "no loop for this while", "while x.sum() > 1:"),
    (lists, ConfigError, "neither a tensor nor a number", "while x.sum() > 1:"),
    (prints, ConfigError, "in which parameters are assigned, values are printed", "while x.sum() > 1:"),
    (several, ShapeError, "a branch needs one element", "while x > 1:"),
]


@table(("function", "kind", "what", "line"), ERRORS, ids=str)
def test_errors_of_loops(function, kind, what, line):
    class Net(nn.Cell):
        def construct(self, x):
            return function(x)

    with pytest.raises(kind, match=what) as caught:
        step_of(Net().construct, "graph")(X)
    assert "test_while_loops.py" in caught.value.rows["line"]
    if function not in (several,):
        assert caught.value.rows["repair"]

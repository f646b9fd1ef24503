"""`x[key] = value`: what is assigned, its gradient, and that operators applied before keep the former elements."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import Tensor, nn
from runner.core.gradients import gradients
from runner.core.recorder import Recorder
from runner.core.values import Parameter
from runner.errors import ConfigError, ShapeError
from runner.ops import ReduceSum

X = np.arange(2 * 5 * 4, dtype=np.float32).reshape(2, 5, 4) / 8
CASES = [
    (0, 3),
    (-1, np.ones((5, 4), np.float32)),
    (..., 2.5),
    (slice(None), np.arange(4, dtype=np.float32)),
    ((slice(None), 1), 7),
    ((slice(None), slice(None, None, 2)), np.ones((3, 4), np.float32)),
    ((1, slice(None, None, -1)), np.arange(20, dtype=np.float32).reshape(5, 4)),
    ((0, 0, 0), 9),
    ((0, 0), np.full((1, 1, 4), 9, np.float32)),
    ((..., 2), np.arange(10, dtype=np.int32).reshape(2, 5)),
    ((0, None, 2), [1, 2, 3, 4]),
    ([1, 0], np.array([[[1.0]], [[2.0]]], np.float32)),
    ((slice(None), [0, -1]), 4),
    (([0, 1], [4, 2]), np.arange(8, dtype=np.float32).reshape(2, 4)),
    (([0, 1], slice(1, 3), [1, 2]), 6),
    (X > 2, -1),
    (X > 2, np.arange((X > 2).sum(), dtype=np.float32)),
    ((0, X[0, :, 0] > 0.5), 8),
]


def changed(key, value):
    expected = X.copy()
    expected[key] = value
    return expected


@pytest.mark.parametrize("mode", MODES)
@table(("key", "value"), CASES)
def test_an_assignment_changes_what_it_changes_in_numpy(key, value, mode):
    def function(x):
        before = x * 2
        x[key] = value
        return before, x, x * 3

    before, after, used = step_of(function, mode)(X)
    assert np.array_equal(before, X * 2)
    assert np.array_equal(after, changed(key, value))
    assert np.array_equal(used, changed(key, value) * 3)
    assert after.dtype == np.float32


@table(("key", "value"), CASES)
def test_a_tensor_outside_of_networks(key, value):
    x = Tensor(X)
    shared = x.asnumpy()
    x[key] = Tensor(value) if isinstance(value, np.ndarray) else value
    assert np.array_equal(x.asnumpy(), changed(key, value))
    assert np.array_equal(shared, X)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_go_to_what_was_there_and_to_what_was_assigned(mode):
    """y = x * x with row 0 replaced by v * x[1]; then x itself is changed, which the square before does not see."""
    x, v = Parameter(X[0], "x"), Parameter(X[1, 0] + 1, "v")

    def function(w):
        z = x * 1.0
        y = z * z
        y[0] = v * z[1]
        z[1] = 100.0
        return tuple(gradients(ReduceSum()(y * w + z), [x, v]))

    w = np.linspace(1, 2, 20, dtype=np.float32).reshape(5, 4)
    dx, dv = step_of(function, mode)(w)
    expected = 2 * X[0] * w + 1
    expected[0] = 1
    expected[1] += v.asnumpy() * w[0] - 1
    assert np.allclose(dx, expected, rtol=1e-6)
    assert np.allclose(dv, X[0, 1] * w[0], rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@table(
    "function",
    [
        lambda x, k: assign(x, k, 5.0),
        lambda x, k: assign(x, (slice(None), k), x[0, 0] * 2),
        lambda x, k: assign(x, (k, 1), 5),
        lambda x, k: assign(x, (0, k, slice(1, 3)), 5),
        lambda x, k: assign(x, x > 2, 0),
        lambda x, k: assign(x, x[:, :, 0] > 2, 0),
    ],
    ids=id,
)
def test_positions_that_only_the_step_knows(function, mode):
    k = np.array([1, 0], np.int32)
    assert np.array_equal(step_of(function, mode)(X, k)[0], function(X.copy(), k))


def assign(x, key, value):
    x[key] = value
    return x


@pytest.mark.parametrize("mode", MODES)
def test_a_constant_is_filled_row_by_row(mode):
    def function(x):
        table = Tensor(np.zeros((3, 4), np.float32))
        for k in range(3):
            table[k] = x[0, k] + k
        return table

    assert np.array_equal(step_of(function, mode)(X)[0], X[0, :3] + np.arange(3)[:, None])


def test_the_record_of_pynative_mode_has_the_assignment():
    x = Tensor(X)
    with Recorder((x,)) as recorder:
        y = x * 2.0
        x[0] = 1.0
        graph = recorder.graph("net", (y, x, x + y))
    assert graph.nodes[0].op.name == "Mul"
    assert graph.nodes[0].inputs[0] is graph.inputs[0]
    assert graph.outputs[1] is not graph.inputs[0]
    assert graph.nodes[-1].inputs == (graph.outputs[1], graph.outputs[0])


def test_a_parameter():
    weight = Parameter(X, "w")
    weight[0, 1] = 5.0
    assert np.array_equal(weight.asnumpy(), changed((0, 1), 5))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(X, "w")

        def construct(self, x):
            self.weight[0] = x[0]
            return self.weight

    for mode in MODES:
        with pytest.raises(ConfigError) as caught:
            step_of(Net().construct, mode)(X)
        assert caught.value.what == "a network does not change elements of a parameter"
        assert "self.weight[0] = x[0]" in caught.value.rows["line"]


@pytest.mark.parametrize("mode", MODES)
@table(
    ("key", "value", "what"),
    [
        (5, 1, "index out of range"),
        (0, [1, 2, 3], "BroadcastTo: shapes do not broadcast"),
        ("x", 1, "not an index of a tensor"),
        (0, [Tensor(1.0)], "an operator takes tensors, not a list or tuple of them"),
    ],
)
def test_what_is_refused(key, value, what, mode):
    with pytest.raises(ShapeError) as caught:
        step_of(lambda x: assign(x, key, value), mode)(X)
    assert caught.value.what == what

"""What Python's syntax means for a value: `x[key]`, loops, `x @ y`, arrays beside tensors, numpy's functions."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import Tensor, nn, ops
from runner.core.gradients import gradients
from runner.core.values import Parameter
from runner.errors import ConfigError, RunnerError, ShapeError

X = np.arange(2 * 5 * 4, dtype=np.float32).reshape(2, 5, 4) / 8
KEYS = [
    0,
    -1,
    np.int64(1),
    ...,
    slice(None),
    slice(1),
    (slice(None), 0),
    (slice(None), -1, slice(1, 3)),
    (slice(None), slice(-3, None, 2)),
    (..., 2),
    (..., slice(None, None, 3)),
    (0, ..., slice(1, -1)),
    None,
    (..., None),
    (slice(None), None, 3),
    (0, None, None, slice(2, 4)),
    (1, 2, 3),
    (1, 2, 3, ...),
    (slice(-100, 100),),
    slice(None, None, -1),
    (slice(None), slice(None, None, -2)),
    (0, slice(3, 0, -1), ..., None),
    (..., slice(-1, -4, -1)),
    True,
    [0, 1],
    [1, -2, 1],
    np.array([0, 1]),
    np.array([[1, 0], [0, 1]], np.int32),
    (slice(None), [4, 0, 2]),
    (..., [0, 3]),
    ([0, 1], [4, -1]),
    ([0, 1], slice(None), [1, 2]),
    (0, slice(None), [1, 2]),
    (slice(None), 2, [1, 2]),
    ([[0], [1]], [4, 0, 2]),
    (slice(None), [1, 2], slice(1, 3)),
    (slice(None), None, [1, 2], [3, 0]),
    ([1, 0], None, [1, 2]),
    (slice(None, None, -1), [1, 2]),
    X > 2,
    (0, X[0] > 1),
    (slice(None), [True, False, True, False, True]),
    (X[:, :, 0] > 1, 2),
]


@pytest.mark.parametrize("mode", MODES)
@table("key", KEYS)
def test_an_index_selects_what_it_selects_in_numpy(key, mode):
    made = step_of(lambda x: x[key], mode)(X)[0]
    assert made.dtype == np.float32
    assert np.array_equal(made, X[key])
    assert made.shape == X[key].shape


@pytest.mark.parametrize("mode", MODES)
@table("key", KEYS)
def test_the_gradient_of_an_index_is_at_the_selected_elements(key, mode):
    weight = np.random.default_rng(1).normal(size=X[key].shape).astype(np.float32)
    expected = np.zeros_like(X)
    np.add.at(expected, key, 2 * weight * X[key])
    x = Parameter(X, "x")
    made = step_of(lambda w: gradients(ops.ReduceSum()(x[key] * x[key] * w), [x])[0], mode)(weight)[0]
    assert np.allclose(made, expected, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_goes_over_the_first_axis(mode):
    assert np.array_equal(step_of(lambda x: ops.Stack()([row * len(x) for row in x]), mode)(X)[0], 2 * X)
    with pytest.raises(TypeError, match="without axes"):
        len(Tensor(1.0))


@pytest.mark.parametrize("mode", MODES)
@table(
    ("key", "text"),
    [
        (2, "index out of range\n  given    2\n  allowed  -2 to 1\n  operand  Float32[2, 5, 4]\n  scope    Default"),
        ((0, 0, -5), "index out of range\n  given    -5\n  allowed  -4 to 3\n"),
        ((0, 0, 0, 0), "too many indices\n  given    4\n  axes     3\n"),
        ((..., ...), "too many indices\n  given    2\n  axes     3\n"),
        (False, "nothing is selected\n  given    False\n"),
        (
            "x",
            "not an index of a tensor\n  given    str\n"
            "  allowed  ints, slices, ..., None, and arrays of ints or Bool\n",
        ),
        ([0, 0.5], "not an index of a tensor\n  given    list\n"),
        ([[0], [1, 2]], "not an index of a tensor\n  given    list\n"),
        ([], "not an index of a tensor\n  given    list\n"),
        (np.array([0.0]), "not an index of a tensor\n  given    ndarray of float64\n"),
        (Tensor([0.0]), "not an index of a tensor\n  given    Tensor of Float32\n"),
        ([0, 2], "index out of range\n  given    2\n  allowed  -2 to 1\n"),
        ((0, [0, -6]), "index out of range\n  given    -6\n  allowed  -5 to 4\n"),
        ([True], "a condition has the shape of the axes that it selects from\n  given    (1,)\n  axes     (2,)\n"),
        (X > 100, "nothing is selected\n  given    Bool[2, 5, 4] without a true element\n"),
        (slice(2, 2), "StridedSlice: the slice is empty\n"),
        (slice(0, 1, -1), "StridedSlice: the slice is empty\n"),
    ],
)
def test_other_indices_are_refused(key, text, mode):
    with pytest.raises(ShapeError) as caught:
        step_of(lambda x: x[key], mode)(X)
    assert str(caught.value).startswith(f"ShapeError: {text}")
    assert "line" in caught.value.rows


@pytest.mark.parametrize("mode", MODES)
@table(
    ("function", "arrays"),
    [
        (lambda x, k: x[k], ([1, 0, 1],)),
        (lambda x, k: x[:, k], ([[4, -1], [0, 2]],)),
        (lambda x, k: x[k, :, k], ([1, 0],)),
        (lambda x, k: x[0, k, 1:3], ([1, 0],)),
        (lambda x, k: x[::-1, 1, k], ([3, 0],)),
        (lambda x, k, m: x[k, m], ([[1], [0]], [4, 2, 3])),
        (lambda x, k: x[:, [0, 1], k], ([3, 0],)),
        (lambda x, k: x[k], (1,)),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_positions_that_only_the_step_knows(function, arrays, dtype, mode):
    given = [np.array(a).astype(dtype) for a in arrays if dtype is not np.uint8 or np.min(a) >= 0]
    if len(given) == len(arrays):
        assert np.array_equal(step_of(function, mode)(X, *given)[0], function(X, *given))


def test_a_condition_that_only_the_graph_knows_is_refused():
    assert np.array_equal(step_of(lambda x: x[x > 2], "pynative")(X)[0], X[X > 2])
    with pytest.raises(ShapeError) as caught:
        step_of(lambda x: x[x > 2], "graph")(X)
    assert caught.value.what == "graph mode cannot select by a condition that is only known when the graph runs"
    assert caught.value.rows["repair"] == "ops.Select, or mode=pynative"
    condition = Tensor(X > 2)
    assert np.array_equal(step_of(lambda x: x[condition], "graph")(X)[0], X[X > 2])


@pytest.mark.parametrize("mode", MODES)
def test_stacks_of_matrices_are_multiplied(mode):
    right = X.swapaxes(1, 2).copy()
    assert np.allclose(step_of(lambda x, y: x @ y, mode)(X, right)[0], X @ right)
    with pytest.raises(ShapeError, match="MatMul: needs two matrices"):
        step_of(lambda x: x @ Tensor(X[0].T), mode)(X)


ROW = np.linspace(1, 2, 4, dtype=np.float32)


@pytest.mark.parametrize("mode", MODES)
@table(
    "function",
    [
        lambda row, x: row + x,
        lambda row, x: row - x,
        lambda row, x: row * x,
        lambda row, x: row / x,
        lambda row, x: row > x,
        lambda row, x: row <= x,
        lambda row, x: row == x,
        lambda row, x: row != x,
        lambda row, x: np.multiply(x, row),
        lambda row, x: row // x,
        lambda row, x: row % x,
    ],
)
def test_an_array_on_the_left_gives_the_same_operator(function, mode):
    x = X + 1
    assert np.allclose(step_of(lambda x: function(ROW, x), mode)(x)[0], function(ROW, x))


@pytest.mark.parametrize("mode", MODES)
@table(
    "function", [np.tanh, np.exp, np.maximum, np.add.reduce], ids=lambda function: getattr(function, "__name__", "add")
)
def test_numpys_functions_inside_of_a_network_are_refused(function, mode):
    """In PyNative mode they would give an array, and parameters before it would have no gradient."""

    class Net(nn.Cell):
        def construct(self, x):
            return function(x, x) if function is np.maximum else function(x)

    with pytest.raises(ConfigError) as caught:
        step_of(Net().construct, mode)(X)
    assert caught.value.what == "numpy's functions are not part of a network"
    assert caught.value.rows["operand"] == "Float32[2, 5, 4]"
    assert "function(x, x)" in caught.value.rows["line"]


def test_numpys_functions_of_tensors_give_arrays_elsewhere():
    assert np.array_equal(np.tanh(Tensor(X)), np.tanh(X))
    assert np.array_equal(np.add.reduce(Tensor(X)), X.sum(0))
    assert np.mean(Tensor(X)) == X.mean()
    assert np.max(Tensor(X), axis=1).tolist() == X.max(1).tolist()
    assert np.array_equal(np.stack([Tensor(X), X]), np.stack([X, X]))


@table(
    "function", [lambda x: float(ops.ReduceSum()(x)), lambda x: int(ops.ReduceSum()(x)), lambda x: x.asnumpy()], ids=id
)
def test_a_graph_has_no_numbers(function):
    step_of(lambda x: x * function(x), "pynative")(X)
    with pytest.raises(RunnerError) as caught:
        step_of(lambda x: x * function(x), "graph")(X)
    assert caught.value.what == "graph mode has no number for a value that is only known when the graph runs"

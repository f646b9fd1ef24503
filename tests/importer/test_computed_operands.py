"""Operands that the network computes where files usually have constants, reductions of nothing, axes out of range."""

import numpy as np
import pytest
from both_modes import MODES
from one_node import Constant, check_gradients, check_outputs, node, refused

RNG = np.random.default_rng(3)
X = (RNG.random((4, 3)) + 0.5).astype(np.float32)
TWO = np.full((1,), 2.0, np.float32)
IMAGE = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32)
SCALE, SHIFT, MEAN, VARIANCE = (RNG.random(3).astype(np.float32) + 0.5 for _ in range(4))


def test_an_exponent_of_two_has_a_gradient_where_the_network_computes_it(tmp_path):
    """d(x**y)/dy = x**y log(x), also where y happens to be 2 and x**2 is cheaper."""
    row = node("Pow", X, TWO)
    check_outputs(row, tmp_path)
    check_gradients(row, tmp_path)
    factors = np.ones_like(X)
    for mode in MODES:
        slope = row.network(row.write(tmp_path)).gradients(factors, mode)[1]
        np.testing.assert_allclose(slope, [(X.astype(np.float64) ** 2 * np.log(X)).sum()], rtol=1e-5)


@pytest.mark.parametrize("exponent", [0.5, 2.0, 3.0, -1.0, 1.5])
def test_known_exponents(exponent, tmp_path):
    row = node("Pow", X, Constant(np.float32(exponent)))
    check_outputs(row, tmp_path)
    check_gradients(row, tmp_path)


def test_a_fraction_as_exponent_of_whole_numbers_is_not_cut(tmp_path):
    whole = np.array([[1, 4, 9], [16, 2, 3]], np.int32)
    row = node("Pow", whole, Constant(np.float32(0.5)), ints=(0,))
    check_outputs(row, tmp_path, [np.sqrt(whole.astype(np.float64)).astype(np.int32).astype(np.float32)])


def test_statistics_that_the_network_computes_have_gradients(tmp_path):
    row = node("BatchNormalization", IMAGE, SCALE, SHIFT, MEAN, VARIANCE, epsilon=1e-3)
    check_outputs(row, tmp_path)
    check_gradients(row, tmp_path)


UNREDUCED = {
    "ReduceL1": np.abs,
    "ReduceL2": np.abs,
    "ReduceSumSquare": np.square,
    "ReduceLogSum": np.log,
    "ReduceLogSumExp": lambda x: x,
    "ReduceSum": lambda x: x,
    "ReduceMean": lambda x: x,
    "ReduceMax": lambda x: x,
    "ReduceProd": lambda x: x,
}


@pytest.mark.parametrize("operator", UNREDUCED)
@pytest.mark.parametrize("axes", [None, Constant(np.zeros(0, np.int64))])
def test_without_axes_a_reduction_is_its_function_of_each_element(operator, axes, tmp_path):
    """As ONNX defines `noop_with_empty_axes`: nothing is reduced, and everything else applies."""
    x = X if operator == "ReduceLogSum" else X - 1.0
    inputs = [x] if axes is None else [x, axes]
    row = node(operator, *inputs, noop_with_empty_axes=1)
    check_outputs(row, tmp_path, [UNREDUCED[operator](x)])


@pytest.mark.parametrize(
    "row",
    [
        node("LogSoftmax", X, axis=-3),
        node("Split", X, axis=2, outputs=2, num_outputs=2),
        node("ReduceSum", X, Constant(np.array([2]))),
        node("ReduceL2", X, Constant(np.array([-3]))),
        node("Squeeze", X, Constant(np.array([5]))),
        node("Unsqueeze", X, Constant(np.array([4]))),
        node("Concat", X, X, axis=2),
        node("LpNormalization", X, axis=2),
        node("LayerNormalization", X, Constant(np.ones(3, np.float32)), axis=2),
        node("Flatten", X, axis=3),
        node("Gather", X, Constant(np.array([0])), axis=2),
        node("Transpose", X, perm=[0, 2]),
    ],
    ids=str,
)
def test_an_axis_out_of_range_is_an_error_of_the_node(row, tmp_path):
    assert refused(row, tmp_path).rows["node"] == "node"


@pytest.mark.parametrize(
    "row",
    [node("ReduceSum", X, Constant(np.array([0, -2]))), node("Unsqueeze", X, Constant(np.array([0, -4])))],
    ids=str,
)
def test_an_axis_that_is_given_twice(row, tmp_path):
    assert refused(row, tmp_path).what == "an axis is given twice"

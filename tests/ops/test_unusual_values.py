"""What formulas say about NaN, infinities, zeros and values far from 0; the contract compares both modes."""

import math

import numpy as np
import pytest
from both_modes import MODES, step_of
from contract import computed
from tables import table
from unusual import lowered

from runner import ops
from runner.core.gradients import gradients
from runner.core.values import Parameter, Tensor
from runner.errors import NotDifferentiable, TrainingError
from runner.types import TensorType


@pytest.mark.parametrize("mode", MODES)
def test_a_sigmoid_is_precise_where_it_is_almost_0(mode):
    x = np.array([-100, -87, -50, -20, -18, -5, 0, 5, 20], np.float32)
    (found,) = step_of(ops.Sigmoid(), mode)(x)
    expected = [1 / (1 + math.exp(-value)) for value in x.tolist()]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-37)  # exp(100) is infinite in Float32


@pytest.mark.parametrize("mode", MODES)
@table("pool", [ops.MaxPool((2, 2), (2, 2)), ops.MaxPool((3, 3), (2, 2), "same"), ops.MaxPool((3, 2), (1, 1))])
def test_a_window_with_nan_has_no_maximum(mode, pool):
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    x[0, 1, 3, 4] = x[1, 2, 0, 7] = np.nan
    (found,) = step_of(pool, mode)(x)
    windows = pool.windows(x.shape)
    padded = np.pad(x, [(0, 0), (0, 0), windows.pads[:2], windows.pads[2:]], constant_values=-np.inf)
    for place in np.ndindex(found.shape):
        (row, column), (height, width), (down, right) = place[2:], windows.kernel, windows.strides
        window = padded[place[:2]][row * down : row * down + height, column * right : column * right + width]
        assert np.array_equal(found[place], max(window.flat, key=lambda v: (v != v, v)), equal_nan=True)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_relu_at_nan_is_nan(mode):
    x = np.array([[-1, 0, 2, np.nan, np.inf]], np.float32)

    def slope(value):
        return ops.ReluGrad()(Tensor(np.full_like(x, 3.0)), ops.ReLU()(value))

    (found,) = step_of(slope, mode)(x)
    assert np.array_equal(found, [[0, 0, 3, np.nan, 3]], equal_nan=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@table(
    ("x", "y", "by_x", "by_y"),
    [
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 2.0, 0.0, 0.0),
        (0.0, 1.0, 1.0, 0.0),
        (3.0, 0.0, 0.0, math.log(3.0)),
        (2.0, 3.0, 12.0, 8 * math.log(2.0)),
    ],
)
def test_slopes_of_a_power_at_0(mode, x, y, by_x, by_y):
    base, exponent = Parameter(np.float32(x), name="x"), Parameter(np.float32(y), name="y")

    def slopes(one):
        return tuple(gradients(ops.Pow()(base, exponent) * one, [base, exponent]))

    assert [float(v) for v in step_of(slopes, mode)(np.float32(1))] == pytest.approx([by_x, by_y], rel=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_second_derivative_that_is_not_implemented_is_an_error(mode):
    """It was wrong: the gradient reads the second output, whose own gradient was ignored."""
    logits = Parameter(np.array([[1, 2, -1]], np.float32), name="logits")
    labels = np.array([[0, 1, 0]], np.float32)

    def second(value):
        loss = ops.ReduceSum()(ops.SoftmaxCrossEntropyWithLogits()(logits, value)[0])
        (first,) = gradients(loss, [logits])
        return gradients(ops.ReduceSum()(first * first), [logits])[0]

    with pytest.raises(NotDifferentiable, match="output 1 of SoftmaxCrossEntropyWithLogits has no gradient"):
        step_of(second, mode)(labels)


@pytest.mark.parametrize("mode", MODES)
def test_positions_of_nan_come_first(mode):
    x = np.array([[1, np.nan, 3], [4, 9, 6], [np.nan, 0, np.nan]], np.float32)
    for op, expected in ((ops.Argmax(), [1, 1, 0]), (ops.Argmin(), [1, 0, 0])):
        (found,) = step_of(op, mode)(x)
        assert found.tolist() == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@table("label", [-1, -3, 3, 99, 2**31 - 1, -(2**31)])
def test_a_label_that_is_no_class_is_an_error(mode, dtype, label):
    """-1 was the last class, in both modes."""
    logits, labels = np.ones((4, 3), np.float32), np.array([0, 2, label, 1], dtype)
    with pytest.raises(TrainingError) as failed:
        step_of(ops.SparseSoftmaxCrossEntropyWithLogits(), mode)(logits, labels)
    if mode == "pynative":
        assert f"label {label} is not a class number, 0 to 2" in str(failed.value)


@table(
    ("op", "x", "y"),
    [
        (ops.BatchMatMul(), (2, 64, 0), (2, 0, 32)),
        (ops.BatchMatMul(True, False), (2, 0, 64), (2, 0, 32)),
        (ops.BatchMatMul(False, True), (2, 64, 0), (2, 32, 0)),
        (ops.MatMul(), (128, 0), (0, 32)),
        (ops.MatMul(True, True), (0, 128), (32, 0)),
    ],
)
def test_sums_without_terms_are_0(op, x, y):
    """onnxruntime left whatever the memory had."""
    operands = np.ones(x, np.float32), np.ones(y, np.float32)
    assert not computed(op, operands)[0].any()
    for _, run in lowered(op, tuple(map(TensorType.of, operands))):
        for _ in range(3):
            (found,) = run(operands)
            assert not found.any()
            found.fill(7.0)  # in memory that the next run may get


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@table("mode_of_pads", ["valid", "same"])
@table(("kernel", "strides"), [((2, 2), (2, 2)), ((3, 3), (3, 3)), ((3, 3), (2, 2)), ((2, 3), (1, 1))])
def test_the_gradient_of_a_pool_goes_to_the_first_element_that_is_not_below_the_maximum(
    mode, mode_of_pads, kernel, strides
):
    """It was zeros, NaN in the whole window, or at the last element, or at one in another channel; by mode and form."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(2, 3, 12, 12)).astype(np.float32)
    x[0, 0] = -np.inf
    x[0, 1, ::3, ::2] = np.nan
    x[1, 0, 4:, :5] = -np.inf
    x[1, 1, ::2, 1::4] = np.inf
    pool = ops.MaxPool(kernel, strides, mode_of_pads)
    windows = pool.windows(x.shape)
    dout = rng.normal(size=(2, 3, *windows.out)).astype(np.float32)
    dout[1, 2, 0, 0], dout[1, 2, 1, 1], dout[0, 2, 1, 0] = np.nan, np.inf, -np.inf
    expected, largest = np.zeros(x.shape), np.zeros(dout.shape)
    for place in np.ndindex(dout.shape):
        top, left = (place[2 + k] * strides[k] - windows.pads[2 * k] for k in (0, 1))
        places = [(*place[:2], top + i, left + j) for i, j in np.ndindex(*kernel)]
        inside = [p for p in places if 0 <= p[2] < 12 and 0 <= p[3] < 12]
        largest[place] = max((float(x[p]) for p in inside), key=lambda v: (v != v, v))
        expected[next(p for p in inside if not x[p] < largest[place])] += dout[place]
    parameter = Parameter(x, name="x")
    found = step_of(lambda u: (pool(parameter), gradients(ops.ReduceSum()(pool(parameter) * u), [parameter])[0]), mode)
    made, gradient = found(dout)
    assert np.array_equal(made, largest, equal_nan=True)
    assert np.allclose(gradient, expected, rtol=1e-6, atol=1e-6, equal_nan=True)

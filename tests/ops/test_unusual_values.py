"""NaN, infinities, zeros and values far from 0: both modes have the same results, and formulas say which."""

import math

import numpy as np
import pytest
from both_modes import MODES, step_of
from contract import FLOAT32, computed, ran
from operands import Sample
from samples import SAMPLES
from tables import check_rows, table

from runner import ops
from runner.core.autodiff import gradients
from runner.core.value import Parameter, Tensor
from runner.errors import NotDifferentiable, TrainingError
from runner.types import TensorType

KINDS = {
    "nan": (np.nan,),
    "inf": (np.inf,),
    "-inf": (-np.inf,),
    "zero": (0.0, -0.0),
    "far": (-20.0, 20.0, -80.0, 80.0, -100.0, 100.0),
}
# Where the modes differ, and why.
EXCEPTIONS = {
    ("MaxPool", "-inf"): "onnxruntime begins with the lowest finite number",
    ("BatchNorm", "inf"): "an infinite scale: (x - mean) * scale + bias, or x * slope + offset, which is inf - inf",
    ("BatchNorm", "-inf"): "as for inf",
}
# Operators whose operands depend on each other: unusual ones reach them through the operators that they belong to.
DEPENDENT = ("Grad", "BackpropInput", "BackpropFilter")


def unusual(array: np.ndarray, values: tuple[float, ...], seed: int) -> np.ndarray:
    """The array with every fifth element, at least one, replaced."""
    changed = array.copy()
    flat = changed.reshape(-1)
    places = np.random.default_rng(seed).choice(flat.size, max(1, flat.size // 5), replace=False)
    flat[places] = np.resize(np.array(values, array.dtype), len(places))
    return changed


def same(found: np.ndarray, expected: np.ndarray, magnitude: float) -> bool:
    """Whether the elements that are not finite are equal, and the others but for rounding."""
    if found.dtype.kind != "f":
        return np.array_equal(found, expected)
    finite = np.isfinite(expected)
    close = np.abs(found[finite] - expected[finite]) <= FLOAT32 * magnitude
    return np.array_equal(found[~finite], expected[~finite], equal_nan=True) and bool(np.all(close))


def check_both_modes(sample: Sample, kind: str) -> None:
    for k, operand in enumerate(sample.arrays):
        if operand.dtype.kind != "f" or not operand.size:
            continue
        changed = unusual(operand, KINDS[kind], k)
        arrays = tuple(changed if i == k else a for i, a in enumerate(sample.arrays))
        expected = computed(sample.op, arrays)
        sizes = [
            float(np.abs(a[np.isfinite(a)]).max(initial=1e-30)) for a in (*arrays, *expected) if a.dtype.kind == "f"
        ]
        for form in (None, *sample.op.forms(*map(TensorType.of, arrays))):
            made = ran(sample.op, arrays, form)
            pairs = zip(made, expected, strict=True)
            assert all(same(m, e, max(sizes)) for m, e in pairs), (kind, f"operand {k}", form and form.name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_both_modes_have_the_same_results(kind):
    rows = [s for s in SAMPLES if not s.op.name.endswith(DEPENDENT) and (s.op.name, kind) not in EXCEPTIONS]
    check_rows(rows, lambda sample: check_both_modes(sample, kind), name=lambda sample: sample.name)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_exceptions_are_needed():
    for name, kind in EXCEPTIONS:
        rows = [s for s in SAMPLES if s.op.name == name]
        with pytest.raises(BaseExceptionGroup):
            check_rows(rows, lambda sample, kind=kind: check_both_modes(sample, kind))


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

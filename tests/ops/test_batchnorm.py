"""BatchNorm against its formulas in float64, one channel at a time, and what it refuses."""

import numpy as np
import pytest
from contract import ran
from tables import table

from runner import dtype as dt, ops
from runner.core.operators import infer
from runner.errors import ShapeError
from runner.types import TensorType

SHAPES = pytest.mark.parametrize("shape", [(9, 3), (4, 3, 5, 2), (1, 3, 2, 2), (2, 3, 1, 1), (1, 3), (1, 3, 1, 1)])
RUNS = pytest.mark.parametrize("outputs", [lambda op, arrays: op.kernel(*arrays), ran], ids=["numpy", "onnxruntime"])
EPSILON, MOMENTUM = 1e-3, 0.3


def operands(shape: tuple[int, ...], mean: float = 2.0, deviation: float = 3.0) -> tuple[np.ndarray, ...]:
    """x, scale, bias, moving mean, moving variance."""
    rng = np.random.default_rng(11)
    x = rng.normal(mean, deviation, shape)
    made = x, rng.normal(size=3), rng.normal(size=3), rng.normal(size=3), rng.uniform(0.5, 2.0, 3)
    return tuple(a.astype(np.float32) for a in made)


def forward(is_training, x, scale, bias, moving_mean, moving_variance):
    """The five outputs, from the definition."""
    channels = np.moveaxis(x.astype(np.float64), 1, 0).reshape(x.shape[1], -1)
    y, rows = np.empty(x.shape), []
    for c, values in enumerate(channels):
        n = len(values)
        mean, variance = float(moving_mean[c]), float(moving_variance[c])
        moved = mean, variance
        if is_training:
            mean = values.sum() / n
            biased = ((values - mean) ** 2).sum() / n
            unbiased = biased * n / (n - 1) if n > 1 else biased
            moved = (
                (1 - MOMENTUM) * float(moving_mean[c]) + MOMENTUM * mean,
                (1 - MOMENTUM) * float(moving_variance[c]) + MOMENTUM * unbiased,
            )
            variance = biased
        inverse = 1 / np.sqrt(variance + EPSILON)
        y[:, c] = (x[:, c].astype(np.float64) - mean) * inverse * float(scale[c]) + float(bias[c])
        rows.append((*moved, mean, inverse))
    return y, *np.array(rows).T


def backward(is_training, dout, x, scale, mean, inverse):
    """dx through the Jacobian of the normalisation, element by element; dscale and dbias as sums."""
    dx, dscale, dbias = np.empty(x.shape), np.empty(len(scale)), np.empty(len(scale))
    for c in range(len(scale)):
        values, d = x[:, c].astype(np.float64).ravel(), dout[:, c].astype(np.float64).ravel()
        hat = (values - float(mean[c])) * float(inverse[c])
        n = len(hat)
        jacobian = np.eye(n)
        if is_training:
            jacobian -= (1 + np.outer(hat, hat)) / n
        dx[:, c] = (float(scale[c]) * float(inverse[c]) * (jacobian @ d)).reshape(x[:, c].shape)
        dscale[c], dbias[c] = (d * hat).sum(), d.sum()
    return dx, dscale, dbias


def far(a, b) -> float:
    return float(np.abs(a.astype(np.float64) - b).max()) / max(float(np.abs(b).max()), 1e-6)


@RUNS
@SHAPES
@table("is_training", [True, False])
def test_forward(shape, is_training, outputs):
    arrays = operands(shape)
    made = outputs(ops.BatchNorm(is_training, EPSILON, MOMENTUM), arrays)
    expected = forward(is_training, *arrays)
    assert [a.shape for a in made] == [shape, (3,), (3,), (3,), (3,)]
    assert max(far(a, b) for a, b in zip(made, expected, strict=True)) < 1e-6  # measured: 3e-7


@RUNS
@SHAPES
@table("is_training", [True, False])
def test_backward(shape, is_training, outputs):
    x, scale, *rest = operands(shape)
    dout = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    reserved = tuple(a.astype(np.float32) for a in forward(is_training, x, scale, *rest)[3:])
    made = outputs(ops.BatchNormGrad(is_training, EPSILON), (dout, x, scale, *reserved))
    expected = backward(is_training, dout, x, scale, *reserved)
    scale_of_dx = float(np.abs(dout).max())  # where dx cancels to nothing, it may keep the rounding of dout
    assert float(np.abs(made[0] - expected[0]).max()) <= 2e-6 * scale_of_dx * float(reserved[1].max())
    assert max(far(a, b) for a, b in zip(made[1:], expected[1:], strict=True)) < 2e-6


@RUNS
def test_a_mean_of_a_thousand_deviations_costs_few_digits(outputs):
    """The elements themselves have only four digits left of their deviation."""
    arrays = operands((16, 3, 8, 8), mean=1000.0, deviation=1.0)
    made = outputs(ops.BatchNorm(True, EPSILON, 1.0), arrays)
    expected = forward(True, *arrays)
    variance = expected[4] ** -2 - EPSILON
    assert far(made[0], expected[0]) < 1e-3
    assert far(made[4].astype(np.float64) ** -2 - EPSILON, variance) < 1e-3
    assert far(made[2], variance * 1024 / 1023) < 1e-3


def test_large_batches_are_worked_on_in_parts_with_the_same_result():
    """3 channels of 300 kB each: no two of them fit into one part."""
    arrays = operands((20, 3, 62, 62))
    op = ops.BatchNorm(True, EPSILON, MOMENTUM)
    made, expected = op.kernel(*arrays), forward(True, *arrays)
    assert max(far(a, b) for a, b in zip(made, expected, strict=True)) < 2e-6
    assert np.array_equal(made[0][:, 1], op.kernel(arrays[0][:, 1:2], *(a[1:2] for a in arrays[1:]))[0][:, 0])


@pytest.mark.parametrize("way", ["numpy", "rows", "plain"])
def test_equal_terms_do_not_round_to_one_side(way):
    """The gradient of a mean over a picture has 900 times the same number: one long sum was wrong by 5e-6 of itself."""
    x, scale, *rest = operands((32, 3, 30, 30))
    dout = np.broadcast_to(np.random.default_rng(2).normal(1, 0.1, (32, 3, 1, 1)) / 900, x.shape).astype(np.float32)
    reserved = tuple(a.astype(np.float32) for a in forward(True, x, scale, *rest)[3:])
    op, arrays = ops.BatchNormGrad(True, EPSILON), (dout, x, scale, *reserved)
    lowerings = {one.name: one for one in op.lowerings(*map(TensorType.of, arrays))}
    made = op.kernel(*arrays) if way == "numpy" else ran(op, arrays, lowerings[way])
    assert far(made[2], dout.astype(np.float64).sum((0, 2, 3))) < 5e-7


def test_the_result_lies_in_memory_as_the_operands_of_convolutions_do():
    x, *rest = operands((4, 3, 5, 2))
    turned = np.ascontiguousarray(x.transpose(1, 2, 3, 0)).transpose(3, 0, 1, 2)
    y = ops.BatchNorm(True).kernel(turned, *rest)[0]
    dx = ops.BatchNormGrad(True).kernel(turned, turned, *rest[:3])[0]
    assert y.transpose(1, 2, 3, 0).flags.c_contiguous
    assert dx.transpose(1, 2, 3, 0).flags.c_contiguous


def floats(*shape: int) -> TensorType:
    return TensorType(dt.float32, shape)


FOUR = (floats(3),) * 4


@pytest.mark.parametrize(
    ("op", "types", "what"),
    [
        (ops.BatchNorm(), (floats(2, 3, 4), *FOUR), "needs floats (N, C) or (N, C, H, W)"),
        (ops.BatchNorm(), (TensorType(dt.int32, (2, 3)), *FOUR), "needs floats (N, C) or (N, C, H, W)"),
        (ops.BatchNorm(), (floats(2, 4), *FOUR), "scale needs one element per channel of x"),
        (ops.BatchNorm(), (floats(2, 3), *FOUR[:3], floats()), "variance needs one element per channel of x"),
        (ops.BatchNormGrad(), (floats(2, 3), floats(2, 3), *FOUR[:2], floats(2)), "reserve_space_2 needs one element"),
        (ops.BatchNormGrad(), (floats(3, 3), floats(2, 3), *FOUR[:3]), "dout must have the type of x"),
    ],
)
def test_operands_that_do_not_fit(op, types, what):
    with pytest.raises(ShapeError) as caught:
        infer(op, types)
    assert caught.value.what.startswith(what)
    assert str(types[0]) in str(caught.value)


@pytest.mark.parametrize(
    ("make", "what", "allowed"),
    [
        (lambda: ops.BatchNorm(epsilon=0.0), "epsilon out of range", "above 0, at most 1"),
        (lambda: ops.BatchNormGrad(epsilon=1.5), "epsilon out of range", "above 0, at most 1"),
        (lambda: ops.BatchNorm(momentum=-0.1), "momentum out of range", "0 to 1"),
        (lambda: ops.BatchNorm(momentum=float("nan")), "momentum out of range", "0 to 1"),
    ],
)
def test_attributes_out_of_range(make, what, allowed):
    with pytest.raises(ShapeError) as caught:
        make()
    assert (caught.value.what, caught.value.rows["allowed"]) == (what, allowed)

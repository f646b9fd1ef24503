"""Metrics of regression against scikit-learn and exact sums, in whatever batches the samples come."""

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn import metrics as sk
from tables import table

from runner import Tensor, nn
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(6)
CUTS = [(60,), (16, 16, 16, 12), (1,) * 60, (59, 1)]
KINDS = {nn.MAE: sk.mean_absolute_error, nn.MSE: sk.mean_squared_error, nn.R2: sk.r2_score}


def over(cut, metric, output, target):
    edges = np.cumsum(cut)[:-1]
    for batch in zip(np.split(output, edges), np.split(target, edges), strict=True):
        metric.update(*batch)
    return metric.eval()


def per_element(kind):
    return kind() if kind is nn.R2 else kind(per_element=True)


def samples(*shape):
    target = RNG.standard_normal(shape).astype(np.float32)
    return (target + 0.3 * RNG.standard_normal(shape)).astype(np.float32), target


@table("cut", CUTS)
@table("kind", KINDS)
@table("shape", [(60,), (60, 1), (60, 3)])
def test_errors_and_shares(shape, kind, cut):
    output, target = samples(*shape)
    made = over(cut, per_element(kind), output, target)
    assert type(made) is float
    assert made == pytest.approx(KINDS[kind](target.astype(np.float64), output.astype(np.float64)), rel=1e-12)


@table("kind", KINDS)
@table("cut", CUTS)
def test_axes_of_length_one_do_not_make_pairs(cut, kind):
    output, target = samples(60)
    expected = over((60,), kind(), output, target)
    for a, b in (((60, 1), (60,)), ((60,), (60, 1)), ((60, 1, 1), (60, 1))):
        assert over(cut, kind(), output.reshape(a), target.reshape(b)) == pytest.approx(expected, rel=1e-12)


@table("kind", KINDS)
def test_elements_of_any_shape(kind):
    output, target = samples(60, 2, 3)
    expected = KINDS[kind](target.reshape(60, 6).astype(np.float64), output.reshape(60, 6).astype(np.float64))
    assert over((50, 10), per_element(kind), output, target) == pytest.approx(expected, rel=1e-12)


@table("cut", CUTS)
@table("kind", [nn.MAE, nn.MSE])
@table("convert", [Tensor, np.ndarray.tolist])
def test_the_errors_of_a_sample_are_summed(convert, kind, cut):
    """As in MindSpore r1.2, which divides by the number of samples."""
    output, target = samples(60, 2, 3)
    errors = np.abs(output.astype(np.float64) - target) ** (1 if kind is nn.MAE else 2)
    metric = kind()
    for batch in zip(*(np.split(part, np.cumsum(cut)[:-1]) for part in (output, target)), strict=True):
        metric.update(*map(convert, batch))
    assert metric.eval() == pytest.approx(errors.sum() / 60, rel=1e-12)


@table("cut", CUTS)
@table("offset", [0.0, 1e6, -1e9, 1e12])
def test_an_offset_costs_no_digits(offset, cut):
    """Against exact fractions; the sum of squares less the square of the sum would have no digit left at 1e9."""
    target = RNG.standard_normal(60) + offset
    output = target + 0.5 * RNG.standard_normal(60)
    exact = [Fraction(value) for value in target.tolist()]
    mean = sum(exact) / 60
    deviation = sum((value - mean) ** 2 for value in exact)
    error = sum((Fraction(a) - b) ** 2 for a, b in zip(output.tolist(), exact, strict=True))
    assert over(cut, nn.R2(), output, target) == pytest.approx(
        float(1 - error / deviation), rel=1e-10 + abs(offset) * 1e-15
    )


def test_many_small_errors_are_not_lost():
    metric = nn.MSE()
    for _ in range(20_000):
        metric.update(np.full(1, 0.1, np.float32), np.zeros(1, np.float32))
    assert metric.eval() == pytest.approx(float(np.float32(0.1)) ** 2, rel=1e-9)


@table(
    ("output", "target", "expected"),
    [
        ([2.0, 2.0], [2.0, 2.0], 1.0),
        ([2.0, 2.5], [2.0, 2.0], 0.0),
        ([[1, 0], [2, 0], [3, 0]], [[1, 5], [2, 5], [3, 5]], 0.5),
        ([0.1] * 7, [0.1] * 7, 1.0),  # the mean of seven is not exactly 0.1
        ([0.2] * 7, [0.1] * 7, 0.0),
        ([7.0], [7.0], 1.0),
        ([7.0], [8.0], 0.0),
    ],
)
def test_targets_that_do_not_vary(output, target, expected):
    output, target = np.array(output, np.float32), np.array(target, np.float32)
    assert over((len(target),), nn.R2(), output, target) == expected
    assert over((1,) * len(target), nn.R2(), output, target) == expected
    if len(target) in (2, 3):
        assert sk.r2_score(target, output) == expected


@table("bad", [np.nan, np.inf])
@table("kind", KINDS)
@table("equal", [False, True])
@table("side", [0, 1])
def test_what_is_not_finite_is_not_hidden(side, equal, kind, bad):
    pair = samples(60)
    if equal:
        pair[1][:] = 7
    pair[side][3] = bad
    with np.errstate(invalid="ignore"):
        made = over((30, 30), kind(), *pair)
    assert not math.isfinite(made)


@table("kind", KINDS)
def test_clear_forgets(kind):
    output, target = samples(60)
    metric = per_element(kind)
    metric.update(output + 1, target)
    metric.clear()
    with pytest.raises(ConfigError) as caught:
        metric.eval()
    assert str(caught.value) == f"ConfigError: a metric without data\n  metric  {kind.__name__}"
    assert over((60,), metric, *samples(60, 3)) == pytest.approx(over((60,), kind(), output, target), rel=0.5)


@table("kind", KINDS)
@table(("output", "target"), [((4, 3), (4,)), ((4,), (3,)), ((4, 3), (4, 1)), ((4,), ())])
def test_shapes_that_do_not_fit(output, target, kind):
    with pytest.raises(ShapeError) as caught:
        kind().update(np.zeros(output), np.zeros(target))
    text = (
        f"a metric cannot compare these shapes\n  metric   {kind.__name__}\n  output   {output}\n  target   {target}\n"
    )
    assert str(caught.value) == f"ShapeError: {text}  allowed  equal shapes, up to axes of length 1"

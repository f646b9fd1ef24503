"""Curves and axes: what is left out hides nothing."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from runner.report.html.charts import (
    Scale,
    axis_around,
    axis_of_key,
    downsample,
    position,
    running_mean,
    spread,
    tick_label,
)

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400)


@given(VALUES, st.integers(2, 50), st.integers(1, 9))
def test_every_column_keeps_its_lowest_and_highest(values, columns, stride):
    xs, ys = np.arange(len(values), dtype=np.int64) * stride + 1, np.array(values)
    kept = downsample(xs, ys, columns)
    given_points = list(zip(xs.tolist(), values, strict=True))
    assert set(kept) <= set(given_points)
    assert [x for x, _ in kept] == sorted({x for x, _ in kept})
    width = max(1, (len(values) - 1) * stride)
    seen: dict[int, list[float]] = {}
    left: dict[int, list[float]] = {}
    for points, into in ((given_points, seen), (kept, left)):
        for x, y in points:
            into.setdefault(min(columns - 1, int((x - 1) * (columns / width))), []).append(y)
    assert {c: (min(v), max(v)) for c, v in seen.items()} == {c: (min(v), max(v)) for c, v in left.items()}
    assert len(kept) <= 2 * columns + 2
    assert kept[0] == given_points[0]
    assert kept[-1] == given_points[-1]


def test_few_points_all_stay():
    assert downsample(np.array([1, 2, 9]), np.array([3.0, 1.0, 2.0]), 100) == [(1.0, 3.0), (2.0, 1.0), (9.0, 2.0)]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(1, 70))
def test_running_means(values, window):
    expected = [
        sum(values[max(0, k - window + 1) : k + 1]) / len(values[max(0, k - window + 1) : k + 1])
        for k in range(len(values))
    ]
    np.testing.assert_allclose(running_mean(np.array(values), window), expected, rtol=1e-9, atol=1e-9)


def test_a_spread_is_over_the_steps_that_all_have():
    curves = [(np.array([1, 2, 3]), np.array([1.0, 2.0, 3.0])), (np.array([2, 3, 4]), np.array([4.0, 7.0, 9.0]))]
    found = spread(curves)
    assert found.steps.tolist() == [2, 3]
    assert found.mean.tolist() == [3.0, 5.0]
    np.testing.assert_allclose(found.deviation, [math.sqrt(2), math.sqrt(8)])


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20), st.booleans())
def test_axes_hold_all_values_and_ticks_are_on_them(values, zero):
    scale = axis_around(values, zero=zero)
    assert all(-1e-9 <= scale.fraction(value) <= 1 + 1e-9 for value in values)
    ticks = [value for value, _ in scale.ticks()]
    assert ticks == sorted(ticks)
    assert len(ticks) <= 9
    assert all(-1e-6 <= scale.fraction(tick) <= 1 + 1e-6 for tick in ticks)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_logarithmic_axes(values):
    scale = axis_around(values, is_log=True)
    assert all(-1e-9 <= scale.fraction(value) <= 1 + 1e-9 for value in values)
    assert scale.fraction(math.sqrt(scale.low * scale.high)) == pytest.approx(0.5)
    assert all(scale.low <= value <= scale.high for value, _ in scale.ticks())


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (Scale(0, 1), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (Scale(0, 2640), ["0", "500", "1000", "1500", "2000", "2500"]),
        (Scale(0.0009, 3, True), ["0.001", "0.01", "0.1", "1"]),
        (Scale(0.2, 3, True), ["0.2", "0.5", "1", "2"]),
    ],
)
def test_ticks_are_round(scale, labels):
    assert [text for _, text in scale.ticks()] == labels


def test_axes_of_keys():
    assert axis_of_key([0.001, 0.1]).is_log
    assert not axis_of_key([32, 64]).is_log
    names = axis_of_key(["adam", "sgd", "adam"])
    assert (names.categories, position(names, "sgd")) == (("adam", "sgd"), 1.0)
    assert axis_of_key([True, False]).categories == ("True", "False")


def test_labels():
    assert [tick_label(value) for value in (1e-6, 0.5, 9999.0, 12000.0, 2.5e7)] == ["1e-6", "0.5", "9999", "12k", "25M"]

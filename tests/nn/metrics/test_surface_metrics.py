"""Distances between surfaces against loops over all pairs of pixels, and numbers that MindSpore 2.10 computed."""

import itertools
import math

import numpy as np
import pytest
from tables import table

from runner import Tensor, nn
from runner.errors import ConfigError
from runner.nn.metrics import images

RNG = np.random.default_rng(3)
IMAGES = {
    "plane": (RNG.integers(0, 3, (9, 8)), RNG.integers(0, 3, (9, 8))),
    "space": (RNG.integers(0, 2, (5, 4, 6)), RNG.integers(0, 2, (5, 4, 6))),
    "boxes": (np.pad(np.ones((3, 6)), 2), np.pad(np.ones((5, 4)), ((1, 1), (2, 4)))),
    "line": (RNG.integers(0, 2, 20), RNG.integers(0, 2, 20)),
}
LENGTHS = {
    "euclidean": lambda steps: math.sqrt(sum(step * step for step in steps)),
    "chessboard": max,
    "taxicab": sum,
}


def surface(region):
    points = set(itertools.product(*map(range, region.shape)))
    inside = {point for point in points if region[point]}
    steps = [tuple(sign * (axis == k) for k in range(region.ndim)) for axis in range(region.ndim) for sign in (-1, 1)]
    return [p for p in inside if any(tuple(map(sum, zip(p, step, strict=True))) not in inside for step in steps)]


def distances(length, predicted, true):
    found = []
    for point in surface(predicted):
        found.append(min(length([abs(a - b) for a, b in zip(point, other, strict=True)]) for other in surface(true)))
    return found


@pytest.fixture(params=[2**20, 7])
def pairs(request, monkeypatch):
    monkeypatch.setattr(images, "MAX_PAIRS", request.param)


@table("images", IMAGES)
@table("distance", LENGTHS)
@table("convert", [np.asarray, Tensor, np.ndarray.tolist])
def test_distances_of_all_pairs(convert, distance, images, pairs):
    a, b = (convert(image) for image in IMAGES[images])
    there, back = (
        distances(LENGTHS[distance], one == 1, other == 1) for one, other in (IMAGES[images], IMAGES[images][::-1])
    )
    mean, square = np.mean, lambda values: np.mean(np.square(values))
    expected = {
        nn.HausdorffDistance(distance): max(*there, *back),
        nn.HausdorffDistance(distance, directed=True): max(there),
        nn.HausdorffDistance(distance, 75.0): max(np.percentile(there, 75), np.percentile(back, 75)),
        nn.HausdorffDistance(distance, crop=False): max(*there, *back),
        nn.MeanSurfaceDistance(False, distance): mean(there),
        nn.MeanSurfaceDistance(True, distance): (mean(there) + mean(back)) / 2,
        nn.RootMeanSquareDistance(False, distance): square(there),
        nn.RootMeanSquareDistance(True, distance): math.sqrt((square(there) + square(back)) / 2),
    }
    for metric, value in expected.items():
        assert metric(a, b, 1) == pytest.approx(value, rel=1e-12), type(metric)
        regions = np.asarray(IMAGES[images][0]) == 1, np.asarray(IMAGES[images][1]) == 1
        assert metric(*regions, 1) == pytest.approx(value, rel=1e-12)


# From MindSpore 2.10, for the label 0; by whether directed, not symmetric.
EXAMPLE = np.array([[3, 0, 1], [1, 3, 0], [1, 0, 2]]), np.array([[0, 2, 1], [1, 2, 1], [0, 0, 1]])
OF_MINDSPORE = {
    "euclidean": (1.4142135623730951, 0.8047378541243649, 0.7357022603955158, 1.0, 0.9128709291752769),
    "chessboard": (1, 0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 0.816496580927726),
    "taxicab": (2, 1.0, 0.8333333333333333, 1.6666666666666667, 1.0801234497346435),
}


@table("distance", OF_MINDSPORE)
def test_the_example_of_mindspore(distance):
    kinds = nn.MeanSurfaceDistance, nn.RootMeanSquareDistance
    metrics = [nn.HausdorffDistance(distance), *(kind(on, distance) for kind in kinds for on in (False, True))]
    made = [metric(Tensor(EXAMPLE[0]), Tensor(EXAMPLE[1]), 0) for metric in metrics]
    assert made == pytest.approx(OF_MINDSPORE[distance], rel=1e-12)


def test_a_box_of_one_row_loses_its_axis():
    """As in MindSpore: of a single row only the ends are the surface, with `crop`."""
    row = np.pad(np.ones((1, 7)), 2), np.pad(np.ones((1, 3)), ((2, 2), (4, 4)))
    assert nn.HausdorffDistance(percentile=50.0, directed=True)(*row, 1) == 2
    assert nn.HausdorffDistance(percentile=50.0, directed=True, crop=False)(*row, 1) == 1


@table("kind", [nn.HausdorffDistance, nn.MeanSurfaceDistance, nn.RootMeanSquareDistance])
def test_an_empty_surface_is_infinitely_far(kind):
    empty, full = np.zeros((4, 4)), np.pad(np.ones((2, 2)), 1)
    assert kind()(full, empty, 1) == kind()(empty, full, 1) == math.inf


@table(
    ("make", "text"),
    [
        (lambda: nn.HausdorffDistance("euclid"), "distance_metric is not one of the choices\n  given    'euclid'"),
        (lambda: nn.HausdorffDistance(percentile=101.0), "percentile is out of range\n  given    101.0"),
        (lambda: nn.MeanSurfaceDistance(2), "symmetric must be True or False"),
        (lambda: nn.MeanSurfaceDistance().eval(), "a metric without data\n  metric  MeanSurfaceDistance"),
        (
            lambda: nn.MeanSurfaceDistance()(*EXAMPLE, 7),
            "a region that is in neither image\n  metric  Mean",
        ),
        (lambda: nn.MeanSurfaceDistance()(*EXAMPLE, "1"), "the label of a region is no number\n  given  '1'"),
        (lambda: nn.MeanSurfaceDistance()(EXAMPLE[0], [1], 1), "a metric cannot compare these shapes"),
    ],
)
def test_what_makes_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)

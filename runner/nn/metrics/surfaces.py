"""Distances between the surfaces of a predicted and a true region of an image, of any number of axes."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from runner.errors import ConfigError
from runner.nn.metrics.base import Metric, rearrange_inputs, require_data, require_shapes
from runner.validation.arguments import flag, one_of

__all__ = ["HausdorffDistance", "MeanSurfaceDistance", "RootMeanSquareDistance"]

DistanceMetric = Literal["euclidean", "chessboard", "taxicab"]
DISTANCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of differences (..., D)
    "euclidean": lambda steps: np.sqrt(np.square(steps).sum(-1)),
    "chessboard": lambda steps: np.abs(steps).max(-1),
    "taxicab": lambda steps: np.abs(steps).sum(-1),
}
MAX_PAIRS = 2**20  # of points whose distances are computed at once


class SurfaceMetric(Metric):
    """Base: `update(output, target, label)` takes two images of one shape, and the value of the pixels of the region.

    An image of bools is the region itself. The surface are the pixels of the region with a neighbour along an axis
    that is outside of it, or of the image. The value is that of the last update. Raises ShapeError for other shapes,
    ConfigError for a label that stands in neither image.
    """

    def __init__(self, distance_metric: DistanceMetric) -> None:
        one_of({}, DISTANCES, distance_metric=distance_metric)
        self.distance_metric = distance_metric
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.predicted = self.true = np.zeros((0, 1), np.int64)  # coordinates (K, D) of the surfaces

    @rearrange_inputs
    def update(self, output: Any, target: Any, label: float) -> None:
        images = self._convert_data(output), self._convert_data(target)
        fits = images[0].shape == images[1].shape and images[0].size > 0
        require_shapes(self, fits, *images, "equal shapes with elements")
        if isinstance(label, bool) or not isinstance(label, int | float):
            raise ConfigError("the label of a region is no number", given=repr(label))
        if not any((image == label).any() for image in images):
            raise ConfigError("a region that is in neither image", metric=type(self).__name__, label=label)
        regions = [image if image.dtype == bool else image == label for image in images]
        self.predicted, self.true = (np.argwhere(_surface(region)) for region in self.regions(*regions))
        self.count = 1

    def regions(self, predicted: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The regions, bool of one shape, whose surfaces are compared."""
        return predicted, true

    def distances(self, points: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The distance of each point (K, D) to the nearest of the others: (K,), infinite if there are none."""
        if not len(others):
            return np.full(len(points), np.inf)
        rows = max(1, MAX_PAIRS // len(others))
        steps = (points[start : start + rows, None] - others for start in range(0, len(points), rows))
        nearest = [DISTANCES[self.distance_metric](one).min(1) for one in steps]
        return np.concatenate([np.zeros(0), *nearest])


class HausdorffDistance(SurfaceMetric):
    """The largest distance of a point of one surface to the other surface.

    With `directed` only from the predicted one to the true one, otherwise in both directions. `percentile` (0 to 100)
    takes that percentile of the distances in place of the largest; None and 0 are the largest. `crop` cuts both images
    to the smallest box around both regions, without axes along which it has one pixel. Infinite for an empty surface.
    """

    def __init__(
        self,
        distance_metric: DistanceMetric = "euclidean",
        percentile: float | None = None,
        directed: bool = False,
        crop: bool = True,
    ) -> None:
        if percentile is not None and (isinstance(percentile, bool) or not 0 <= percentile <= 100):
            raise ConfigError("percentile is out of range", given=repr(percentile), allowed="0 to 100")
        flag({}, directed=directed, crop=crop)
        self.percentile, self.directed, self.crop = percentile, directed, crop
        super().__init__(distance_metric)

    def regions(self, predicted: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = np.argwhere(predicted | true)
        if not self.crop or not len(places):
            return predicted, true
        box = tuple(slice(*ends) for ends in zip(places.min(0), places.max(0) + 1, strict=True))
        return np.atleast_1d(predicted[box].squeeze()), np.atleast_1d(true[box].squeeze())

    def eval(self) -> float:
        require_data(self, self.count)
        directed = self._directed(self.predicted, self.true)
        return directed if self.directed else max(directed, self._directed(self.true, self.predicted))

    def _directed(self, points: np.ndarray, others: np.ndarray) -> float:
        found = self.distances(points, others)
        if not len(found):
            return float("inf")
        return float(np.percentile(found, self.percentile) if self.percentile else found.max())


class MeanSurfaceDistance(SurfaceMetric):
    """The mean distance of the points of the predicted surface to the true one.

    With `symmetric` the mean of this and of that from the true one to the predicted one. Infinite for an empty surface.
    """

    def __init__(self, symmetric: bool = False, distance_metric: DistanceMetric = "euclidean") -> None:
        flag({}, symmetric=symmetric)
        self.symmetric = symmetric
        super().__init__(distance_metric)

    def eval(self) -> float:
        there, back = self.means(1)
        return (there + back) / 2 if self.symmetric else there

    def means(self, power: int) -> list[float]:
        """The means of powers of the distances from the predicted to the true surface, and back."""
        require_data(self, self.count)
        both = (self.predicted, self.true), (self.true, self.predicted)
        found = [self.distances(*pair) ** power for pair in both]
        return [float(distances.mean()) if len(distances) else float("inf") for distances in found]


class RootMeanSquareDistance(MeanSurfaceDistance):
    """The mean squared distance of the points of the predicted surface to the true one; as in MindSpore r1.2, its root
    is not taken.

    With `symmetric` the root of the mean of this and of that from the true one to the predicted one. Infinite for an
    empty surface.
    """

    def eval(self) -> float:
        there, back = self.means(2)
        return float(np.sqrt((there + back) / 2)) if self.symmetric else there


def _surface(region: np.ndarray) -> np.ndarray:
    """The pixels of a region with a neighbour outside of it: bool, as the region."""
    padded = np.pad(region, 1)
    inside = region.copy()
    for axis in range(region.ndim):
        for step in (-1, 1):
            shifted = np.roll(padded, step, axis)
            inside &= shifted[tuple(slice(1, -1) for _ in range(region.ndim))]
    surface: np.ndarray = region & ~inside
    return surface

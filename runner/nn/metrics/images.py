"""Metrics of images: how well a predicted region fits the true one, and which parts of an image a class depends on.

`HausdorffDistance`, `MeanSurfaceDistance` and `RootMeanSquareDistance` are between the surfaces of two regions of any
number of axes, `Dice` is the share that they have in common; `OcclusionSensitivity` covers parts of an image.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.nn.metrics.base import Mean, Metric, of_arrays, rearrange_inputs, require_data, require_shapes
from runner.validation.arguments import above, flag, one_of, whole

# Distances between surfaces.

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


class MeansOfDistances(SurfaceMetric):
    """Base: means of powers of the distances of the points of the predicted surface to the true one.

    `symmetric`: the distances of the true one to the predicted one count too. Infinite for an empty surface.
    """

    def __init__(self, symmetric: bool = False, distance_metric: DistanceMetric = "euclidean") -> None:
        flag({}, symmetric=symmetric)
        self.symmetric = symmetric
        super().__init__(distance_metric)

    def means(self, power: int) -> list[float]:
        """The means of powers of the distances from the predicted to the true surface, and back."""
        require_data(self, self.count)
        both = (self.predicted, self.true), (self.true, self.predicted)
        found = [self.distances(*pair) ** power for pair in both]
        return [float(distances.mean()) if len(distances) else float("inf") for distances in found]


class MeanSurfaceDistance(MeansOfDistances):
    """The mean distance of the points of the predicted surface to the true one.

    With `symmetric` the mean of this and of that from the true one to the predicted one. Infinite for an empty surface.
    """

    def eval(self) -> float:
        there, back = self.means(1)
        return (there + back) / 2 if self.symmetric else there


class RootMeanSquareDistance(MeansOfDistances):
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


# The Dice coefficient of two regions.


class Dice(Mean):
    """The Dice coefficients 2 sum(output * target) / (sum(output²) + sum(target²) + `smooth`) of all batches, summed,
    over the number of samples.

    Outputs and targets have one shape (N, ...). As in MindSpore r1.2, each batch has one coefficient but is divided by
    all of its samples: with batches of one sample the value is the mean coefficient.
    """

    direction = "maximize"

    def __init__(self, smooth: float = 1e-5) -> None:
        above({}, 0, smooth=smooth)
        self.smooth = smooth
        super().__init__()

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        require_shapes(self, output.ndim > 0 and output.shape == target.shape, output, target, "equal shapes (N, ...)")
        predicted, true = output.ravel().astype(np.float64), target.ravel().astype(np.float64)
        self.total += float(2 * (predicted @ true) / (predicted @ predicted + true @ true + self.smooth))
        self.count += len(target)


# Which parts of an image the score of a class depends on.


class OcclusionSensitivity(Metric):
    """How much the score of a class falls when a part of an image is covered: an array, large where it matters.

    `update(network, image, label)` takes a cell from (N, ...) to scores (N, C), one image (1, ...), and a class number.
    Around each element of the image, elements at a distance of up to `margin` (one number, or one per axis) become
    `pad_val`: from `margin` before it to `margin` - 1 after it. The network computes `n_batch` such images at once.
    `b_box` [first, last, first, last, ...] limits the elements along each axis; a negative `last` is the end. The value
    is that of the last update, without axes of length 1.
    """

    is_scalar = False

    def __init__(
        self,
        pad_val: float = 0.0,
        margin: int | Sequence[int] = 2,
        n_batch: int = 128,
        b_box: Sequence[int] | None = None,
    ) -> None:
        for one in [margin] if isinstance(margin, int) else margin:
            whole({}, 0, margin=one)
        whole({}, 1, n_batch=n_batch)
        self.pad_val, self.margin, self.n_batch, self.b_box = pad_val, margin, n_batch, b_box
        self.clear()

    def clear(self) -> None:
        self.value, self.count = np.zeros(0), 0

    @rearrange_inputs
    def update(self, network: Cell, image: Any, label: Any) -> None:
        if not isinstance(network, Cell):
            raise ConfigError("the first input is no network", given=type(network).__name__, allowed="a Cell")
        pixels, number = self._convert_data(image), self._convert_data(label)
        if len(pixels) != 1 or number.size != 1:
            raise ShapeError("one image and one label", image=pixels.shape, label=number.shape)
        margins = [self.margin] * (pixels.ndim - 1) if isinstance(self.margin, int) else list(self.margin)
        if len(margins) != pixels.ndim - 1:
            raise ConfigError("margin needs a number for each axis", given=margins, image=pixels.shape)
        first, last = self._box(pixels.shape[1:])
        places = [np.add(place, first) for place in np.ndindex(*np.add(np.subtract(last, first), 1))]
        scores = []
        for start in range(0, len(places), self.n_batch):
            covered = [self._covered(pixels, place, margins) for place in places[start : start + self.n_batch]]
            scores.append(_scores(network, np.concatenate(covered), int(number.item())))
        before = _scores(network, pixels, int(number.item()))
        shape = tuple(np.add(np.subtract(last, first), 1))
        self.value, self.count = np.squeeze(before - np.concatenate(scores).reshape(shape)), 1

    def eval(self) -> np.ndarray:
        require_data(self, self.count)
        return self.value

    def _covered(self, image: np.ndarray, place: np.ndarray, margins: Sequence[int]) -> np.ndarray:
        """The image with covered elements around a place."""
        ends = zip(place, margins, strict=True)
        around = tuple(slice(max(0, at - margin), at + margin) for at, margin in ends)
        covered = image.copy()
        covered[(slice(None), *around)] = self.pad_val
        return covered

    def _box(self, shape: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """The first and the last element along each axis. Raises ConfigError."""
        if self.b_box is None:
            return [0] * len(shape), [length - 1 for length in shape]
        rows = {"given": self.b_box, "image": tuple(shape)}
        if len(self.b_box) != 2 * len(shape):
            raise ConfigError("b_box needs two numbers for each axis", **rows)
        first = [max(0, one) for one in self.b_box[::2]]
        last = [length - 1 if one < 0 else one for one, length in zip(self.b_box[1::2], shape, strict=True)]
        if not all(start <= end < length for start, end, length in zip(first, last, shape, strict=True)):
            raise ConfigError("b_box is not in the image", **rows)
        return first, last


def _scores(network: Cell, images: np.ndarray, label: int) -> np.ndarray:
    """The scores (N,) that a network gives to a class."""
    scores: np.ndarray = network(Tensor(images)).asnumpy()[:, label]
    return scores

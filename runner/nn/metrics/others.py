"""Distances between the surfaces of a predicted and a true region of an image, of any number of axes."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.nn.metrics.base import (
    Mean,
    Metric,
    of_arrays,
    rearrange_inputs,
    require_data,
    require_shapes,
    without_units,
)
from runner.validation.arguments import above, flag, one_of, whole

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


# Metrics of text: the perplexity of predictions, and the BLEU score of translations.

SMALLEST = 1e-10  # of the probabilities of a perplexity


class Perplexity(Metric):
    """exp of the mean of -log of the probability that the outputs (N, ..., C) give to the targets (N, ...).

    Outputs are probabilities; those below 1e-10 count as 1e-10. Targets that are `ignore_label` do not count. Raises
    ShapeError unless there is one target for each distribution, ConfigError without any that counts.
    """

    def __init__(self, ignore_label: int | None = None) -> None:
        if ignore_label is not None:
            whole({}, -(2**63), ignore_label=ignore_label)
        self.ignore_label = ignore_label
        self.clear()

    def clear(self) -> None:
        self.total, self.count = 0.0, 0

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        fits = output.ndim > 1 and target.size * output.shape[-1] == output.size
        require_shapes(self, fits, output, target, "class numbers (N, ...) for probabilities (N, ..., C)")
        numbers = target.ravel().astype(np.int64)
        rows = output.reshape(len(numbers), -1)
        if self.ignore_label is not None:
            counts = numbers != self.ignore_label
            numbers, rows = numbers[counts], rows[counts]
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < rows.shape[1]:
            raise ShapeError("a target is no class", given=f"{numbers.min()} to {numbers.max()}", classes=rows.shape[1])
        likely = rows[np.arange(len(numbers)), numbers].astype(np.float64)
        self.total -= float(np.log(np.maximum(likely, SMALLEST)).sum())
        self.count += len(numbers)

    def eval(self) -> float:
        require_data(self, self.count)
        return math.exp(self.total / self.count)


class BleuScore(Metric):
    """BLEU: how many runs of up to `n_gram` words (1 to 4) of translations stand in references.

    `update(candidates, references)` takes N translations, each a list of words, and for each a list of references, each
    a list of words. The value is the geometric mean of the shares of runs of each length, times exp(1 - r / c) if the
    translations have c words, not more than the r of the references whose lengths are closest. Without a common run of
    one of the lengths it is 0. `smooth` adds 1 to the numbers of runs and of common runs.
    """

    direction = "maximize"

    def __init__(self, n_gram: int = 4, smooth: bool = False) -> None:
        whole({}, 1, 4, n_gram=n_gram)
        flag({}, smooth=smooth)
        self.n_gram, self.smooth = n_gram, smooth
        self.clear()

    def clear(self) -> None:
        self.common, self.all = np.zeros(self.n_gram), np.zeros(self.n_gram)  # runs by length
        self.words = self.reference_words = self.count = 0

    @rearrange_inputs
    def update(self, candidates: Sequence[Any], references: Sequence[Sequence[Any]]) -> None:
        if len(candidates) != len(references):
            rows = {"candidates": len(candidates), "references": len(references)}
            raise ShapeError("every translation needs its references", metric=type(self).__name__, **rows)
        for words, texts in zip(candidates, references, strict=True):
            self.count += 1
            self.words += len(words)
            self.reference_words += min((len(text) for text in texts), key=lambda length: abs(length - len(words)))
            for place in range(self.n_gram):
                runs, known = _runs(words, place + 1), Counter[tuple[Any, ...]]()
                for text in texts:
                    known |= _runs(text, place + 1)
                self.common[place] += (runs & known).total()
                self.all[place] += runs.total()

    def eval(self) -> float:
        require_data(self, self.count)
        if not self.common.all():
            return 0.0
        shares = (self.common + self.smooth) / (self.all + self.smooth)
        brevity = 1.0 if self.words > self.reference_words else math.exp(1 - self.reference_words / self.words)
        return brevity * math.exp(np.log(shares).mean())


def _runs(words: Sequence[Any], length: int) -> Counter[tuple[Any, ...]]:
    """How often each run of so many words occurs."""
    return Counter(tuple(words[start : start + length]) for start in range(len(words) - length + 1))


# Metrics of regression: absolute and squared errors, and the share of variance explained (R²), in Float64.

_ALLOWED = "equal shapes, up to axes of length 1"


class SummedErrors(Mean):
    """Base of errors of outputs and targets of equal shape; (N,) fits (N, 1).

    The errors of the elements of a sample are summed, as in MindSpore r1.2, or with `per_element` averaged.
    """

    def __init__(self, per_element: bool = False) -> None:
        flag({}, per_element=per_element)
        self.per_element = per_element
        super().__init__()

    def error(self, difference: np.ndarray) -> np.ndarray:
        """The errors (N, K) of differences (N, K)."""
        raise NotImplementedError

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        output, target = _columns(self, output, target)
        self.total += float(self.error(output - target).sum())
        self.count += target.size if self.per_element else len(target)


class MAE(SummedErrors):
    """Mean over samples of absolute errors; see `SummedErrors`."""

    def error(self, difference: np.ndarray) -> np.ndarray:
        error: np.ndarray = np.abs(difference)
        return error


class MSE(SummedErrors):
    """Mean over samples of squared errors; see `SummedErrors`."""

    def error(self, difference: np.ndarray) -> np.ndarray:
        error: np.ndarray = np.square(difference)
        return error


class R2(Metric):
    """Coefficient of determination: 1 - squared error / squared deviation of the targets from their mean.

    1 is perfect, 0 as good as the mean of all targets. Targets with several elements per sample give the mean of the
    coefficients of the elements. For an element whose targets are all equal it is 1 without errors, otherwise 0.
    Computed while batches pass (Chan, Golub and LeVeque), so a large common offset of the targets costs no digits.
    """

    direction = "maximize"

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.first = self.mean = self.deviation = self.error = np.zeros(0)

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        output, target = _columns(self, output, target)
        if not self.count:
            self.first, *zeros = target[0], *(np.zeros(target.shape[1]) for _ in range(3))
            self.mean, self.deviation, self.error = zeros
        count, total = len(target), self.count + len(target)
        values = target - self.first  # so that targets that are all equal deviate by exactly 0
        mean = values.mean(0)
        step = mean - self.mean
        within = np.square(values - mean).sum(0)
        self.deviation = self.deviation + within + np.square(step) * (self.count * count / total)
        self.mean = self.mean + step * (count / total)
        self.error = self.error + np.square(output - target).sum(0)
        self.count = total

    def eval(self) -> float:
        require_data(self, self.count)
        # Where targets do not vary: 0 without errors, otherwise 1, but what is not finite remains.
        constant = np.where(np.isfinite(self.error), np.sign(self.error), self.error)
        share = np.divide(self.error, self.deviation, out=constant, where=self.deviation != 0)
        return float((1 - share).mean())


def _columns(metric: Metric, output: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output and target as Float64 (N, K). Raises ShapeError."""
    fits = without_units(output.shape) == without_units(target.shape) and output.ndim > 0
    require_shapes(metric, fits, output, target, _ALLOWED)
    return _wide(output), _wide(target)


def _wide(values: np.ndarray) -> np.ndarray:
    array = np.asarray(values, np.float64)
    return array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)


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


# How similar arrays are: the Dice coefficient of two, and the cosines between rows.


class CosineSimilarity(Metric):
    """The cosines ("cosine") or products ("dot") of all pairs of rows of the last input (N, K): an array (N, N).

    `zero_diagonal` sets those of a row with itself to 0. `reduction` "sum" or "mean" reduces the last axis. `update`
    takes one input.
    """

    direction = "maximize"
    is_scalar = False

    def __init__(
        self,
        similarity: Literal["cosine", "dot"] = "cosine",
        reduction: Literal["none", "sum", "mean"] = "none",
        zero_diagonal: bool = True,
    ) -> None:
        one_of({}, ("dot", "cosine"), similarity=similarity)
        one_of({}, ("none", "sum", "mean"), reduction=reduction)
        flag({}, zero_diagonal=zero_diagonal)
        self.similarity, self.reduction, self.zero_diagonal = similarity, reduction, zero_diagonal
        self.clear()

    def clear(self) -> None:
        self.products, self.count = np.zeros((0, 0)), 0

    @of_arrays
    def update(self, rows: np.ndarray) -> None:
        require_shapes(self, rows.ndim == 2, rows, rows, "one input (N, K)")
        if self.similarity == "cosine":
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self.products, self.count = rows @ rows.T, len(rows)

    def eval(self) -> np.ndarray:
        require_data(self, self.count)
        products = self.products.copy()
        if self.zero_diagonal:
            np.fill_diagonal(products, 0)
        if self.reduction == "none":
            return products
        reduced: np.ndarray = products.mean(-1) if self.reduction == "mean" else products.sum(-1)
        return reduced


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


# The loss as a metric of an evaluation.


class Loss(Mean):
    """Mean loss per sample; batches are weighted by their size, so that a smaller last one has no more weight.

    `summed`: the loss function sums the samples of a batch instead of averaging them; by default (None) so if its
    attribute `reduction` is "sum". `update(loss)` without a target counts a batch as one sample, as MindSpore r1.2
    does.
    """

    indexes = (0, 2)

    def __init__(self, summed: bool | None = None) -> None:
        super().__init__()
        self.is_fixed, self.summed = summed is not None, bool(summed)

    def attach(self, loss_fn: Cell) -> None:
        if not self.is_fixed:
            self.summed = getattr(loss_fn, "reduction", None) == "sum"

    @of_arrays
    def update(self, loss: np.ndarray, target: np.ndarray | None = None) -> None:
        if target is not None and not target.ndim:
            raise ShapeError("a metric cannot count the samples of a target without axes", metric="Loss")
        samples = 1 if target is None else len(target)
        self.total += float(np.mean(loss, dtype=np.float64)) * (1 if self.summed else samples)
        self.count += samples

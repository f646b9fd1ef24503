"""Metrics of numbers: the loss, errors of regression in Float64, and how similar the rows of an output are.

`Loss` is the mean loss of an evaluation. `MAE`, `MSE` and `R2` compare outputs with targets, `CosineSimilarity`
compares the rows of one output.
"""

from typing import Literal

import numpy as np

from runner.errors import ShapeError
from runner.nn.cell import Cell
from runner.nn.metrics.base import Mean, Metric, of_arrays, require_data, require_shapes, without_units
from runner.validation.arguments import flag, one_of


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


# Errors of outputs and targets, and the share of variance explained (R²).


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
    require_shapes(metric, fits, output, target, "equal shapes, up to axes of length 1")
    return _wide(output), _wide(target)


def _wide(values: np.ndarray) -> np.ndarray:
    array = np.asarray(values, np.float64)
    return array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)


# Cosines between rows.


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

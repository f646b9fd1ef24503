"""Metrics of regression: absolute and squared errors, and the share of variance explained (R²), in Float64."""

import numpy as np

from runner.nn.metrics.base import Mean, Metric, of_arrays, require_data, require_shapes, without_units
from runner.validation.arguments import flag

__all__ = ["MAE", "MSE", "R2"]

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

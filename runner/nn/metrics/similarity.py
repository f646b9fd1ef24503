"""How similar arrays are: the Dice coefficient of two, and the cosines between rows."""

from typing import Literal

import numpy as np

from runner.nn.metrics.base import Mean, Metric, of_arrays, require_data, require_shapes
from runner.validation.arguments import above, flag, one_of

__all__ = ["CosineSimilarity", "Dice"]


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

"""The loss as a metric of an evaluation."""

import numpy as np

from runner.errors import ShapeError
from runner.nn.cell import Cell
from runner.nn.metrics.base import Mean, of_arrays

__all__ = ["Loss"]


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

"""How often an estimate is good enough."""

from typing import Annotated

import numpy as np

import runner


@runner.register.metric("within")
class Within:
    """Share of rows whose output differs from the target by at most `tolerance`.

    Args:
        tolerance: the largest difference that counts as right
    """

    direction = "maximize"

    def __init__(self, tolerance: Annotated[float, runner.key(above=0)] = 25.0) -> None:
        self.tolerance = tolerance
        self.clear()

    def clear(self) -> None:
        self.hits, self.rows = 0, 0

    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        self.hits += int((np.abs(output.ravel() - target.ravel()) <= self.tolerance).sum())
        self.rows += target.shape[0]

    def eval(self) -> float:
        return self.hits / self.rows

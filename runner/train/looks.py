"""Graph mode for somebody who looks: a step is computed once more, with the values that an observer chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from runner.core.observer import ValueObserver
from runner.device import Device
from runner.nn.cell import Cell
from runner.startup import lazy_import
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.look import Look

look = lazy_import("runner.compile.look")  # only for runs that dump values


class Looks:
    """Shows an observer steps of a cell in graph mode; parameters stay as they are."""

    def __init__(self, cell: Cell, device: Device, name: str, root: str, observer: ValueObserver) -> None:
        self.cell, self.device, self.name, self.root, self.observer = cell, device, name, root, observer
        self._compiled: dict[tuple[TensorType, ...], Look] = {}

    def __call__(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Compute a step for the observer."""
        types = tuple([TensorType.of(array) for array in arrays])
        if types not in self._compiled:
            names = self.name, self.root
            self._compiled[types] = look.Look(self.cell.construct, types, self.device, *names, self.observer)
        self._compiled[types](step, arrays)

"""Values of a training step, for callbacks that observe gradients."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class StepValues:
    """Arrays of one step by parameter name, in the optimizer's order; they must not be changed.

    `global_step` counts from 1. `gradients` are the inputs of the optimizer: reduced over ranks, and divided by the
    loss scale. `parameters` are the values before the step and `assigned` those after it: equal in a step that was
    skipped because of an overflow.
    """

    global_step: int
    gradients: Arrays
    parameters: Arrays
    assigned: Arrays

    @property
    def updates(self) -> Arrays:
        """The change of each parameter by the step."""
        return {name: self.assigned[name] - before for name, before in self.parameters.items()}

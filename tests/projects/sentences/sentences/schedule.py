"""The learning rate of a Transformer."""

import math
from typing import Annotated

import runner


@runner.register.schedule("noam")
def noam(
    step: int, *, learning_rate: float, total_steps: int, part: Annotated[float, runner.key(above=0, high=1)] = 0.1
) -> float:
    """Linear up to the optimizer's rate in the first part of the steps, then falling with the root of the step.

    Args:
        part: share of the steps in which the rate rises
    """
    steps = max(1, round(part * total_steps))
    return learning_rate * min((step + 1) / steps, math.sqrt(steps / (step + 1)))

"""Callbacks: what happens beside the steps of a training; a parameter of the constructor is a key of the config."""

from typing import Annotated

import runner
from runner.train.callback import Callback


@runner.register.callback("patience")
class Patience(Callback):
    """Stop when the loss of a step has not been a new lowest one for some steps.

    Args:
        steps: so many steps
    """

    def __init__(self, steps: Annotated[int, runner.key(low=1)] = 100) -> None:
        self.steps, self.lowest, self.waited = steps, float("inf"), 0

    def step_end(self, run_context):
        for loss in run_context.original_args().losses:  # of one step, or of those of a sink
            self.waited = 0 if loss < self.lowest else self.waited + 1
            self.lowest = min(self.lowest, float(loss))
        if self.waited >= self.steps:
            run_context.request_stop()

    def state_dict(self):
        """For checkpoints: a resumed run stops where one that was not interrupted would."""
        return {"lowest": self.lowest, "waited": self.waited}

    def load_state_dict(self, state):
        self.lowest, self.waited = state["lowest"], state["waited"]

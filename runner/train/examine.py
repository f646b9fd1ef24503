"""Steps that are made again when they went wrong, to say which operator it was (`session.enable_exception_dump`)."""

from collections.abc import Callable
from contextlib import closing, suppress

import numpy as np

from runner.dataset.pipeline import Dataset
from runner.dumps.failure import FirstFailure
from runner.errors import TrainingError
from runner.train.epochs import MakeSteps
from runner.train.step import EagerStep, Step, StepByStep


class Examined:
    """Makes steps with `make`, beginning with the number `first`, and remembers the parameters as they were before.

    When a loss is not finite, the parameters are put back and the steps are made once more, one by one, until the one
    that went wrong, which `failure` is shown. When a step could not be made at all, PyNative mode makes them again,
    since it knows the operands. Raises TrainingError with the operator, its line and the folder of the dump.
    """

    def __init__(self, make: MakeSteps, step: Step, dataset: Dataset, first: int, failure: FirstFailure) -> None:
        self.make, self.step, self.dataset, self.first, self.failure = make, step, dataset, first, failure

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """As `make`."""
        put_back = [parameter.keep() for parameter in self.step.cell.get_parameters()]
        try:
            losses = self.make(count, leave)
        except TrainingError as error:
            self._repeat(put_back, EagerStep(self.step.cell, "step"), range(self.first, self.first + count))
            rows = self.failure.rows or {"dump": "none: PyNative mode makes the same steps without an error"}
            raise error.add(**rows) from error.__cause__
        finite = np.isfinite(losses.reshape(len(losses), -1)).all(axis=1)
        if not finite.all():
            wrong = self.first + int(finite.argmin())
            self._repeat(put_back, self.step, range(wrong, wrong + 1))
            rows = {"loss": losses[finite.argmin()], "global_step": wrong + 1, **self.failure.rows}
            raise TrainingError("the loss is not a finite number", **rows)
        self.first += len(losses)
        return losses

    def _repeat(self, put_back: list[Callable[[], None]], step: Step, shown: range) -> None:
        for parameter_back in put_back:
            parameter_back()
        self.failure.steps = shown
        batches = self.dataset.prepared(self.dataset.visits_from(self.first))
        with closing(StepByStep(step, batches, self.first, self.failure)) as again, suppress(TrainingError):
            again(shown.stop - self.first)

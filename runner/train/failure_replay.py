"""Steps that are made again when they went wrong, to say which operator it was (`session.enable_exception_dump`).

Among ranks: a loss is the mean of all, so when it is not finite they all make the step again, with its exchanges, and
agree on whose operator was the first one. A step that could not be made may have failed on one rank only, so it is made
again isolated from the others; they wait in the exchange that this rank did not come to, until it ends them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress

import numpy as np

from runner.communication.world import IsolatedRankError, isolated, world
from runner.dataset.pipeline import Dataset
from runner.errors import TrainingError
from runner.nn.steps import EagerStep, Step
from runner.observe import dump
from runner.train.loop import MakeSteps
from runner.train.steps import StepByStep

NEVER = 2**62  # later than the number of any operator


class Examined:
    """Makes steps with `make`, beginning with the number `first`, and remembers the parameters as they were before.

    When a loss is not finite, the parameters are put back and the steps are made once more, one by one, until the one
    that went wrong, which `failure` is shown. When a step could not be made at all, PyNative mode makes them again,
    since it knows the operands. Raises TrainingError with the operator, its line and the folder of the dump.
    """

    def __init__(
        self,
        make: MakeSteps,
        step: Step,
        dataset: Dataset,
        first: int,
        failure: dump.FirstFailure,
        unreported: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.make, self.step, self.dataset, self.first, self.failure = make, step, dataset, first, failure
        self.unreported = unreported  # inside, callbacks get no gradients of steps

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """As `make`."""
        put_back = [parameter.snapshot() for parameter in self.step.cell.get_parameters()]
        try:
            losses = self.make(count, leave)
        except TrainingError as error:
            raise error.add(**self._apart(put_back, range(self.first, self.first + count))) from error.__cause__
        finite = np.isfinite(losses.reshape(len(losses), -1)).all(axis=1)
        if not finite.all():
            wrong = self.first + int(finite.argmin())
            self._repeat(put_back, self.step, range(wrong, wrong + 1))
            rows = {"loss": losses[finite.argmin()], "global_step": wrong + 1, **self._of_first_rank()}
            raise TrainingError("the loss is not a finite number", **rows)
        self.first += len(losses)
        return losses

    def _apart(self, put_back: list[Callable[[], None]], shown: range) -> dict[str, object]:
        """What is to be said of steps that could not be made."""
        why = "PyNative mode makes the same steps without an error"
        try:
            with isolated():
                self._repeat(put_back, EagerStep(self.step.cell, "step"), shown)
        except IsolatedRankError:
            why = "this rank cannot make the step again beyond its first exchange with others"
        return self.failure.rows or {"dump": f"none: {why}"}

    def _of_first_rank(self) -> dict[str, object]:
        """What is to be said of a step that all ranks have made again: by that one whose operator comes first."""
        found = self.failure.found
        numbers = world().gathered(NEVER if found is None else found.number)
        rank = numbers.index(min(numbers))
        own = {name: str(value) for name, value in self.failure.rows.items() if value is not None}
        rows: dict[str, object] = world().shared(own, rank)
        return {**rows, "rank": f"{rank} of {len(numbers)}"} if len(numbers) > 1 and rows else rows

    def _repeat(self, put_back: list[Callable[[], None]], step: Step, shown: range) -> None:
        for parameter_back in put_back:
            parameter_back()
        self.failure.steps = shown
        batches = self.dataset.prepared(self.dataset.visits_from(self.first))
        again = StepByStep(step, batches, self.first, self.failure)
        with self.unreported(), closing(again), suppress(TrainingError):
            again(shown.stop - self.first)

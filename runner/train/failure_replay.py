"""Replay of failed steps to locate the failing operator (`session.enable_exception_dump`).

With several ranks: a loss is the mean over all, so when it is not finite all ranks repeat the step with its collectives
and agree on the first operator. A step that raised may have failed on one rank only, so that rank repeats it isolated
from the others, which wait in the collective that it did not reach, until it ends them.
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


class FailureReplay:
    """Executes steps with `make`, from number `first` on; on failure replays them from a snapshot of the parameters.

    When a loss is not finite, the parameters are restored and the steps repeated one by one up to the failed one, which
    `failure` observes. When a step raised, PyNative mode repeats the steps, since it knows the operands. Raises
    TrainingError with the operator, its source line and the folder of the dump.
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
        self.unreported = unreported  # inside, gradients are not reported to callbacks

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Like `make`."""
        restores = [parameter.snapshot() for parameter in self.step.cell.get_parameters()]
        try:
            losses = self.make(count, leave)
        except TrainingError as error:
            raise error.add(
                **self._replay_isolated(restores, range(self.first, self.first + count))
            ) from error.__cause__
        finite = np.isfinite(losses.reshape(len(losses), -1)).all(axis=1)
        if not finite.all():
            wrong = self.first + int(finite.argmin())
            self._replay(restores, self.step, range(wrong, wrong + 1))
            rows = {"loss": losses[finite.argmin()], "global_step": wrong + 1, **self._of_first_rank()}
            raise TrainingError("the loss is not a finite number", **rows)
        self.first += len(losses)
        return losses

    def _replay_isolated(self, restores: list[Callable[[], None]], observed: range) -> dict[str, object]:
        """Replay steps that raised, and return the rows of the error."""
        why = "PyNative mode executes the same steps without an error"
        try:
            with isolated():
                self._replay(restores, EagerStep(self.step.cell, "step"), observed)
        except IsolatedRankError:
            why = "this rank cannot repeat the step beyond its first collective"
        return self.failure.rows or {"dump": f"none: {why}"}

    def _of_first_rank(self) -> dict[str, object]:
        """The rows of the rank whose failing operator comes first, after all ranks have replayed the step."""
        found = self.failure.found
        numbers = world().gathered(NEVER if found is None else found.number)
        rank = numbers.index(min(numbers))
        own = {name: str(value) for name, value in self.failure.rows.items() if value is not None}
        rows: dict[str, object] = world().shared(own, rank)
        return {**rows, "rank": f"{rank} of {len(numbers)}"} if len(numbers) > 1 and rows else rows

    def _replay(self, restores: list[Callable[[], None]], step: Step, observed: range) -> None:
        for restore in restores:
            restore()
        self.failure.steps = observed
        batches = self.dataset.prepared(self.dataset.visits_from(self.first))
        steps = StepByStep(step, batches, self.first, self.failure)
        with self.unreported(), closing(steps), suppress(TrainingError):
            steps(observed.stop - self.first)

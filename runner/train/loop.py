"""The loop over epochs (`run_epochs`), the executor of single steps (`StepByStep`), and two observers of steps.

`Model.train` calls it. `FailureReplay` repeats a step that failed to find the operator, `GradientObserver` passes
gradients to callbacks. Steps have numbers from 0 of the whole training; a resumed one begins with a later number.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

from runner import compile as compiler, nn, ops
from runner.communication.world import IsolatedRankError, isolated, world
from runner.core.graph import NO_LOSS, NO_VALUES, RETURN_LOSS, ValueObserver
from runner.core.values import Tensor
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError, TrainingError
from runner.nn.optim.optimizer import scheduled_optimizers, scheduled_step
from runner.nn.steps import EagerStep, Step, run_observed
from runner.nn.wrap import StepCell
from runner.observe import dump
from runner.ops.random import random_counter
from runner.train.callback import CallbackList, CallbackParameters, RunContext, StepValues
from runner.train.callback.base import NO_LOSSES, Event

MakeSteps = Callable[[int, Callable[[], bool]], np.ndarray]


def run_epochs(make: MakeSteps, hooks: CallbackList, run_context: RunContext, total: int, chunk: int) -> None:
    """Execute steps up to number `total`, at most `chunk` per call of `make`, and fire the events of callbacks."""
    cb_params = run_context.original_args()

    def fire(event: Event) -> None:
        random_counter().begin_event(event, cb_params.cur_step_num)
        hooks.fire(event, run_context)

    # A run resumed after the last step of an epoch still has to fire the end of that epoch.
    first, last = max(0, cb_params.cur_step_num - 1) // cb_params.batch_num, (total - 1) // cb_params.batch_num
    for number in range(first, last + 1):
        if run_context.get_stop_requested():
            break
        cb_params.cur_epoch_num, cb_params.losses = number + 1, NO_LOSSES
        fire("epoch_begin")
        end = min(total, cb_params.cur_epoch_num * cb_params.batch_num)
        losses = [cb_params.losses] if len(cb_params.losses) else []  # since the last step_end, also before a resume
        while cb_params.cur_step_num < end and not run_context.get_stop_requested():
            fire("step_begin")
            left = min(chunk, end - cb_params.cur_step_num)
            stop = hooks.next_stop(cb_params.cur_step_num)
            made = make(left if stop is None else min(left, stop - cb_params.cur_step_num), hooks.wants_to_leave)
            losses.append(made)
            cb_params.losses = made if len(losses) == 1 else np.concatenate(losses)
            cb_params.cur_step_num += len(made)
            cb_params.net_outputs = Tensor(made[-1])
            if len(made) < left:
                fire("sink_left")
            else:
                fire("step_end")
                losses.clear()
        fire("epoch_end")


# Training steps one by one, each with its batch, learning rate and number.


class StepByStep:
    """Runs a training step batch by batch; `interactions` counts the steps, `batch` is that of the last one.

    A scheduled learning rate is set before each step. `batches` may have threads that prepare the next ones: `close`
    ends them. The observer receives the values of the iterations that it selects; `number` is that of the next step.
    """

    def __init__(
        self,
        step: Step,
        batches: Generator[tuple[np.ndarray, ...], None, None],
        number: int = 0,
        observer: ValueObserver = NO_VALUES,
    ) -> None:
        self.step, self.batches, self.interactions = step, batches, 0
        self.number, self.observer = number, observer
        self.batch: tuple[np.ndarray, ...] = ()
        self._scheduled = scheduled_optimizers(step.cell)

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Losses of the next `count` steps; `leave` is used by sinks only."""
        self.interactions += count
        return np.array([self._run_step() for _ in range(count)])

    def close(self) -> None:
        """End the threads that prepare batches."""
        self.batches.close()

    def _run_step(self) -> np.ndarray:
        self.batch = batch = next(self.batches)
        random_counter().begin_step(self.number)
        with scheduled_step(self._scheduled):
            outputs = run_observed(self.step, batch, self.observer)
        self.number += 1
        if not outputs:
            raise ConfigError(NO_LOSS, network=type(self.step.cell).__name__, repair=RETURN_LOSS)
        return outputs[0]

    @property
    def programs(self) -> dict[Any, compiler.Program]:
        """The compiled programs of the step; {} in PyNative mode."""
        programs: dict[Any, compiler.Program] = getattr(self.step, "programs", {})
        return programs


def with_elements(make: MakeSteps, steps: object, parameters: CallbackParameters) -> MakeSteps:
    """`make` with steps after which callbacks find their batch as `train_dataset_element`; a sink has none."""
    if not isinstance(steps, StepByStep):
        return make

    def make_steps(count: int, leave: Callable[[], bool]) -> np.ndarray:
        losses = make(count, leave)
        parameters.train_dataset_element = tuple(map(Tensor, steps.batch))
        return losses

    return make_steps


# Replay of failed steps to locate the failing operator (`session.enable_exception_dump`).
#
# With several ranks: a loss is the mean over all, so when it is not finite all ranks repeat the step with its
# collectives and agree on the first operator. A step that raised may have failed on one rank only, so that rank repeats
# it isolated from the others, which wait in the collective that it did not reach, until it ends them.

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
        self.failure.steps, self.failure.iterations = observed, self.first
        batches = self.dataset.prepared(self.dataset.visits_from(self.first))
        steps = StepByStep(step, batches, self.first, self.failure)
        with self.unreported(), closing(steps), suppress(TrainingError):
            steps(observed.stop - self.first)


# Gradients of training steps for callbacks: the event `step_gradients`.


class GradientObserver:
    """Delivers the values of training steps to callbacks that observe gradients.

    Steps are numbered in order of arrival; steps replayed after a failure do not count.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._global_step = 0
        self._report: tuple[CallbackList, RunContext] | None = None

    def attach(self, cell: nn.Cell, hooks: CallbackList, run_context: RunContext, first_step: int) -> bool:
        """Prepare a training that begins after `first_step` steps; whether the cell's step graph has changed.

        Raises ConfigError when gradients are observed of a network that computes its training step itself.
        """
        wanted = hooks.observes_gradients
        if not isinstance(cell, StepCell):
            if not wanted:
                return False
            rows = {"allowed": "a Model with loss_fn and optimizer, or a subclass of nn.TrainOneStepCell"}
            raise ConfigError("the gradients of this network cannot be observed", network=type(cell).__name__, **rows)
        self._names = tuple(parameter.name for parameter in cell.optimizer.parameters)
        self._global_step, self._report = first_step, (hooks, run_context)
        if wanted == (cell.step_values is not None):
            return False
        cell.step_values = ops.ObserveStep(self._receive) if wanted else None
        return True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, steps are not reported."""
        report, self._report = self._report, None
        try:
            yield
        finally:
            self._report = report

    def _receive(self, *arrays: np.ndarray) -> None:
        """Gradients, parameters and assigned values of a step, each in the order of the names."""
        if self._report is None:
            return
        self._global_step += 1
        size = len(self._names)
        parts = [dict(zip(self._names, arrays[k : k + size], strict=True)) for k in range(0, 3 * size, size)]
        hooks, run_context = self._report
        hooks.step_gradients(run_context, StepValues(self._global_step, *parts))

"""Executes training steps one by one, each with its batch, learning rate and number."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from runner import compile as compiler
from runner.core.graph import NO_LOSS, NO_VALUES, RETURN_LOSS, ValueObserver
from runner.core.values import Tensor
from runner.errors import ConfigError
from runner.nn.optim.optimizer import scheduled_optimizers, scheduled_step
from runner.nn.steps import Step
from runner.ops.random import COUNTER
from runner.train.callback import CallbackParameters
from runner.train.loop import MakeSteps


class StepByStep:
    """Runs a training step batch by batch; `interactions` counts the steps, `batch` is that of the last one.

    A scheduled learning rate is set before each step. `batches` may have threads that prepare the next ones: `close`
    ends them. The observer receives the values of the steps that it selects; `number` is that of the next step.
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
        self._observed = observer.next_step(number)  # the next observed step

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Losses of the next `count` steps; `leave` is used by sinks only."""
        self.interactions += count
        return np.array([self._run_step() for _ in range(count)])

    def close(self) -> None:
        """End the threads that prepare batches."""
        self.batches.close()

    def _run_step(self) -> np.ndarray:
        self.batch = batch = next(self.batches)
        COUNTER.begin_step(self.number)
        with scheduled_step(self._scheduled):
            outputs = self.step(batch) if self.number != self._observed else self._observe(batch)
        self.number += 1
        if not outputs:
            raise ConfigError(NO_LOSS, network=type(self.step.cell).__name__, repair=RETURN_LOSS)
        return outputs[0]

    def _observe(self, batch: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        outputs = self.step.observe(batch, self.number, self.observer)
        self._observed = self.observer.next_step(self.number + 1)
        return outputs

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

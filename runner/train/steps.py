"""A training step after the other, each with its batch, its learning rate and its number."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from runner import compile as compiler
from runner.core.observers import NO_VALUES, ValueObserver
from runner.nn.optim import scheduled_optimizers, scheduled_step
from runner.nn.steps import Step


class StepByStep:
    """Runs a training step with one batch after the other; `interactions` counts the steps.

    A learning rate that follows a schedule is set before each step. `batches` may have threads that prepare the next
    ones: `close` ends them. The steps that the observer asks for are shown to it; `number` is that of the next one.
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
        self._scheduled = scheduled_optimizers(step.cell)
        self._shown = observer.next_step(number)  # the next step that is shown

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Losses of the next `count` steps; `leave` is for sinks, whose callers cannot ask between steps."""
        self.interactions += count
        return np.array([self._one() for _ in range(count)])

    def close(self) -> None:
        """No step follows."""
        self.batches.close()

    def _one(self) -> np.ndarray:
        batch = next(self.batches)
        with scheduled_step(self._scheduled):
            made = self.step(batch) if self.number != self._shown else self._show(batch)
        self.number += 1
        return made[0]

    def _show(self, batch: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        made = self.step.observe(batch, self.number, self.observer)
        self._shown = self.observer.next_step(self.number + 1)
        return made

    @property
    def programs(self) -> dict[Any, compiler.Program]:
        """What was compiled for it."""
        made: dict[Any, compiler.Program] = getattr(self.step, "programs", {})
        return made

"""Gradients of training steps for callbacks: the event `step_gradients`."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from runner import nn, ops
from runner.errors import ConfigError
from runner.nn.wrap import StepCell
from runner.train.callback import CallbackList, RunContext, StepValues


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

"""Callbacks of every run: times and the metrics journal."""

import time
from collections.abc import Mapping
from typing import Any

from runner.errors import ConfigError
from runner.host.files import Journal
from runner.train.callback import Callback, RunContext, step_in_epoch


class Stopwatch(Callback):
    """Seconds from its creation to the start of training and to the first loss, and the total of all steps."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._begin = self._step = 0.0
        self.first_loss_seconds: float | None = None
        self.train_seconds = 0.0

    def begin(self, run_context: RunContext) -> None:
        self._begin = time.perf_counter()

    def step_begin(self, run_context: RunContext) -> None:
        self._step = time.perf_counter()

    def step_end(self, run_context: RunContext) -> None:
        end = time.perf_counter()
        self.train_seconds += end - self._step
        if self.first_loss_seconds is None:
            self.first_loss_seconds = end - self._start

    def sink_left(self, run_context: RunContext) -> None:
        self.step_end(run_context)

    @property
    def init_seconds(self) -> float:
        """Seconds until training began."""
        return self._begin - self._start


def number(value: object) -> float:
    """The shortest decimal that is read back as the same value of the same precision.

    >>> import numpy as np
    >>> number(np.float32(0.1))
    0.1
    """
    return float(str(value))


class MetricsJournal(Callback):
    """Writes a `step` event for each step, also of a sink, and `eval` events for reported evaluations."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._written = 0  # steps of an unfinished sink that have a row

    def step_end(self, run_context: RunContext) -> None:
        self.sink_left(run_context)
        self._written = 0

    def sink_left(self, run_context: RunContext) -> None:
        """Write the steps until here: a checkpoint that follows counts them as done."""
        cb_params = run_context.original_args()
        losses = cb_params.losses[self._written :]
        if losses[0].size != 1:
            repair = "reduction=mean, or ops.ReduceMean()(loss) at the end of construct"
            rows = {"loss": type(cb_params.loss_fn).__name__, "shape": losses[0].shape}
            raise ConfigError("the loss of a batch is not a single number", **rows, repair=repair)
        first, last = cb_params.cur_step_num - len(losses) + 1, step_in_epoch(cb_params)
        for number_of_step, loss in enumerate(losses.reshape(-1), first):
            step = last - (cb_params.cur_step_num - number_of_step)
            row = {"event": "step", "epoch": cb_params.cur_epoch_num, "step": step, "global_step": number_of_step}
            self.journal.append({**row, "loss": number(loss)})
        self._written = len(cb_params.losses)

    def epoch_end(self, run_context: RunContext) -> None:
        self.journal.sync()

    def evaluated(self, metrics: Mapping[str, Any], epoch: int, global_step: int) -> None:
        """Write an `eval` event."""
        self.journal.append({"event": "eval", "epoch": epoch, "global_step": global_step, **metrics})
        self.journal.sync()

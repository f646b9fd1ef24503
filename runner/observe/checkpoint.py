"""Checkpoints while training: when they are due, at the end, and when a signal asks the run to stop."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.checkpoint import state
from runner.files import Journal
from runner.interrupt import Interruption
from runner.train.callback import Callback, CallbackParameters, RunContext, step_in_epoch


class Checkpointer(Callback):
    """Saves all parameters and where the run is; comes last, so that a checkpoint knows the journal's newest row.

    Due after every `every_steps` steps or `every_seconds` seconds, at step `total`, and at a signal. `device`
    gives what else is to be recorded, `identity` what a run that goes on must have in common with this one.
    """

    def __init__(
        self,
        folder: Path,
        prefix: str,
        keep_max: int,
        every_steps: int | None,
        every_seconds: float | None,
        *,
        total: int,
        journal: Journal,
        interruption: Interruption,
        identity: Callable[[], dict[str, Any]],
        device: Callable[[], dict[str, Any]],
    ) -> None:
        self.folder, self.prefix, self.keep_max = folder, prefix, keep_max
        self.every_steps, self.every_seconds = every_steps, every_seconds
        self.total, self.journal, self.interruption = total, journal, interruption
        self.identity, self.device = identity, device
        self._saved_step, self._saved_time = 0, time.monotonic()

    def begin(self, run_context: RunContext) -> None:
        self._saved_step = run_context.original_args().cur_step_num
        self._saved_time = time.monotonic()

    def step_end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        if self._due(seen.cur_step_num) or self.interruption.requested:
            self.save(seen)
        if self.interruption.requested:
            raise self.interruption.requested

    def wants_to_leave(self) -> bool:
        return self.interruption.requested is not None

    def sink_left(self, run_context: RunContext) -> None:
        self.save(run_context.original_args())
        if self.interruption.requested:
            raise self.interruption.requested

    def end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        if seen.cur_step_num > self._saved_step:  # somebody asked to stop before the last step
            self.save(seen)

    def save(self, seen: CallbackParameters) -> None:
        """Write a checkpoint of this moment, and delete the oldest beyond `keep_max`."""
        self.journal.sync()
        progress = {
            "global_step": seen.cur_step_num,
            "epoch": seen.cur_epoch_num,
            "step": step_in_epoch(seen),
            "loss": str(seen.net_outputs),
            "journal_bytes": self.journal.size(),
            **self.device(),
        }
        name = f"{self.prefix}-{progress['epoch']}_{progress['step']}"
        arrays = {p.name: p.data for p in seen.train_network.get_parameters()}
        state.save(self.folder / name, arrays, progress, self.identity())
        state.prune(self.folder, self.prefix, self.keep_max)
        self._saved_step, self._saved_time = seen.cur_step_num, time.monotonic()

    def _due(self, step: int) -> bool:
        steps = self.every_steps is not None and step // self.every_steps > self._saved_step // self.every_steps
        seconds = self.every_seconds is not None and time.monotonic() - self._saved_time >= self.every_seconds
        return steps or seconds or step >= self.total

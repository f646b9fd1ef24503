"""A progress bar on the terminal."""

import sys
from typing import Any, Self

from runner import register
from runner.train.callback.base import Callback, RunContext


class ProgressBar(Callback):
    """Progress bar with the finished steps of `total`, remaining time, loss and steps per second.

    Other output appears above it.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._bar: Any = None

    def __enter__(self) -> Self:
        # Imported here: the import takes longer than ten steps, and most runs have no terminal.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        state = TextColumn("loss {task.fields[loss]}"), TextColumn("{task.fields[rate]} steps/s")
        self._bar = Progress(*columns, *state, refresh_per_second=5, transient=True)
        self._task = self._bar.add_task("training", total=self.total, loss="-", rate="-")
        self._bar.start()
        return self

    def step_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        speed = self._bar.tasks[0].speed  # of the last seconds
        state = {"loss": f"{float(cb_params.net_outputs):.4f}", "rate": f"{speed:.0f}" if speed else "-"}
        self._bar.update(self._task, completed=cb_params.cur_step_num, **state)

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


@register.callback("progress")
def progress(total_steps: int) -> Callback:
    """A progress bar, on a terminal."""
    return ProgressBar(total_steps) if sys.stdout.isatty() else Callback()

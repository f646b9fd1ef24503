"""A progress bar, for a terminal only."""

from types import TracebackType
from typing import Any, Self

from runner.train.callback import Callback, RunContext


class ProgressBar(Callback):
    """Steps done of `total`, speed and loss; lines that others print appear above it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._bar: Any = None

    def __enter__(self) -> Self:
        # Imported here: it takes longer than the first ten steps, and most runs have no terminal.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, TextColumn("loss {task.fields[loss]}"), refresh_per_second=5, transient=True)
        self._task = self._bar.add_task("training", total=self.total, loss="-")
        self._bar.start()
        return self

    def step_end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        self._bar.update(self._task, completed=seen.cur_step_num, loss=f"{float(seen.net_outputs):.4f}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

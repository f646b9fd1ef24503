"""`WaitedDSCallback`: a callback of a `map` that sees the results of the training step before. Source: r1.2."""

from typing import Any

from runner.dataset.prefetch import DSCallback, DSRunContext
from runner.errors import ConfigError
from runner.train.callback.base import Callback

__all__ = ["DSCallback", "WaitedDSCallback"]


class _Reports(dict[str, Any]):
    """What the training has reported since the last step or epoch of the dataset, and its end."""


class WaitedDSCallback(Callback, DSCallback):
    """Base class of callbacks that are given to `map` and to `Model.train`; `step_size` is the batch size.

    Rows are computed when the training requests their batch, so after the step before. Raises ConfigError where the
    rows of a step are requested before the step before has ended: `step_size` is not the batch size, or data are sunk.
    """

    def __init__(self, step_size: int = 1) -> None:
        super().__init__(step_size)
        self._reported = _Reports()

    def sync_epoch_begin(self, train_run_context: Any, ds_run_context: DSRunContext) -> None:
        """Before an epoch of the dataset but the first, after the training's epoch before."""

    def sync_step_begin(self, train_run_context: Any, ds_run_context: DSRunContext) -> None:
        """Before a step of the dataset but the first, after the training's step before."""

    def begin(self, run_context: Any) -> None:
        """A training that continues has reached the step and the epoch before."""
        if run_context.original_args().cur_step_num:
            self._reported.update(row=run_context, epoch=run_context)

    def step_end(self, run_context: Any) -> None:
        self._reported["row"] = run_context

    def epoch_end(self, run_context: Any) -> None:
        self._reported["epoch"] = run_context

    def end(self, run_context: Any) -> None:
        """The training has ended: nothing has to be waited for."""
        self._reported["end"] = run_context

    def ds_epoch_begin(self, ds_run_context: DSRunContext) -> None:
        if ds_run_context.cur_epoch_num > 1 and "end" not in self._reported:
            self.sync_epoch_begin(self._required("epoch", ds_run_context.cur_epoch_num), ds_run_context)

    def ds_step_begin(self, ds_run_context: DSRunContext) -> None:
        if ds_run_context.cur_step_num > self.step_size and "end" not in self._reported:
            self.sync_step_begin(self._required("row", ds_run_context.cur_step_num), ds_run_context)

    def _required(self, what: str, number: int) -> Any:
        if what not in self._reported:
            repair = "step_size= that is the batch size, dataset_sink_mode=False, and the callback in Model.train too"
            raise ConfigError("the training has not reached the step before", **{what: number}, repair=repair)
        return self._reported.pop(what)

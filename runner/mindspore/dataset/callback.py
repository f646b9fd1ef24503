"""`WaitedDSCallback`: a callback of a `map` that sees the results of the training step before. Source: r1.2."""

from typing import Any

from runner.dataset.prefetch import DSCallback, DSRunContext
from runner.errors import ConfigError
from runner.train.callback.base import Callback

__all__ = ["DSCallback", "WaitedDSCallback"]


class WaitedDSCallback(Callback, DSCallback):
    """Base class of callbacks that are given to `map` and to `Model.train`; `step_size` is the batch size.

    Rows are computed when the training requests their batch, so after the step before. Raises ConfigError where the
    rows of a step are requested before the step before has ended: `step_size` is not the batch size, or data are sunk.
    """

    def __init__(self, step_size: int = 1) -> None:
        super().__init__(step_size)
        self._step: Any = None  # what the training has reported since the last step or epoch of the dataset
        self._epoch: Any = None
        self._has_ended = False

    def sync_epoch_begin(self, train_run_context: Any, ds_run_context: DSRunContext) -> None:
        """Before an epoch of the dataset but the first, after the training's epoch before."""

    def sync_step_begin(self, train_run_context: Any, ds_run_context: DSRunContext) -> None:
        """Before a step of the dataset but the first, after the training's step before."""

    def step_end(self, run_context: Any) -> None:
        self._step = (run_context,)

    def epoch_end(self, run_context: Any) -> None:
        self._epoch = (run_context,)

    def end(self, run_context: Any) -> None:
        """The training has ended: nothing has to be waited for."""
        self._has_ended = True

    def ds_epoch_begin(self, ds_run_context: DSRunContext) -> None:
        if ds_run_context.cur_epoch_num > 1 and not self._has_ended:
            reported, self._epoch = self._epoch, None
            self.sync_epoch_begin(_required(reported, "epoch", ds_run_context.cur_epoch_num), ds_run_context)

    def ds_step_begin(self, ds_run_context: DSRunContext) -> None:
        if ds_run_context.cur_step_num > self.step_size and not self._has_ended:
            reported, self._step = self._step, None
            self.sync_step_begin(_required(reported, "row", ds_run_context.cur_step_num), ds_run_context)


def _required(reported: Any, what: str, number: int) -> Any:
    if reported is None:
        repair = "step_size= that is the batch size, dataset_sink_mode=False, and the callback in Model.train too"
        raise ConfigError("the training has not reached the step before", **{what: number}, repair=repair)
    return reported[0]

"""The loop over epochs: executes steps and calls the hooks of callbacks."""

from collections.abc import Callable

import numpy as np

from runner.core.values import Tensor
from runner.ops.random import COUNTER
from runner.train.callback import CallbackList, RunContext
from runner.train.callback.base import Event

MakeSteps = Callable[[int, Callable[[], bool]], np.ndarray]


def run_epochs(make: MakeSteps, hooks: CallbackList, run_context: RunContext, total: int, chunk: int) -> None:
    """Execute steps up to number `total`, at most `chunk` per call of `make`, and fire the events of callbacks."""
    cb_params = run_context.original_args()

    def fire(event: Event) -> None:
        COUNTER.begin_event(event, cb_params.cur_step_num)
        hooks.fire(event, run_context)

    # A run resumed after the last step of an epoch still has to fire the end of that epoch.
    first, last = max(0, cb_params.cur_step_num - 1) // cb_params.batch_num, (total - 1) // cb_params.batch_num
    for number in range(first, last + 1):
        if run_context.get_stop_requested():
            break
        cb_params.cur_epoch_num = number + 1
        fire("epoch_begin")
        end = min(total, cb_params.cur_epoch_num * cb_params.batch_num)
        losses: list[np.ndarray] = []  # of the steps since the last step_end
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

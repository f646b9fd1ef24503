"""The loop over epochs: executes steps and calls the hooks of callbacks."""

from collections.abc import Callable

import numpy as np

from runner.train.callback import CallbackList, RunContext

MakeSteps = Callable[[int, Callable[[], bool]], np.ndarray]


def run_epochs(make: MakeSteps, hooks: CallbackList, run_context: RunContext, total: int, chunk: int) -> None:
    """Execute steps up to number `total`, at most `chunk` per call of `make`, and fire the events of callbacks."""
    cb_params = run_context.original_args()
    # A run resumed after the last step of an epoch still has to fire the end of that epoch.
    first, last = max(0, cb_params.cur_step_num - 1) // cb_params.batch_num, (total - 1) // cb_params.batch_num
    for number in range(first, last + 1):
        if run_context.get_stop_requested():
            break
        cb_params.cur_epoch_num = number + 1
        hooks.fire("epoch_begin", run_context)
        end = min(total, cb_params.cur_epoch_num * cb_params.batch_num)
        while cb_params.cur_step_num < end and not run_context.get_stop_requested():
            hooks.fire("step_begin", run_context)
            count = min(chunk, end - cb_params.cur_step_num)
            cb_params.losses = make(count, hooks.wants_to_leave)
            cb_params.cur_step_num += len(cb_params.losses)
            cb_params.net_outputs = cb_params.losses[-1]
            if len(cb_params.losses) < count:
                hooks.fire("sink_left", run_context)
            else:
                hooks.fire("step_end", run_context)
        hooks.fire("epoch_end", run_context)

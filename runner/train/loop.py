"""The loop over epochs: executes steps and calls the hooks of callbacks."""

from collections.abc import Callable

import numpy as np

from runner.train.callback import CallbackList, RunContext

MakeSteps = Callable[[int, Callable[[], bool]], np.ndarray]


def run_epochs(make: MakeSteps, hooks: CallbackList, run_context: RunContext, total: int, chunk: int) -> None:
    """Execute steps up to number `total`, at most `chunk` per call of `make`, and fire the events of callbacks."""
    seen = run_context.original_args()
    # A run resumed after the last step of an epoch still has to fire the end of that epoch.
    first, last = max(0, seen.cur_step_num - 1) // seen.batch_num, (total - 1) // seen.batch_num
    for number in range(first, last + 1):
        if run_context.get_stop_requested():
            break
        seen.cur_epoch_num = number + 1
        hooks.fire("epoch_begin", run_context)
        end = min(total, seen.cur_epoch_num * seen.batch_num)
        while seen.cur_step_num < end and not run_context.get_stop_requested():
            hooks.fire("step_begin", run_context)
            count = min(chunk, end - seen.cur_step_num)
            seen.losses = make(count, hooks.wants_to_leave)
            seen.cur_step_num += len(seen.losses)
            seen.net_outputs = seen.losses[-1]
            if len(seen.losses) < count:
                hooks.fire("sink_left", run_context)
            else:
                hooks.fire("step_end", run_context)
        hooks.fire("epoch_end", run_context)

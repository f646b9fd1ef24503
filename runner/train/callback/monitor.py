"""Monitors, which print the loss and the time: those of the reference (spec section 6.2), and one line per epoch."""

import time
from typing import Annotated

import numpy as np

from runner import register
from runner.errors import TrainingError
from runner.train.callback.base import Callback, CallbackParameters, RunContext, step_in_epoch
from runner.validation.arguments import whole
from runner.validation.rules import MAX_COUNT, Rule


def check_losses(parameters: CallbackParameters) -> None:
    """Raise TrainingError, with epoch and step, when a loss since the last check is NaN or infinite."""
    finite = np.isfinite(parameters.losses).reshape(len(parameters.losses), -1).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite))
        step = parameters.cur_step_num - len(finite) + 1 + first
        rows = {"epoch": parameters.cur_epoch_num, "step": (step - 1) % parameters.batch_num + 1, "global_step": step}
        repair = "a smaller optimizer.learning_rate, or look for invalid values in the data"
        raise TrainingError("the loss is not a finite number", loss=parameters.losses[first], **rows, repair=repair)


@register.callback("loss_monitor")
class LossMonitor(Callback):
    """Print the loss every `per_print_times` steps (0: never), and end the run when it is not finite.

    Args:
        per_print_times: steps between two lines with the loss; 0: none
    """

    def __init__(self, per_print_times: Annotated[int, Rule(low=0, high=MAX_COUNT)] = 1) -> None:
        whole({}, 0, per_print_times=per_print_times)
        self._per_print_times = per_print_times

    def step_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        check_losses(cb_params)
        # A sink executes several steps at once: print if one of them was due.
        due = self._per_print_times and cb_params.cur_step_num % self._per_print_times < len(cb_params.losses)
        if due:
            loss = np.asarray(cb_params.net_outputs).mean()  # a loss without reduction is a number per sample
            print(f"epoch: {cb_params.cur_epoch_num} step: {step_in_epoch(cb_params)}, loss is {loss!s}", flush=True)


class TimeMonitor(Callback):
    """Print the duration of each epoch, in milliseconds; `data_size` is ignored, since the run counts its steps.

    An epoch of which a resumed run executes no step has no line.
    """

    def __init__(self, data_size: int | None = None) -> None:
        self.data_size = data_size
        self._start, self._steps = 0.0, 0

    def epoch_begin(self, run_context: RunContext) -> None:
        self._start, self._steps = time.perf_counter(), run_context.original_args().cur_step_num

    def epoch_end(self, run_context: RunContext) -> None:
        milliseconds = (time.perf_counter() - self._start) * 1e3
        if steps := run_context.original_args().cur_step_num - self._steps:
            print(f"epoch time: {milliseconds:5.3f} ms, per step time: {milliseconds / steps:5.3f} ms", flush=True)


class EpochMonitor(Callback):
    """Print one line for each epoch: the mean loss of its steps, and steps per second.

    An epoch that a resumed run enters in its middle has the mean of the steps that are left; without any, no line.
    """

    def __init__(self) -> None:
        self._start, self._losses = 0.0, list[np.ndarray]()

    def epoch_begin(self, run_context: RunContext) -> None:
        self._start, self._losses = time.perf_counter(), []

    def step_end(self, run_context: RunContext) -> None:
        self._losses.append(run_context.original_args().losses)  # of one step, or of those of a sink

    def epoch_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if not self._losses:
            return
        losses = np.concatenate(self._losses)
        loss = losses.mean(dtype=np.float64)  # a loss without reduction is a number per sample
        rate = len(losses) / (time.perf_counter() - self._start)
        epoch = f"epoch {cb_params.cur_epoch_num} of {cb_params.epoch_num}"
        print(f"{epoch}: loss {loss:.4g}, {rate:.0f} steps/s", flush=True)


@register.callback("epoch_monitor")
def epoch_monitor() -> Callback:
    """A line with the mean loss of each epoch."""
    return EpochMonitor()


@register.callback("time_monitor")
def time_monitor() -> Callback:
    """A line with the time of each epoch."""
    return TimeMonitor()

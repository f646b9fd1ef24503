"""What listens to training: hooks, and the monitors of the reference (spec section 6.2)."""

import logging
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from runner.errors import ConfigError, TrainingError
from runner.nn.arguments import at_least, number

_LOG = logging.getLogger("runner")


class CallbackParameters(dict[str, Any]):
    """What a callback can see of a run, as attributes.

    Training: epoch_num, batch_num, cur_epoch_num, cur_step_num (from 1, over all epochs), net_outputs (loss of the last
    step, a 0-d array), losses (of all steps since the last step_end), mode, network, train_network, loss_fn, optimizer,
    train_dataset, list_callback, dataset_sink_mode.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in self:  # an AttributeError, so that `hasattr` answers
            raise AttributeError(f"the run has no parameter {name}")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class RunContext:
    """Handed to every hook."""

    def __init__(self, original_args: CallbackParameters) -> None:
        self._args, self._stop = original_args, False

    def original_args(self) -> CallbackParameters:
        """The parameters of the run."""
        return self._args

    def request_stop(self) -> None:
        """End training after the current step (after the current sink when data sinking)."""
        self._stop = True

    def get_stop_requested(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop


class Callback:
    """Base: override the hooks that matter. Callbacks are called in list order; what they raise ends the run."""

    def begin(self, run_context: RunContext) -> None:
        """Before the first epoch."""

    def epoch_begin(self, run_context: RunContext) -> None:
        """Before an epoch."""

    def step_begin(self, run_context: RunContext) -> None:
        """Before a step, or before a sink of steps."""

    def step_end(self, run_context: RunContext) -> None:
        """After a step, or after a sink of steps."""

    def wants_to_leave(self) -> bool:
        """Whether a sink that would go on for seconds should be left; asked between its calls to the device."""
        return False

    def sink_left(self, run_context: RunContext) -> None:
        """After some steps of a sink that was left; unless this raises, the rest of it follows."""

    def epoch_end(self, run_context: RunContext) -> None:
        """After an epoch."""

    def end(self, run_context: RunContext) -> None:
        """After the last epoch."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def step_in_epoch(parameters: CallbackParameters) -> int:
    """Number of the current step inside its epoch, from 1."""
    return int((parameters.cur_step_num - 1) % parameters.batch_num + 1)


def check_losses(parameters: CallbackParameters) -> None:
    """Raise TrainingError, with epoch and step, when a loss since the last check is NaN or infinite."""
    finite = np.isfinite(parameters.losses).reshape(len(parameters.losses), -1).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite))
        step = parameters.cur_step_num - len(finite) + 1 + first
        raise TrainingError(
            "the loss is not a finite number",
            loss=parameters.losses[first],
            epoch=parameters.cur_epoch_num,
            step=(step - 1) % parameters.batch_num + 1,
            global_step=step,
            repair="a smaller optimizer.learning_rate, or look for invalid values in the data",
        )


class LossMonitor(Callback):
    """Print the loss every `per_print_times` steps (0: never), and end the run when it is not finite."""

    def __init__(self, per_print_times: int = 1) -> None:
        if type(per_print_times) is not int or per_print_times < 0:
            raise ConfigError("per_print_times must be a whole number of at least 0", given=repr(per_print_times))
        self.per_print_times = per_print_times

    def step_end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        check_losses(seen)
        # A sink makes several steps at once, so the question is whether one of them was to be printed.
        due = self.per_print_times and seen.cur_step_num % self.per_print_times < len(seen.losses)
        if due:
            loss = np.mean(seen.net_outputs)  # a loss without reduction is a number per sample
            print(f"epoch: {seen.cur_epoch_num} step: {step_in_epoch(seen)}, loss is {loss!s}", flush=True)


class TimeMonitor(Callback):
    """Print how long each epoch took, in milliseconds; the run knows its steps better than `data_size`."""

    def __init__(self, data_size: int | None = None) -> None:
        self.data_size = data_size
        self._start, self._steps = 0.0, 0

    def epoch_begin(self, run_context: RunContext) -> None:
        self._start, self._steps = time.perf_counter(), run_context.original_args().cur_step_num

    def epoch_end(self, run_context: RunContext) -> None:
        milliseconds = (time.perf_counter() - self._start) * 1e3
        steps = max(1, run_context.original_args().cur_step_num - self._steps)
        print(f"epoch time: {milliseconds:5.3f} ms, per step time: {milliseconds / steps:5.3f} ms", flush=True)


class LearningRateScheduler(Callback):
    """Sets the learning rate after every step (after every sink) to `learning_rate_function(rate, cur_step_num)`.

    `rate` is the present rate as a plain number, `cur_step_num` how many steps were made so far. Raises ConfigError
    when the optimizer follows a schedule already, or when the function gives no rate.
    """

    def __init__(self, learning_rate_function: Callable[[float, int], float]) -> None:
        if not callable(learning_rate_function):
            raise ConfigError("learning_rate_function must be a function", given=repr(learning_rate_function))
        self.learning_rate_function = learning_rate_function

    def begin(self, run_context: RunContext) -> None:
        optimizer = run_context.original_args().optimizer
        if optimizer is None or optimizer.schedule is not None:
            found = "there is no optimizer" if optimizer is None else repr(optimizer.schedule)
            repair = "give the optimizer a number as learning_rate"
            raise ConfigError("LearningRateScheduler needs a rate that it can set", found=found, repair=repair)

    def step_end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        parameter = seen.optimizer.learning_rate
        rate = float(str(parameter.asnumpy()))  # 0.1, where the float32 is 0.10000000149
        made = number(self.learning_rate_function(rate, seen.cur_step_num))
        at_least({"callback": "LearningRateScheduler", "step": seen.cur_step_num}, 0.0, learning_rate=made)
        if made != rate:
            parameter.set_data(np.float32(made))
            _LOG.info("at step %d the learning rate changes to %s", seen.cur_step_num, made)


class CallbackList(Callback):
    """Several callbacks as one."""

    def __init__(self, callbacks: Callback | Sequence[Callback] | None) -> None:
        given = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or ())
        for item in given:
            if not isinstance(item, Callback):
                raise ConfigError("callbacks must be Callback objects", given=repr(item), at=given.index(item))
        self.list = given

    def begin(self, run_context: RunContext) -> None:
        for callback in self.list:
            callback.begin(run_context)

    def epoch_begin(self, run_context: RunContext) -> None:
        for callback in self.list:
            callback.epoch_begin(run_context)

    def step_begin(self, run_context: RunContext) -> None:
        for callback in self.list:
            callback.step_begin(run_context)

    def step_end(self, run_context: RunContext) -> None:
        for callback in self.list:
            callback.step_end(run_context)

    def wants_to_leave(self) -> bool:
        return any(callback.wants_to_leave() for callback in self.list)

    def sink_left(self, run_context: RunContext) -> None:
        for callback in self.list:
            callback.sink_left(run_context)

    def epoch_end(self, run_context: RunContext) -> None:
        for callback in self.list:
            callback.epoch_end(run_context)

    def end(self, run_context: RunContext) -> None:
        for callback in self.list:
            callback.end(run_context)

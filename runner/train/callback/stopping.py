"""Callbacks that control training: early stopping, the learning rate, and hooks from plain functions."""

import math
from collections.abc import Callable

import numpy as np

from runner.errors import ConfigError, known_names
from runner.host.console import LOG
from runner.train.callback.base import Callback, CallbackParameters, RunContext
from runner.validation.arguments import at_least, scalar, whole

MODES = ("min", "max")
HOOKS = ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end")


class EarlyStopping(Callback):
    """Requests a stop after an epoch when `monitor` has not improved for more than `patience` epochs.

    An improvement is lower (`mode="min"`) or higher ("max") than the best so far by more than `min_delta`; NaN is none.
    `monitor` is "loss", the mean over all steps of the epoch, or the name of a number that another callback, earlier in
    the list, sets on the run's parameters at its `epoch_end`. The results are `best`, `best_epoch` and `stopped_epoch`
    (None when it did not stop). Raises ConfigError for invalid arguments, and when the run has no such number.
    """

    def __init__(self, monitor: str = "loss", min_delta: float = 0.0, patience: int = 0, mode: str = "min") -> None:
        where = {"callback": "EarlyStopping"}
        if not isinstance(monitor, str) or not monitor:
            raise ConfigError("monitor must be a name", **where, given=repr(monitor))
        at_least(where, 0.0, min_delta=min_delta)
        whole(where, 0, patience=patience)
        if mode not in MODES:
            raise ConfigError("no such mode", **where, given=repr(mode), **known_names(mode, MODES))
        self.monitor, self.min_delta, self.patience, self.mode = monitor, min_delta, patience, mode
        self._forget()

    def _forget(self) -> None:
        self.best: float | None = None
        self.best_epoch = 0
        self.stopped_epoch: int | None = None
        self._waited = 0
        self._losses: list[np.ndarray] = []

    def begin(self, run_context: RunContext) -> None:
        self._forget()

    def epoch_begin(self, run_context: RunContext) -> None:
        self._losses = []

    def step_end(self, run_context: RunContext) -> None:
        self._losses.append(np.ravel(run_context.original_args().losses))

    def epoch_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        value = self._value(cb_params)
        if self._is_better(value):
            self.best, self.best_epoch, self._waited = value, cb_params.cur_epoch_num, 0
            return
        self._waited += 1
        if self._waited > self.patience:
            self.stopped_epoch = cb_params.cur_epoch_num
            LOG.info("%s has not improved since epoch %d: the run stops", self.monitor, self.best_epoch)
            run_context.request_stop()

    def _value(self, cb_params: CallbackParameters) -> float:
        if self.monitor == "loss":
            # Over all losses at once, in float64: the same mean with and without data sinking.
            losses = np.concatenate(self._losses) if self._losses else np.zeros(0)
            return float(losses.mean(dtype=np.float64)) if losses.size else math.nan
        value = scalar(cb_params.get(self.monitor))
        if isinstance(value, bool) or not isinstance(value, int | float):
            rows = {"monitor": self.monitor, "found": "nothing" if value is None else repr(value)}
            repair = "a callback before this one that sets it: run_context.original_args().name = number"
            raise ConfigError("EarlyStopping finds no such number", **rows, repair=repair)
        return float(value)

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        return value < self.best - self.min_delta if self.mode == "min" else value > self.best + self.min_delta


class LearningRateScheduler(Callback):
    """Sets each learning rate after every step (after every sink) to `learning_rate_function(rate, cur_step_num)`.

    `rate` is the present rate as a Python float, `cur_step_num` the number of steps so far. Raises ConfigError when the
    optimizer has a schedule, or when the function returns no valid rate.
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
        cb_params = run_context.original_args()
        for parameter in cb_params.optimizer.rates:
            rate = float(str(parameter.asnumpy()))  # 0.1, where the float32 is 0.10000000149
            new_rate = scalar(self.learning_rate_function(rate, cb_params.cur_step_num))
            at_least({"callback": "LearningRateScheduler", "step": cb_params.cur_step_num}, 0.0, learning_rate=new_rate)
            if new_rate != rate:
                parameter.set_data(np.float32(new_rate))
                LOG.info("at step %d the learning rate changes to %s", cb_params.cur_step_num, new_rate)


class LambdaCallback(Callback):
    """Functions of the run context as hooks: `LambdaCallback(step_end=lambda run_context: ...)`.

    Names are begin, epoch_begin, step_begin, step_end, epoch_end and end. Raises ConfigError for other names, and for
    values that are not callable.
    """

    def __init__(self, **hooks: Callable[[RunContext], object]) -> None:
        for name, hook in hooks.items():
            if name not in HOOKS:
                raise ConfigError("callbacks have no such hook", given=name, **known_names(name, HOOKS))
            if not callable(hook):
                raise ConfigError("a hook must be a function", hook=name, given=repr(hook))
        self.__dict__.update(hooks)  # instance attributes take precedence over the methods of the class

"""The callbacks that come with runner, most of them those of MindSpore.

Monitors, which print the loss and the time; `ModelCheckpoint`; those that control a training (`EarlyStopping`,
`LearningRateScheduler`, `LambdaCallback`); a progress bar. `SummaryCollector` has a file of its own.
"""

import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from runner import register
from runner.errors import ConfigError, TrainingError, known_names
from runner.host import files
from runner.host.console import LOG
from runner.host.json import fits
from runner.nn.cell import Cell
from runner.train.callback.base import Callback, CallbackParameters, RunContext, step_in_epoch
from runner.train.callback.state import require_state
from runner.train.checkpoint.parameters import appended_numbers, save_checkpoint
from runner.validation.arguments import at_least, flag, one_of, scalar, whole
from runner.validation.rules import MAX_COUNT, KeywordNames, Rule


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

    A resumed run measures its own steps: an epoch of which it executes none has no line.
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

    def state_dict(self) -> dict[str, Any]:
        return {}  # times are those of a process, and equal checkpoints have equal bytes


class EpochMonitor(Callback):
    """Print one line for each epoch: the mean loss of its steps, and the steps per second of this process."""

    def __init__(self) -> None:
        self._start, self._steps = 0.0, 0
        self._sum, self._losses = 0.0, 0  # a loss without reduction is a number per sample

    def epoch_begin(self, run_context: RunContext) -> None:
        self._start, self._steps = time.perf_counter(), run_context.original_args().cur_step_num
        self._sum, self._losses = 0.0, 0

    def step_end(self, run_context: RunContext) -> None:
        losses = run_context.original_args().losses  # of one step, or of those of a sink
        self._sum += float(losses.sum(dtype=np.float64))
        self._losses += losses.size

    def epoch_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if not self._losses:
            return
        rate = (cb_params.cur_step_num - self._steps) / (time.perf_counter() - self._start)
        epoch = f"epoch {cb_params.cur_epoch_num} of {cb_params.epoch_num}"
        print(f"{epoch}: loss {self._sum / self._losses:.4g}, {rate:.0f} steps/s", flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "losses": self._losses}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_state(self, fits(state, {"sum": float, "losses": int}) and state["losses"] >= 0, state)
        self._sum, self._losses = state["sum"], state["losses"]


@register.callback("epoch_monitor")
def epoch_monitor() -> Callback:
    """A line with the mean loss of each epoch."""
    return EpochMonitor()


@register.callback("time_monitor")
def time_monitor() -> Callback:
    """A line with the time of each epoch."""
    return TimeMonitor()


# Checkpoints in MindSpore's format during training.

SUFFIX = ".ckpt"
COUNTERS = "epoch_num", "step_num"


class CheckpointConfig(KeywordNames):
    """When `ModelCheckpoint` saves, and which files it keeps; None and 0 are equivalent.

    It saves every `save_checkpoint_steps` steps; without them, when more than `save_checkpoint_seconds` seconds have
    passed. It keeps the newest `keep_checkpoint_max` files; without that, the newest one and one for every
    `keep_checkpoint_per_n_minutes` minutes; without either, the newest one. `integrated_save` has no effect, since
    runner does not split parameters; a file is complete before the next step, also with `async_save`. The files have
    the parameters of `saved_network` (None: the train network). `append_info` adds numbers to them: a list of
    "epoch_num", "step_num" and one dict of numbers by name, to whose `epoch_num` and `step_num` those of the training
    are added.
    `crc_check` is that of `save_checkpoint`. Raises ConfigError.
    """

    def __init__(
        self,
        save_checkpoint_steps: int | None = 1,
        save_checkpoint_seconds: int | None = 0,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_per_n_minutes: int | None = 0,
        integrated_save: bool = True,
        async_save: bool = False,
        saved_network: Cell | None = None,
        append_info: Sequence[str | Mapping[str, int | float | bool]] | None = None,
        *,
        crc_check: bool = True,
    ) -> None:
        where = {"callback": "CheckpointConfig"}
        numbers = {
            "save_checkpoint_steps": save_checkpoint_steps,
            "save_checkpoint_seconds": save_checkpoint_seconds,
            "keep_checkpoint_max": keep_checkpoint_max,
            "keep_checkpoint_per_n_minutes": keep_checkpoint_per_n_minutes,
        }
        whole(where, 0, **{name: value for name, value in numbers.items() if value is not None})
        flag(where, integrated_save=integrated_save, async_save=async_save, crc_check=crc_check)
        if not any(numbers.values()):
            raise ConfigError("one number must be more than 0", **where, allowed=", ".join(numbers))
        if saved_network is not None and not isinstance(saved_network, Cell):
            raise ConfigError("saved_network must be a Cell", **where, given=repr(saved_network))
        self.saved_network, self.append_dict = saved_network, _appended(append_info)
        self.save_checkpoint_steps = save_checkpoint_steps or 0
        self.save_checkpoint_seconds = 0 if save_checkpoint_steps else save_checkpoint_seconds or 0
        self.keep_checkpoint_per_n_minutes = 0 if keep_checkpoint_max else keep_checkpoint_per_n_minutes or 0
        self.keep_checkpoint_max = keep_checkpoint_max or (0 if self.keep_checkpoint_per_n_minutes else 1)
        self.integrated_save, self.async_save, self.crc_check = integrated_save, async_save, crc_check

    def get_checkpoint_policy(self) -> dict[str, Any]:
        """When it saves and what it keeps, by the names of the arguments."""
        names = ("save_checkpoint_steps", "save_checkpoint_seconds", "keep_checkpoint_max")
        return {name: getattr(self, name) for name in (*names, "keep_checkpoint_per_n_minutes", "saved_network")}


class ModelCheckpoint(Callback):
    """Saves the parameters of the train network as `{prefix}-{epoch}_{step}.ckpt` in `directory` (None: the working
    directory), which is created when training begins; also at the end, unless that step was just saved.

    If another run has left files of this prefix, those of this run begin with `{prefix}_{N}`, and only its own files
    are deleted. With data sinking, it can save after a sink only. Raises ConfigError for invalid arguments,
    StorageError when writing fails.
    """

    def __init__(
        self, prefix: str = "CKP", directory: str | Path | None = None, config: CheckpointConfig | None = None
    ) -> None:
        where = {"callback": "ModelCheckpoint"}
        if not isinstance(prefix, str) or not prefix.isprintable() or not prefix or "/" in prefix:
            raise ConfigError("prefix must be the beginning of a file name", **where, given=repr(prefix))
        if directory is not None and (not isinstance(directory, str | Path) or not str(directory)):
            raise ConfigError("directory must be the name of a directory", **where, given=repr(directory))
        if config is not None and not isinstance(config, CheckpointConfig):
            raise ConfigError("config must be a CheckpointConfig", **where, given=repr(config))
        self.prefix, self.directory = prefix, Path(directory or ".").absolute()
        self.config = CheckpointConfig() if config is None else config
        self._clock: Callable[[], float] = time.monotonic
        self._forget(0)

    def _forget(self, step: int) -> None:
        self._saved: list[tuple[Path, float]] = []  # the kept files and when they were written, oldest first
        self._saved_step, self._saved_time = step, self._clock()

    @property
    def latest_ckpt_file_name(self) -> str:
        """The newest file, with its directory; empty before the first one."""
        return str(self._saved[-1][0]) if self._saved else ""

    def begin(self, run_context: RunContext) -> None:
        files.make_directory(self.directory)
        self._run_prefix = _free_prefix(self.prefix, files.names(self.directory))
        self._forget(run_context.original_args().get("cur_step_num", 0))  # the loop of a script may not have it yet

    def step_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if self._due(cb_params.cur_step_num):
            self._save(cb_params)

    def end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if cb_params.cur_step_num > self._saved_step:
            self._save(cb_params)

    def state_dict(self) -> dict[str, Any]:
        """The prefix and the kept files, whose ages matter only where seconds or minutes decide what is saved."""
        now, by_time = self._clock(), self.config.keep_checkpoint_per_n_minutes or self.config.save_checkpoint_seconds
        ages = {"ages": [now - at for at in (*(at for _, at in self._saved), self._saved_time)]} if by_time else {}
        kept = [path.name for path, _ in self._saved]
        return {"prefix": self._run_prefix, "saved_step": self._saved_step, "files": kept, **ages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The files that the interrupted run has saved since are saved again, under the same names."""
        is_valid = fits(dict(state), {"prefix": str, "saved_step": int, "files": [str]}) and state["saved_step"] >= 0
        require_state(self, is_valid, state)
        names, own = state["files"], re.escape(state["prefix"]) + r"-\d+_\d+" + re.escape(SUFFIX)
        ages = state.get("ages", [0.0] * (len(names) + 1))
        is_valid = fits(ages, [float]) and len(ages) == len(names) + 1
        require_state(self, is_valid and all(re.fullmatch(own, name) for name in names), state)
        now = self._clock()
        *written, self._saved_time = (now - age for age in ages)
        self._run_prefix, self._saved_step = state["prefix"], state["saved_step"]
        self._saved = [(self.directory / name, at) for name, at in zip(names, written, strict=True)]

    def _due(self, step: int) -> bool:
        if self.config.save_checkpoint_steps:
            return step >= self._saved_step + self.config.save_checkpoint_steps
        seconds = self.config.save_checkpoint_seconds
        return bool(seconds) and self._clock() - self._saved_time > seconds

    def _save(self, cb_params: CallbackParameters) -> None:
        path = self.directory / f"{self._run_prefix}-{cb_params.cur_epoch_num}_{step_in_epoch(cb_params)}{SUFFIX}"
        options = self.config.integrated_save, self.config.async_save, self._append_info(cb_params)
        network = cb_params.train_network if self.config.saved_network is None else self.config.saved_network
        save_checkpoint(network, path, *options, crc_check=self.config.crc_check)
        now = self._clock()
        kept = self._kept()
        for old, _ in self._saved:
            if old not in kept:
                _delete(old)
        self._saved = [(old, written) for old, written in self._saved if old in kept] + [(path, now)]
        self._saved_step, self._saved_time = cb_params.cur_step_num, now

    def _append_info(self, cb_params: CallbackParameters) -> dict[str, Any]:
        """The numbers to add to a file."""
        now = {"epoch_num": cb_params.cur_epoch_num, "step_num": cb_params.cur_step_num}
        return {name: value + now[name] if name in now else value for name, value in self.config.append_dict.items()}

    def _kept(self) -> set[Path]:
        """The earlier files to keep with a new one."""
        if self.config.keep_checkpoint_max:
            return {path for path, _ in self._saved[max(0, len(self._saved) + 1 - self.config.keep_checkpoint_max) :]}
        kept: set[Path] = set()
        due = 0.0
        for path, written in self._saved:
            if not kept or written >= due:
                kept.add(path)
                due = written + 60 * self.config.keep_checkpoint_per_n_minutes
        return kept


def _appended(append_info: object) -> dict[str, Any]:
    """The numbers that files begin with, by name. Raises ConfigError."""
    where = {"callback": "CheckpointConfig"}
    if append_info is not None and not isinstance(append_info, list | tuple):
        raise ConfigError("append_info must be a list", **where, given=repr(append_info))
    found: dict[str, Any] = {}
    dicts = 0
    for item in append_info or ():
        if isinstance(item, Mapping):
            dicts += 1
            found |= {name: number.item() for name, number in appended_numbers(item).items()}
        elif isinstance(item, str):
            one_of(where, COUNTERS, append_info=item)
            found.setdefault(item, 0)
        else:
            raise ConfigError("append_info has neither a name nor a dict", **where, given=repr(item))
    if dicts > 1:
        raise ConfigError("append_info has more than one dict", **where, given=repr(append_info))
    return found


def _free_prefix(prefix: str, names: list[str]) -> str:
    """The prefix, if necessary with a number above those of other runs.

    >>> _free_prefix("CKP", []), _free_prefix("CKP", ["CKP-1_9.ckpt"]), _free_prefix("CKP", ["CKP_7-1_9.ckpt"])
    ('CKP', 'CKP_1', 'CKP_8')
    """
    pattern = re.compile(re.escape(prefix) + "(?:_([0-9]{1,18}))?-.*" + re.escape(SUFFIX), re.DOTALL)
    taken = [int(found[1] or 0) for found in map(pattern.fullmatch, names) if found]
    return f"{prefix}_{max(taken) + 1}" if taken else prefix


def _delete(path: Path) -> None:
    """Delete a file that may be gone already. Raises StorageError."""
    with files.storage_errors("cannot delete a checkpoint", path):
        files.remove(path)


# Callbacks that control training: early stopping, the learning rate, and hooks from plain functions.

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

    def state_dict(self) -> dict[str, Any]:
        """What it has found so far, and the losses of the present epoch, an array of one axis."""
        found = {name: getattr(self, name) for name in ("best", "best_epoch", "stopped_epoch")}
        losses = {"losses": np.concatenate(self._losses)} if self._losses else {}
        return {**found, "waited": self._waited, **losses}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        losses, kinds = state.get("losses"), {"best_epoch": int, "stopped_epoch": (int, None), "waited": int}
        is_valid = fits(dict(state), kinds) and type(state.get("best", "")) in (float, type(None))
        is_valid = is_valid and min(state["best_epoch"], state["stopped_epoch"] or 0, state["waited"]) >= 0
        has_losses = isinstance(losses, np.ndarray) and losses.ndim == 1 and losses.dtype.kind == "f"
        require_state(self, is_valid and (losses is None or has_losses), state)
        self.best, self.best_epoch, self.stopped_epoch = state["best"], state["best_epoch"], state["stopped_epoch"]
        self._waited, self._losses = state["waited"], [] if losses is None else [losses]

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


# A progress bar on the terminal.


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

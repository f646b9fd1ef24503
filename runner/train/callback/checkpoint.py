"""Checkpoints in the reference's format during training (spec section 6.3)."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.errors import ConfigError
from runner.host import files
from runner.nn.cell import Cell
from runner.train.callback.base import Callback, CallbackParameters, RunContext, step_in_epoch
from runner.train.checkpoint.parameters import appended_numbers, save_checkpoint
from runner.validation.arguments import flag, one_of, whole
from runner.validation.keywords import KeywordNames

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

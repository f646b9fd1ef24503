"""Keys of the group `dump`, whose `name` decides which keys it has, and what does not fit together in them.

What the keys may be is said in `runner/dumps`, which is not imported before a dump is asked for.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, attempted
from runner.observe import dump as dumps
from runner.validation.records import Frozen
from runner.validation.rules import key
from runner.validation.validate import Invalid, existing_folder, invalid_value_error


def _key(default: Any, name: str) -> Any:
    return key(default, validate=lambda value: dumps.keys.validate_key(name, value))


class NoDump(Frozen):
    """No dump, unless `config`, a JSON file, asks for one; or, without it, MINDSPORE_DUMP_CONFIG."""

    name: str = key("none", choices=("none",))  # which one
    config: str | None = None  # relative to where the command was started


class SyncDump(Frozen):
    """What operators take and make, written before the next step begins."""

    name: str = key("sync", choices=("sync",))  # which one
    config: str | None = None  # a JSON file of MindSpore
    enable: bool = _key(True, "enable")  # false: no dump
    path: str | None = _key(None, "path")  # null: dump/ in the run directory
    net_name: str | None = _key(None, "net_name")  # null: the name of the network
    iteration: str = _key("0", "iteration")  # steps from 0: `0|5-8` or `all`
    dump_mode: int = _key(0, "dump_mode")  # 0: all operators, 1: those of `kernels`
    input_output: int = _key(0, "input_output")  # 0: both, 1: inputs, 2: outputs
    kernels: tuple[str, ...] = _key((), "kernels")  # full names, types or patterns
    support_device: tuple[int, ...] = _key(tuple(range(8)), "support_device")  # device ids that dump
    op_debug_mode: int = _key(0, "op_debug_mode")  # 3: only operators with results that are not finite
    trans_flag: bool = _key(True, "trans_flag")  # (N, C, H, W) on every device


class AsyncDump(Frozen):
    """The same, as it lies on the device, written while the training goes on."""

    name: str = key("async", choices=("async",))  # which one
    config: str | None = None  # a JSON file of MindSpore
    enable: bool = _key(True, "enable")  # false: no dump
    path: str | None = _key(None, "path")  # where; null: dump/ in the run directory
    net_name: str | None = _key(None, "net_name")  # a folder name; null: that of the network
    iteration: str = _key("0", "iteration")  # steps from 0: `0|5-8` or `all`
    dump_mode: int = _key(0, "dump_mode")  # 0: all operators, 1: those of `kernels`
    input_output: int = _key(0, "input_output")  # 0: both, 1: inputs, 2: outputs
    kernels: tuple[str, ...] = _key((), "kernels")  # full names, types or patterns
    support_device: tuple[int, ...] = _key(tuple(range(8)), "support_device")  # device ids that dump
    op_debug_mode: int = _key(0, "op_debug_mode")  # 3: only operators with results that are not finite
    file_format: str = _key("bin", "file_format")  # bin, or npy with statistic.csv
    queue_mb: int = key(256, low=1)  # memory of the queue of files, in MiB


class GeDump(Frozen):
    """An asynchronous dump with the keys of GE (seed 004), in a folder of its own for each run."""

    name: str = key("ge", choices=("ge",))  # which one
    config: str | None = None  # a JSON file of MindSpore
    enable_dump: bool = _key(True, "enable")  # false: no dump
    dump_path: str | None = None  # a folder that exists, relative to where the command was started
    dump_step: str | None = _key(None, "dump_step")  # null: every step
    dump_mode: str = key("output", choices=("input", "output", "all"))  # which side of operators
    file_format: str = _key("bin", "file_format")  # bin, or npy with statistic.csv
    queue_mb: int = key(256, low=1)  # memory of the queue of files, in MiB

    @property
    def enable(self) -> bool:
        """As the other kinds call it."""
        return self.enable_dump


Dump = NoDump | SyncDump | AsyncDump | GeDump
DUMPS: dict[str, type[Dump]] = {"none": NoDump, "sync": SyncDump, "async": AsyncDump, "ge": GeDump}


def is_asked(dump: Dump) -> bool:
    """Whether a run may dump something: only then `runner.experiment.dump` is needed, which tells what."""
    return not isinstance(dump, NoDump) or dump.config is not None or bool(os.environ.get(dumps.VARIABLE))


def from_file(dump: Dump) -> Any:
    """What a JSON file requests (`json_config.Asked`): that of `config`, or of the environment; or None.

    A group with keys of its own comes before the environment. Raises ConfigError, or ConfigErrors.
    """
    if isinstance(dump, NoDump) and dump.config is not None:
        return dumps.json_config.read(Path(dump.config), "dump.config")
    if isinstance(dump, NoDump) and os.environ.get(dumps.VARIABLE):
        return dumps.json_config.environment()
    return None


def disagreements(dump: Dump, sunk: bool) -> Iterator[ConfigError]:
    """What is wrong with a dump as a whole, its JSON file included; `sunk`: whether steps are sunk to the device."""
    asked, wrong = attempted(from_file, dump)
    if wrong:
        yield from wrong
        return
    if isinstance(dump, NoDump):
        if asked is not None and asked.settings is not None and asked.settings.kind == "sync" and sunk:
            yield _no_sinking(f"dump.config={dump.config}" if dump.config else dumps.VARIABLE)
        return
    if dump.config is not None:
        hint = f"dump=none dump.config={dump.config}, or the keys of dump={dump.name} without dump.config"
        yield ConfigError("a dump is asked for twice", key="dump.config", value=dump.config, allowed="null", hint=hint)
    if not dump.enable:
        return
    if isinstance(dump, GeDump):
        yield from _no_folder(dump.dump_path)
        return
    yield from dumps.keys.contradictions(asdict(dump), "dump")
    if isinstance(dump, SyncDump) and sunk:
        yield _no_sinking("dump=sync")


def _no_folder(path: str | None) -> Iterator[ConfigError]:
    try:
        if path is None:
            raise Invalid("dump=ge needs a folder", "a folder that exists", hint="dump.dump_path=...")
        existing_folder(path)
    except Invalid as invalid:
        yield invalid_value_error("dump.dump_path", path, invalid)


def _no_sinking(source: str) -> ConfigError:
    return ConfigError(
        "a synchronous dump writes after every step, and sunk steps do not come back one by one",
        key="dataset_sink_mode",
        value="true",
        allowed="false",
        dump=source,
        hint="dataset_sink_mode=false, or an asynchronous dump (dump=async)",
    )

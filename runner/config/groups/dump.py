"""Keys of the group `dump`, which depend on its `name`, and the dump that they request.

Their rules are in `runner.observe.dump`, whose modules are only loaded if a dump is requested.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from runner.errors import ConfigError, collect_errors
from runner.observe import dump
from runner.validation.records import Frozen
from runner.validation.rules import key
from runner.validation.validate import validate


def _key(default: Any, name: str) -> Any:
    return key(default, validate=lambda value: validate(*dump.KEYS[name], value))


class NoDump(Frozen):
    """No dump, unless `config`, a JSON file, requests one; or, without it, MINDSPORE_DUMP_CONFIG."""

    name: str = key("none", choices=("none",))  # the kind of dump
    config: str | None = None  # a JSON file, relative to the working directory


class _KernelDump(Frozen):
    """The keys of both dumps of seed 002."""

    name: str
    config: str | None = None  # a JSON file of MindSpore
    enable: bool = True  # false: no dump
    path: str | None = _key(None, "path")  # output folder; null: dump/ in the run directory
    net_name: str | None = _key(None, "net_name")  # name of the network in paths; null: that of the network
    iteration: str = _key("0", "iteration")  # steps from 0: `0|5-8` or `all`
    dump_mode: int = _key(0, "dump_mode")  # 0: all operators, 1: those of `kernels`
    input_output: int = _key(0, "input_output")  # 0: both, 1: inputs, 2: outputs
    kernels: tuple[str, ...] = _key((), "kernels")  # full names, types or patterns
    support_device: tuple[int, ...] = _key(tuple(range(8)), "support_device")  # device ids with a dump
    op_debug_mode: int = _key(0, "op_debug_mode")  # 3: only operators with NaN or Inf in their outputs

    def values(self) -> dict[str, Any]:
        """The values for `runner.observe.dump`, by its keys."""
        return {
            name: value for name, value in vars(self).items() if name not in ("name", "config") and value is not None
        }


class SyncDump(_KernelDump):
    """Inputs and outputs of operators, written before the next step begins."""

    name: str = key("sync", choices=("sync",))  # the kind of dump
    trans_flag: bool = True  # convert to NCHW on every device


class AsyncDump(_KernelDump):
    """Inputs and outputs of operators in the layout of the device, written in the background."""

    name: str = key("async", choices=("async",))  # the kind of dump
    file_format: str = _key("bin", "file_format")  # bin, or npy with statistic.csv
    queue_mb: int = _key(256, "queue_mb")  # memory of the queue of files, in MiB


class GeDump(Frozen):
    """An asynchronous dump with the keys of GE (seed 004), in a separate folder for each run."""

    name: str = key("ge", choices=("ge",))  # the kind of dump
    config: str | None = None  # a JSON file of MindSpore
    enable_dump: bool = True  # false: no dump
    dump_path: str | None = None  # an existing folder, relative to the working directory
    dump_step: str | None = _key(None, "dump_step")  # steps; null: all
    dump_mode: str = key("output", choices=("input", "output", "all"))  # inputs, outputs or both
    file_format: str = _key("bin", "file_format")  # bin, or npy with statistic.csv
    queue_mb: int = _key(256, "queue_mb")  # memory of the queue of files, in MiB

    def values(self) -> dict[str, Any]:
        """The values for `runner.observe.dump`, by its keys."""
        return {
            "enable": self.enable_dump,
            "dump_path": self.dump_path,
            "iteration": "all" if self.dump_step is None else self.dump_step,
            "input_output": ("all", "input", "output").index(self.dump_mode),
            "file_format": self.file_format,
            "queue_mb": self.queue_mb,
        }


Dump = NoDump | SyncDump | AsyncDump | GeDump
DUMPS: dict[str, type[Dump]] = {"none": NoDump, "sync": SyncDump, "async": AsyncDump, "ge": GeDump}


def is_requested(group: Dump) -> bool:
    """Whether a run may dump something."""
    return not isinstance(group, NoDump) or group.config is not None or bool(os.environ.get(dump.VARIABLE))


def settings(group: Dump, defaults: Mapping[str, str]) -> "dump.DumpSettings | None":
    """The dump that a group requests by its keys or, without them, by its JSON file or the environment.

    `defaults` has the `path` and the `net_name` for a group without them. Raises ConfigError or ConfigErrors.
    """
    if not is_requested(group):
        return None
    if isinstance(group, NoDump):
        if group.config is None:
            return dump.json_config.from_environment(dump.VARIABLE)
        return dump.json_config.read(Path(group.config), "dump.config")
    kind, values = cast("dump.Kind", group.name), group.values()
    if not values["enable"]:
        return None
    source = dump.json_config.text(kind, vars(group) if kind == "ge" else {**defaults, **values})
    return dump.DumpSettings.from_values(kind, values, "dump.", defaults, source)


def consistency_errors(group: Dump, sunk: bool) -> Iterator[ConfigError]:
    """Errors of a dump as a whole, its JSON file included; `sunk`: whether steps are sunk to the device."""
    if not isinstance(group, NoDump) and group.config is not None:
        hint = f"dump=none dump.config={group.config}, or the keys of dump={group.name} without dump.config"
        yield ConfigError("a dump is requested twice", key="dump.config", value=group.config, allowed="null", hint=hint)
    requested, errors = collect_errors(settings, group, {"path": "", "net_name": ""})
    yield from errors
    is_sync = isinstance(group, SyncDump) and group.enable
    if sunk and (is_sync or (requested is not None and requested.enabled and requested.kind == "sync")):
        source = dump.VARIABLE if group.config is None else f"dump.config={group.config}"
        yield ConfigError(
            "a synchronous dump writes after every step, which is not possible in a data sink",
            key="dataset_sink_mode",
            value="true",
            allowed="false",
            dump=source if isinstance(group, NoDump) else f"dump={group.name}",
            hint="dataset_sink_mode=false, or an asynchronous dump (dump=async)",
        )

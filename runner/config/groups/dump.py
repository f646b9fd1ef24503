"""Keys of the group `dump`, which depend on its `name`, and the dump that they request.

Those of `sync` and `async` are in `runner.observe.dump.settings`; whatever writes a dump is only loaded if one is
requested.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.errors import ConfigError, collect_errors
from runner.observe import dump
from runner.observe.dump.settings import FILE_FORMATS, MAX_QUEUE_MB, AsyncDump, DumpSettings, Iterations, SyncDump
from runner.validation.rules import Frozen, Invalid, as_path, existing_folder, invalid_value_error, key

MAX_SETS = 100
STEPS = 'numbers and ascending ranges with "|" between them, at most 100, such as "0|3-5|10", or null for every step'


def _path_in_json(config: str | None, group: object) -> str | None:
    """The folder of the dump that a JSON file requests. Raises ConfigError or ConfigErrors."""
    return None if config is None else str(dump.settings.read(Path(config), "dump.config").path)


class NoDump(Frozen):
    """No dump, unless `config`, a JSON file, requests one; or, without it, MINDSPORE_DUMP_CONFIG."""

    name: str = key("none", choices=("none",))  # the kind of dump
    config: str | None = key(None, path=True, writes=_path_in_json)  # a JSON file, relative to the working directory


def _dump_step(value: object) -> str:
    ranges = Iterations.parse(value, STEPS).ranges
    if ranges is None:
        raise Invalid("not a choice of steps", STEPS, "null")
    if len(ranges) > MAX_SETS:
        raise Invalid(f"{len(ranges)} sets of steps", STEPS)
    for part in str(value).split("|"):
        first, _, last = part.partition("-")
        if last and int(first) == int(last):
            raise Invalid(f"a range of steps that does not ascend: {part}", STEPS, first)
    return str(value)


class GeDump(Frozen):
    """An asynchronous dump with the keys of GE (seed 004), in a separate folder for each run."""

    name: str = key("ge", choices=("ge",))  # the kind of dump
    config: str | None = key(None, path=True)  # a JSON file of MindSpore
    enable_dump: bool = True  # false: no dump
    dump_path: str | None = key(None, path=True, writes=as_path)  # an existing folder, from the working directory
    dump_step: str | None = key(None, validate=_dump_step)  # steps; null: all
    dump_mode: str = key("output", choices=("input", "output", "all"))  # inputs, outputs or both
    file_format: str = key(FILE_FORMATS[0], choices=FILE_FORMATS)  # bin, or npy with statistic.csv
    queue_mb: int = key(256, low=1, high=MAX_QUEUE_MB)  # memory of the queue of files, in MiB

    def folder(self) -> Path:
        """The absolute `dump_path`. Raises ConfigError if it is null or not an existing folder."""
        try:
            if self.dump_path is None:
                raise Invalid("dump=ge needs a folder", "a folder that exists", hint="dump.dump_path=...")
            return Path(existing_folder(self.dump_path))
        except Invalid as invalid:
            raise invalid_value_error("dump.dump_path", self.dump_path, invalid) from None


Dump = NoDump | SyncDump | AsyncDump | GeDump


def is_requested(group: Dump) -> bool:
    """Whether a run may dump something."""
    return not isinstance(group, NoDump) or group.config is not None or bool(os.environ.get(dump.VARIABLE))


def settings(group: Dump, defaults: Mapping[str, str]) -> DumpSettings | None:
    """The dump that a group requests by its keys or, without them, by its JSON file or the environment.

    `defaults` has the `path` and the `net_name` for a group without them. Raises ConfigError or ConfigErrors.
    """
    if isinstance(group, NoDump):
        if group.config is None:
            return dump.settings.from_environment(dump.VARIABLE) if is_requested(group) else None
        return dump.settings.read(Path(group.config), "dump.config")
    if isinstance(group, GeDump):
        return _ge_settings(group, defaults["net_name"]) if group.enable_dump else None
    if not group.enable:
        return None
    values = {**vars(group), **{name: value for name, value in defaults.items() if getattr(group, name) is None}}
    return DumpSettings.from_values(values, "dump.", dump.settings.text(values))


def _ge_settings(group: GeDump, net_name: str) -> DumpSettings:
    return DumpSettings(
        "ge",
        group.folder(),
        net_name,
        Iterations.parse("all" if group.dump_step is None else group.dump_step),
        inputs=group.dump_mode != "output",
        outputs=group.dump_mode != "input",
        trans_flag=False,
        file_format=group.file_format,
        queue_mb=group.queue_mb,
        source=dump.settings.text(vars(group)),
    )


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

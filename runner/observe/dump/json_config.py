"""A dump as a JSON file asks for it: `dump.config`, or the environment variable of scripts (spec sections 3.1, 3.2).

    common_dump_settings  dump_mode, path, net_name, iteration, input_output, kernels, support_device;
                          op_debug_mode, enable (that of the asynchronous dump) and file_format may be left out
    e2e_dump_settings     enable, trans_flag: the synchronous dump
    async_dump_settings   enable; op_debug_mode, if it is not among the common ones

With the first section alone the asynchronous dump is on. Of both, the synchronous one is made.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, StorageError, nearest, raise_all
from runner.host import json_file
from runner.host.files import make_directory
from runner.observe.dump import keys
from runner.observe.dump.settings import VARIABLE, DumpSettings, Kind
from runner.validation.validate import Invalid, invalid_value_error, show

COMMON, SYNC, ASYNC = "common_dump_settings", "e2e_dump_settings", "async_dump_settings"
EXAMPLES: Mapping[str, Mapping[str, object]] = {  # the keys that each section must have
    COMMON: {
        "dump_mode": 0,
        "path": "/absolute_path",
        "net_name": "ResNet50",
        "iteration": "0|5-8|100-120",
        "input_output": 0,
        "kernels": [],
        "support_device": list(range(8)),
    },
    SYNC: {"enable": True, "trans_flag": True},
    ASYNC: {"enable": True},
}
OPTIONAL = {COMMON: ("op_debug_mode", "enable", "file_format"), SYNC: (), ASYNC: ("op_debug_mode",)}
_LOG = logging.getLogger("runner")


@dataclass(frozen=True)
class Asked:
    """A dump that somebody asks for, on all devices or some; `settings` is None when it is switched off."""

    settings: DumpSettings | None
    devices: tuple[int, ...] | None = None
    warnings: tuple[str, ...] = ()

    def on(self, device_id: int) -> DumpSettings | None:
        """The dump of a device, whose folder is there afterwards; None, and a warning, when there is nothing to do.

        Raises StorageError when the folder cannot be made or written.
        """
        for line in self.warnings:
            _LOG.warning("%s", line)
        if self.settings is None:
            return None
        if self.devices is not None and device_id not in self.devices:
            listed = ", ".join(map(str, self.devices)) or "empty"
            _LOG.warning("nothing is dumped: device %d is not in support_device (%s)", device_id, listed)
            return None
        make_directory(self.settings.path)
        if not os.access(self.settings.path, os.W_OK | os.X_OK):
            raise StorageError("the path of the dump is not writable", path=self.settings.path)
        return self.settings


def from_environment(device_id: int) -> DumpSettings | None:
    """The dump that MINDSPORE_DUMP_CONFIG asks for on a device, or None. Raises as `environment` and `Asked.on`."""
    asked = environment()
    return None if asked is None else asked.on(device_id)


def environment() -> Asked | None:
    """What MINDSPORE_DUMP_CONFIG asks for; None when it is not set or empty.

    Raises ConfigError when it is not the absolute path of a JSON file, and as `read`.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    if not os.path.isabs(value):
        meant = os.path.abspath(os.path.expanduser(value))
        raise invalid_value_error(
            VARIABLE, value, Invalid("not an absolute path", "the absolute path of a .json file", meant)
        )
    return read(Path(value), VARIABLE)


def read(path: Path, key: str) -> Asked:
    """What a JSON file asks for; `key` is where its name stands.

    Raises ConfigError, or ConfigErrors with everything that is wrong in the file.
    """
    if path.suffix != ".json":
        raise invalid_value_error(key, str(path), Invalid("not a JSON file", "a file whose name ends in .json"))
    try:
        source = json_file.content(path)
        values = json_file.parsed(json_file.text(source), str(path))
    except ConfigError as wrong:
        rows = {"key": key} | ({} if "from" in wrong.rows else {"file": str(path)}) | wrong.rows
        raise ConfigError(wrong.what).add(**rows) from None
    return _File(path, values).asked(source)


class _File:
    """Collects what is wrong in a file."""

    def __init__(self, path: Path, values: object) -> None:
        self.path, self.values = path, values
        self.errors: list[ConfigError] = []

    def asked(self, source: bytes) -> Asked:
        sections = self.sections()
        raise_all(self.errors)
        common, sync, other = (sections.get(name, {}) for name in (COMMON, SYNC, ASYNC))
        self.errors += keys.contradictions(common, COMMON, file=self.path)
        self.compare(common, other)
        if sync.get("enable") and common.get("file_format") == "npy":
            invalid = Invalid("a synchronous dump writes no .npy", "bin", hint=f"{SYNC}.enable: false")
            self.errors.append(invalid_value_error(f"{COMMON}.file_format", "npy", invalid, file=self.path))
        raise_all(self.errors)
        alone = not sync and not other
        on: dict[Kind, bool] = {
            "sync": sync.get("enable", False),
            "async": other.get("enable", common.get("enable", alone)),
        }
        kind = next((kind for kind in on if on[kind]), None)
        settings = kind and keys.settings(kind, common | (sync if kind == "sync" else other), source)
        return Asked(settings, tuple(common["support_device"]), tuple(self.warnings(on)))

    def sections(self) -> dict[str, dict[str, Any]]:
        """The sections that are there, with the keys whose values are right."""
        if not isinstance(self.values, dict):
            invalid = Invalid("not a group of keys", ", ".join(EXAMPLES))
            self.errors.append(invalid_value_error(COMMON, self.values, invalid, file=self.path))
            return {}
        self.known(self.values, tuple(EXAMPLES), "")
        if COMMON not in self.values:
            self.missing(COMMON, EXAMPLES[COMMON])
        return {name: self.section(name, self.values[name]) for name in EXAMPLES if name in self.values}

    def section(self, name: str, values: object) -> dict[str, Any]:
        names = (*EXAMPLES[name], *OPTIONAL[name])
        if not isinstance(values, dict):
            self.errors.append(
                invalid_value_error(name, values, Invalid("not a group of keys", ", ".join(names)), file=self.path)
            )
            return {}
        self.known(values, names, f"{name}.")
        for key in EXAMPLES[name]:
            if key not in values:
                self.missing(f"{name}.{key}", EXAMPLES[name][key])
        return {key: self.value(f"{name}.{key}", key, values[key]) for key in names if key in values}

    def value(self, place: str, key: str, value: object) -> Any:
        try:
            return keys.validate_key(key, value)
        except Invalid as invalid:
            self.errors.append(invalid_value_error(place, value, invalid, file=self.path))
            return None

    def known(self, values: Mapping[str, Any], names: tuple[str, ...], prefix: str) -> None:
        for name in values:
            if name not in names:
                close = nearest(name, names)
                invalid = Invalid("unknown key", ", ".join(names), close and prefix + close)
                self.errors.append(invalid_value_error(prefix + name, values[name], invalid, file=self.path))

    def missing(self, key: str, example: object) -> None:
        name = key.rpartition(".")[2]
        self.errors.append(
            ConfigError("a key is missing", key=key, file=self.path, such_as=f'"{name}": {show(example)}')
        )

    def compare(self, common: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        for name in other:
            if name in common and common[name] != other[name]:
                invalid = Invalid(
                    "a key says two things", f"{show(common[name])}, as {COMMON}.{name}, or one of the two"
                )
                self.errors.append(invalid_value_error(f"{ASYNC}.{name}", other[name], invalid, file=self.path))

    def warnings(self, on: Mapping[Kind, bool]) -> list[str]:
        if all(on.values()):
            return [f"{self.path} enables both dumps: only the synchronous one is made"]
        if not any(on.values()):
            return [f"nothing is dumped: {self.path} enables neither of the dumps"]
        return []

"""A dump in a JSON file: `dump.config`, or the environment variable of scripts (spec sections 3.1, 3.2).

    common_dump_settings  dump_mode, path, net_name, iteration, input_output, kernels, support_device;
                          op_debug_mode, enable (that of the asynchronous dump) and file_format may be left out
    e2e_dump_settings     enable, trans_flag: the synchronous dump
    async_dump_settings   enable; op_debug_mode, if it is not among the common ones

With only the first section, the asynchronous dump is on. If both are on, only the synchronous dump is written.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, raise_all
from runner.host import json as json_file
from runner.observe.dump.settings import AsyncDump, DumpSettings, SyncDump
from runner.validation.rules import FREE, Invalid, invalid_value_error, keys_of, show, validate_keys

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
_KEYS = keys_of(SyncDump) | keys_of(AsyncDump)
_KEYS |= {name: (str, _KEYS[name][1]) for name in ("path", "net_name")}  # null is not possible in a file


def from_environment(variable: str) -> DumpSettings | None:
    """The dump that an environment variable requests; None if it is not set or empty.

    Raises ConfigError if it is not the absolute path of a JSON file, and as `read`.
    """
    value = os.environ.get(variable)
    if not value:
        return None
    if not os.path.isabs(value):
        meant = os.path.abspath(os.path.expanduser(value))
        invalid = Invalid("not an absolute path", "the absolute path of a .json file", meant)
        raise invalid_value_error(variable, value, invalid)
    return read(Path(value), variable)


def read(path: Path, key: str) -> DumpSettings:
    """The dump that a JSON file requests; `key` is the config key or variable with its path.

    Raises ConfigError, or ConfigErrors with everything that is wrong in the file.
    """
    if path.suffix != ".json":
        raise invalid_value_error(key, str(path), Invalid("not a JSON file", "a file whose name ends in .json"))
    try:
        source = json_file.content(path)
        values = json_file.parse(json_file.text(source), str(path))
    except ConfigError as wrong:
        rows = {"key": key} | ({} if "from" in wrong.rows else {"file": str(path)}) | wrong.rows
        raise ConfigError(wrong.what).add(**rows) from None
    common, sync, other = _sections(values, path)
    is_sync = sync.get("enable", False)
    is_async = other.get("enable", common.get("enable", not sync and not other))
    keys = vars(SyncDump() if is_sync else AsyncDump()) | common | (sync if is_sync else other)
    settings = DumpSettings.from_values(keys, f"{COMMON}.", source, file=path)
    if is_sync and is_async:
        return replace(settings, warning=f"{path} enables both dumps: only the synchronous one is written")
    if not is_sync and not is_async:
        return replace(settings, enabled=False, warning=f"nothing is dumped: {path} enables neither of the dumps")
    return settings


def text(values: Mapping[str, Any]) -> bytes:
    """The JSON text with the values of a group: a file that `read` takes, or the keys of GE."""
    if values["name"] == "ge":
        content = {name: values[name] for name in ("enable_dump", "dump_path", "dump_step", "dump_mode")}
    else:
        content = {COMMON: {name: values[name] for name in (*EXAMPLES[COMMON], "op_debug_mode")}}
    if values["name"] == "sync":
        content[SYNC] = {name: values[name] for name in EXAMPLES[SYNC]}
    if values["name"] == "async" and values["file_format"] != "bin":
        content[COMMON]["file_format"] = values["file_format"]
    return (json.dumps(content, indent=4) + "\n").encode()


def _sections(values: object, path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The valid values of the three sections. Raises ConfigError or ConfigErrors."""
    if not isinstance(values, dict):
        raise invalid_value_error(COMMON, values, Invalid("not a group of keys", ", ".join(EXAMPLES)), file=path)
    found, errors = validate_keys(values, dict.fromkeys(EXAMPLES, (object, FREE)), file=path)
    if COMMON not in values:
        errors.append(_missing(COMMON, EXAMPLES[COMMON], path))
    for name, section in found.items():
        found[name], wrong = _section(name, section, path)
        errors += wrong
    common, sync, other = (found.get(name, {}) for name in EXAMPLES)
    for name in other:
        if name in common and common[name] != other[name]:
            invalid = Invalid("a key has two values", f"{show(common[name])}, as {COMMON}.{name}, or one of the two")
            errors.append(invalid_value_error(f"{ASYNC}.{name}", other[name], invalid, file=path))
    if sync.get("enable") and common.get("file_format") == "npy":
        invalid = Invalid("a synchronous dump writes no .npy", "bin", hint=f"{SYNC}.enable: false")
        errors.append(invalid_value_error(f"{COMMON}.file_format", "npy", invalid, file=path))
    raise_all(errors)
    return common, sync, other


def _section(name: str, section: object, path: Path) -> tuple[dict[str, Any], list[ConfigError]]:
    """The valid values of a section, and an error for each key that is missing or not valid."""
    keys = {key: _KEYS[key] for key in (*EXAMPLES[name], *OPTIONAL[name])}
    if not isinstance(section, dict):
        return {}, [invalid_value_error(name, section, Invalid("not a group of keys", ", ".join(keys)), file=path)]
    valid, wrong = validate_keys(section, keys, f"{name}.", file=path)
    return valid, [*wrong, *(_missing(f"{name}.{k}", v, path) for k, v in EXAMPLES[name].items() if k not in section)]


def _missing(key: str, example: object, path: Path) -> ConfigError:
    such_as = f'"{key.rpartition(".")[2]}": {show(example)}'
    return ConfigError("a key is missing", key=key, file=path, such_as=such_as)

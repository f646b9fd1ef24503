"""The keys of a dump, and the settings with their values, from whatever source (MindSpore: "Using Dump").

The config imports this module in every start: it loads nothing that writes a dump but the formats of files, whose names
are the choices of `file_format`.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from runner.device import MAX_ID
from runner.errors import ConfigError, StorageError, raise_all
from runner.host.console import LOG
from runner.host.files import make_directory
from runner.host.json import config_bytes, decoded, parse_config
from runner.observe.dump.files import ASYNCHRONOUS
from runner.validation.rules import (
    FILE_PATH,
    FREE,
    Frozen,
    Invalid,
    as_path,
    invalid_value_error,
    key,
    keys_of,
    show,
    validate,
    validate_keys,
)

Kind = Literal["sync", "async", "ge"]
ALL = "all"
STEPS = 'numbers and ranges with "|" between them, counted from 0, such as "0|5-8|100-120", or "all"'
FILE_FORMATS = tuple(ASYNCHRONOUS)
MAX_QUEUE_MB = 1 << 20  # a TiB
PATH_KEY = "common_dump_settings.path"  # in a JSON file
# Patterns of what dumps write below their path, ours and those of MindSpore.
FILES = (
    *("*/*/iteration_[0-9]*", "*/iteration_[0-9]*", "[0-9]*/*_graph_[0-9]*", "rank_[0-9]*/*/[0-9]*"),
    ".metadata/data_dump.json",
)
KERNELS = "a list of full names of operators, operator types and patterns with *"
PATH = "an absolute path of letters, digits, - _ and /"
NET_NAME = "letters, digits, - and _, at most 200"
_MODES = "0: all operators, 1: those that kernels names"
_SIDES = "0: inputs and outputs, 1: inputs, 2: outputs"
_DEVICES = "a list of device ids, such as [0, 1]"
_OVERFLOWS = "operators that overflow: 0 off, 1 computing, 2 summing, 3 all"
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class Iterations(Frozen):
    """Steps of a training, counted from 0: inclusive ranges in ascending order, or None for every step."""

    ranges: tuple[tuple[int, int], ...] | None

    @classmethod
    def parse(cls, value: object, allowed: str = STEPS) -> "Iterations":
        """The steps that `"0|5-8|100-120"`, `"all"` or a single number means. Raises Invalid.

        >>> Iterations.parse("5-8|0").ranges, Iterations.parse("all").ranges
        (((0, 0), (5, 8)), None)
        """
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise Invalid("not a choice of steps", allowed)
        if value == ALL:
            return cls(None)
        return cls(tuple(sorted(_bounds(part, str(value), allowed) for part in str(value).split("|"))))

    def next_step(self, step: int) -> int | None:
        """The first of the steps that is not before `step`; None if there is none."""
        if self.ranges is None:
            return step
        return min((max(first, step) for first, last in self.ranges if last >= step), default=None)


def _bounds(part: str, text: str, allowed: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(part)
    at = f": {show(part)}" if part not in ("", text) else ""
    if found is None:
        dense = re.sub(r"\s", "", text)
        meant = dense if dense != text and re.fullmatch(r"[\d|-]*\d", dense, re.ASCII) else None
        raise Invalid(f"not a choice of steps{at}", allowed, meant)
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise Invalid(f"a range of steps runs backwards{at}", allowed, f"{last}-{first}")
    return first, last


class DumpSettings(Frozen):
    """A dump. `path` is absolute and the root of the layout (interface of each `kind`).

    `inputs`, `outputs`: which side of operators. `kernels`: full names, operator types or patterns with `*`; None means
    all operators. `op_debug_mode` 1 to 3: only operators whose results overflow (compute, accumulating, all).
    `trans_flag`: whether values are written as (N, C, H, W), or else in the layout of the device. `file_format` of the
    asynchronous kinds: `bin` (the CANN dump file) or `npy`. `queue_mb`: what may wait to be written, in MiB.
    `source`: the content of `.metadata/data_dump.json`, which is not written if this is empty. `devices`: numbers of
    those that dump; None means all. A dump that is not `enabled` writes nothing. `warning` is for the log of the run.
    """

    kind: Kind
    path: Path
    net_name: str
    iterations: Iterations = Iterations(None)
    inputs: bool = True
    outputs: bool = True
    kernels: tuple[str, ...] | None = None
    op_debug_mode: int = 0
    trans_flag: bool = True
    file_format: str = FILE_FORMATS[0]
    queue_mb: int = 256
    source: bytes = b""
    devices: tuple[int, ...] | None = None
    enabled: bool = True
    warning: str = ""

    @classmethod
    def from_values(
        cls, values: Mapping[str, Any], prefix: str = "", source: bytes = b"", **rows: object
    ) -> "DumpSettings":
        """The dump with valid values of all keys of SyncDump or AsyncDump, whose `path` and `net_name` are not null.

        Raises ConfigError, with the key as `prefix` + name and with `rows`, if there are no kernels to dump.
        """
        if values["dump_mode"] and not values["kernels"]:
            about = {"value": "[]", "allowed": KERNELS, "hint": "dump_mode 0 dumps all operators"}
            what = "dump_mode 1 dumps the kernels, and there are none"
            raise ConfigError(what, key=f"{prefix}kernels", **rows, **about)
        return cls(
            values["name"],
            Path(values["path"]),
            values["net_name"],
            Iterations.parse(values["iteration"]),
            inputs=values["input_output"] != 2,
            outputs=values["input_output"] != 1,
            kernels=values["kernels"] if values["dump_mode"] else None,
            op_debug_mode=values["op_debug_mode"],
            trans_flag=values.get("trans_flag", False),
            source=source,
            devices=values["support_device"],
            **{name: values[name] for name in ("file_format", "queue_mb") if name in values},
        )

    def on(self, card: int | None) -> "DumpSettings | None":
        """The dump of a card, whose folder exists afterwards; None, and a warning, if the card dumps nothing.

        On the CPU (`card` None), which has no cards, the list of devices has no effect, and neither has `trans_flag`.

        Raises StorageError if the folder cannot be created or written.
        """
        if self.warning:
            LOG.warning("%s", self.warning)
        if not self.enabled:
            return None
        if self.devices is not None and (card or 0) not in self.devices:
            listed = ", ".join(map(str, self.devices)) or "empty"
            if card is not None:
                LOG.warning("nothing is dumped: device %d is not in support_device (%s)", card, listed)
                return None
            LOG.warning("support_device (%s) has no effect on the CPU", listed)
        make_directory(self.path)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise StorageError("the path of the dump is not writable", path=self.path)
        return replace(self, trans_flag=True) if self.kind == "sync" and card is None else self


def _path(value: object) -> str:
    text: str = validate(str, FILE_PATH, value)
    if not text.startswith("/"):
        meant = os.path.abspath(os.path.expanduser(text))
        raise Invalid("not an absolute path", PATH, meant if text and not _forbidden(meant) else None)
    if forbidden := _forbidden(text):
        raise Invalid(f"characters that the path of a dump cannot have: {forbidden}", PATH)
    for path in (Path(text), *Path(text).parents):
        if os.path.lexists(path) and not os.path.isdir(path):
            raise Invalid(f"not a folder: {path}", "a folder, or a path that does not exist")
    return text


def _forbidden(path: str) -> str:
    return " ".join(show(one) for one in dict.fromkeys(re.findall(r"[^A-Za-z0-9_/-]", path)))


def _net_name(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", text):
        meant = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:200]
        raise Invalid("not the name of a network", NET_NAME, meant or None)
    return text


def _iteration(value: object) -> str:
    Iterations.parse(value)
    return str(value)


def _kernels(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name.strip() for name in value):
        raise Invalid("not a list of names", KERNELS, f"[{show(value)}]" if isinstance(value, str) and value else None)
    return tuple(dict.fromkeys(value))


class _KernelDump(Frozen):
    """The keys of both dumps of MindSpore."""

    name: str
    config: str | None = key(None, path=True)  # a JSON file of MindSpore
    enable: bool = True  # false: no dump
    path: str | None = key(None, validate=_path, writes=as_path)  # output folder; null: dump/ in the run directory
    net_name: str | None = key(None, validate=_net_name)  # name of the network in paths; null: that of the network
    iteration: str = key("0", validate=_iteration)  # steps from 0: `0|5-8` or `all`
    dump_mode: int = key(0, low=0, high=1, hint=_MODES)  # 0: all operators, 1: those of `kernels`
    input_output: int = key(0, low=0, high=2, hint=_SIDES)  # 0: both, 1: inputs, 2: outputs
    kernels: tuple[str, ...] = key((), validate=_kernels)  # full names, types or patterns
    support_device: tuple[int, ...] = key(tuple(range(8)), low=0, high=MAX_ID, hint=_DEVICES)  # device ids with a dump
    op_debug_mode: int = key(0, low=0, high=3, hint=_OVERFLOWS)  # 3: only operators with NaN or Inf in their outputs


class SyncDump(_KernelDump):
    """Inputs and outputs of operators, written before the next step begins."""

    name: str = key("sync", choices=("sync",))  # the kind of dump
    trans_flag: bool = True  # convert to NCHW on every device


class AsyncDump(_KernelDump):
    """Inputs and outputs of operators in the layout of the device, written in the background."""

    name: str = key("async", choices=("async",))  # the kind of dump
    file_format: str = key(FILE_FORMATS[0], choices=FILE_FORMATS)  # bin, or npy with statistic.csv
    queue_mb: int = key(256, low=1, high=MAX_QUEUE_MB)  # memory of the queue of files, in MiB


# A dump in a JSON file: `dump.config`, or the environment variable of scripts.

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

    Its sections have the keys in EXAMPLES, and may have those in OPTIONAL; `enable` of the common section is that of
    the asynchronous dump. With only the common section, the asynchronous dump is on. If both are on, only the
    synchronous dump is written.

    Raises ConfigError, or ConfigErrors with everything that is wrong in the file.
    """
    if path.suffix != ".json":
        raise invalid_value_error(key, str(path), Invalid("not a JSON file", "a file whose name ends in .json"))
    try:
        source = config_bytes(path)
        values = parse_config(decoded(source), str(path))
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
    if sync.get("enable") and (name := common.get("file_format", FILE_FORMATS[0])) != FILE_FORMATS[0]:
        invalid = Invalid(f"a synchronous dump writes no .{name}", FILE_FORMATS[0], hint=f"{SYNC}.enable: false")
        errors.append(invalid_value_error(f"{COMMON}.file_format", name, invalid, file=path))
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

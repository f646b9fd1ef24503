"""The keys of a dump, and the settings with their values, from whatever source (spec sections 3.2 and 7)."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.device import MAX_ID
from runner.errors import ConfigError, StorageError, raise_all
from runner.host.files import make_directory
from runner.host.log import LOG
from runner.validation.keys import Keys, validate_keys
from runner.validation.rules import FREE, Rule
from runner.validation.validate import Invalid, existing_folder, show, validate

Kind = Literal["sync", "async", "ge"]
ALL = "all"
STEPS = 'numbers and ranges with "|" between them, counted from 0, such as "0|5-8|100-120", or "all"'
GE_STEPS = 'numbers and ascending ranges with "|" between them, at most 100, such as "0|3-5|10", or null for every step'
MAX_SETS = 100
KERNELS = "a list of full names of operators, operator types and patterns with *"
PATH = "an absolute path of letters, digits, - _ and /"
NET_NAME = "letters, digits, - and _"
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


@dataclass(frozen=True)
class Iterations:
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


@dataclass(frozen=True)
class DumpSettings:
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
    file_format: Literal["bin", "npy"] = "bin"
    queue_mb: int = 256
    source: bytes = b""
    devices: tuple[int, ...] | None = None
    enabled: bool = True
    warning: str = ""

    @classmethod
    def from_values(
        cls,
        kind: Kind,
        values: Mapping[str, Any],
        prefix: str = "",
        defaults: Mapping[str, str] = {},
        source: bytes = b"",
        **rows: object,
    ) -> "DumpSettings":
        """The dump with these values of KEYS; `defaults` has a `path` and a `net_name` for values without them.

        Without `dump_mode`, `kernels` are dumped if there is such a key. Raises ConfigError, or ConfigErrors, with the
        key as `prefix` + name and with `rows`.
        """
        valid, errors = validate_keys(values, KEYS, prefix, **rows)
        if valid.get("dump_mode") and valid.get("kernels") == ():
            about = {"value": "[]", "allowed": KERNELS, "hint": "dump_mode 0 dumps all operators"}
            what = "dump_mode 1 dumps the kernels, and there are none"
            errors.append(ConfigError(what, key=f"{prefix}kernels", **rows, **about))
        raise_all(errors)
        valid = {**defaults, **valid}
        return cls(
            kind,
            Path(valid.get("dump_path") or valid["path"]),
            valid["net_name"],
            Iterations.parse(valid.get("iteration", ALL)),
            inputs=valid.get("input_output") != 2,
            outputs=valid.get("input_output") != 1,
            kernels=valid["kernels"] if valid.get("dump_mode", "kernels" in valid) else None,
            trans_flag=valid.get("trans_flag", False),
            source=source,
            devices=valid.get("support_device"),
            **{name: valid[name] for name in ("op_debug_mode", "file_format", "queue_mb") if name in valid},
        )

    def on(self, device_id: int) -> "DumpSettings | None":
        """The dump of a device, whose folder exists afterwards; None, and a warning, if the device dumps nothing.

        Raises StorageError if the folder cannot be created or written.
        """
        if self.warning:
            LOG.warning("%s", self.warning)
        if not self.enabled:
            return None
        if self.devices is not None and device_id not in self.devices:
            listed = ", ".join(map(str, self.devices)) or "empty"
            LOG.warning("nothing is dumped: device %d is not in support_device (%s)", device_id, listed)
            return None
        make_directory(self.path)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise StorageError("the path of the dump is not writable", path=self.path)
        return self


def _path(value: object) -> str:
    text: str = validate(str, FREE, value)
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
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise Invalid("not the name of a network", NET_NAME, re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") or None)
    return text


def _iteration(value: object) -> str:
    Iterations.parse(value)
    return str(value)


def _kernels(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name.strip() for name in value):
        raise Invalid("not a list of names", KERNELS, f"[{show(value)}]" if isinstance(value, str) and value else None)
    return tuple(dict.fromkeys(value))


def _dump_path(value: object) -> str:
    if value is None:
        raise Invalid("dump=ge needs a folder", "a folder that exists", hint="dump.dump_path=...")
    return existing_folder(validate(str, FREE, value))


def _dump_step(value: object) -> str:
    ranges = Iterations.parse(value, GE_STEPS).ranges
    if ranges is None:
        raise Invalid("not a choice of steps", GE_STEPS, "null")
    if len(ranges) > MAX_SETS:
        raise Invalid(f"{len(ranges)} sets of steps", GE_STEPS)
    for part in str(value).split("|"):
        first, _, last = part.partition("-")
        if last and int(first) == int(last):
            raise Invalid(f"a range of steps that does not ascend: {part}", GE_STEPS, first)
    return str(value)


KEYS: Keys = {
    "enable": (bool, FREE),
    "trans_flag": (bool, FREE),
    "dump_mode": (int, Rule(low=0, high=1, hint="0: all operators, 1: those that kernels names")),
    "path": (str, Rule(validate=_path)),
    "net_name": (str, Rule(validate=_net_name)),
    "iteration": (str, Rule(validate=_iteration)),
    "input_output": (int, Rule(low=0, high=2, hint="0: inputs and outputs, 1: inputs, 2: outputs")),
    "kernels": (tuple[str, ...], Rule(validate=_kernels)),
    "support_device": (tuple[int, ...], Rule(low=0, high=MAX_ID, hint="a list of device ids, such as [0, 1]")),
    "op_debug_mode": (int, Rule(low=0, high=3, hint="operators that overflow: 0 off, 1 computing, 2 summing, 3 all")),
    "file_format": (str, Rule(choices=("bin", "npy"))),
    "queue_mb": (int, Rule(low=1)),
    "dump_path": (str, Rule(validate=_dump_path)),
    "dump_step": (str, Rule(validate=_dump_step)),
}

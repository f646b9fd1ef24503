"""What the keys of a dump may be, whether a config or a JSON file has them (spec sections 3.2 and 7)."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.device import MAX_ID
from runner.errors import ConfigError
from runner.observe.dump.settings import ALL, ITERATION_HINT, DumpSettings, Iterations, Kind
from runner.validation.rules import FREE, Rule
from runner.validation.validate import Invalid, show, validate

KERNELS = "a list of full names of operators, operator types and patterns with *"
PATH = "an absolute path of letters, digits, - _ and /"
NET_NAME = "letters, digits, - and _"
GE_STEPS = 'numbers and ascending ranges with "|" between them, at most 100, such as "0|3-5|10", or null for every step'
MOST_SETS = 100


def validate_key(name: str, value: object) -> Any:
    """The value of a key in its final form. Raises Invalid."""
    kind, rule = _KEYS[name]
    try:
        return validate(kind, rule, value)
    except Invalid as invalid:
        invalid.hint = invalid.hint or rule.hint
        raise


def settings(kind: Kind, values: Mapping[str, Any], source: bytes) -> DumpSettings:
    """The dump that validated values ask for, those of one kind together; keys that a kind lacks have their defaults.

    Only a synchronous dump turns values from the device's format: the files of the others say in which they are.
    """
    chosen = values["input_output"]
    return DumpSettings(
        kind=kind,
        path=Path(values["path"]),
        net_name=values["net_name"],
        iterations=Iterations.parse(values["iteration"]),
        inputs=chosen != 2,
        outputs=chosen != 1,
        kernels=tuple(values["kernels"]) if values["dump_mode"] else None,
        op_debug_mode=values.get("op_debug_mode", 0),
        trans_flag=values.get("trans_flag", False),
        file_format=values.get("file_format", "bin"),
        queue_mb=values.get("queue_mb", DumpSettings.queue_mb),
        source=source,
    )


def contradictions(values: Mapping[str, Any], group: str, **rows: object) -> Iterator[ConfigError]:
    """What does not fit together in a group of validated values; `rows` say where it is."""
    if values["dump_mode"] and not values["kernels"]:
        about = {"value": show(values["kernels"]), "allowed": KERNELS, "hint": "dump_mode 0 dumps all operators"}
        yield ConfigError("dump_mode 1 dumps the kernels, and there are none", key=f"{group}.kernels", **rows, **about)


def _path(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not text.startswith("/"):
        meant = os.path.abspath(os.path.expanduser(text))
        raise Invalid("not an absolute path", PATH, meant if text and not _strange(meant) else None)
    if strange := _strange(text):
        raise Invalid(f"characters that the path of a dump cannot have: {strange}", PATH)
    for place in (Path(text), *Path(text).parents):
        if os.path.lexists(place) and not os.path.isdir(place):
            raise Invalid(f"not a folder: {place}", "a folder, or a place where nothing is yet")
    return text


def _strange(path: str) -> str:
    return " ".join(show(one) for one in dict.fromkeys(re.findall(r"[^A-Za-z0-9_/-]", path)))


def _net_name(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise Invalid("not the name of a network", NET_NAME, re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") or None)
    return text


def _iteration(value: object) -> str:
    _steps(value, ITERATION_HINT)
    return str(value)


def _dump_step(value: object) -> str:
    if value == ALL:
        raise Invalid("not a choice of steps", GE_STEPS, "null")
    chosen = _steps(value, GE_STEPS).ranges or ()
    if len(chosen) > MOST_SETS:
        raise Invalid(f"{len(chosen)} sets of steps", GE_STEPS)
    for part in str(value).split("|"):
        first, _, last = part.partition("-")
        if last and int(first) == int(last):
            raise Invalid(f"a range of steps that does not ascend: {part}", GE_STEPS, first)
    return str(value)


def _steps(value: object, allowed: str) -> Iterations:
    try:
        return Iterations.parse(value)
    except ConfigError as wrong:
        part = wrong.rows.get("part", "").strip("'")
        what = f"{wrong.what}: {show(part)}" if part and part != str(value) else wrong.what
        raise Invalid(what, allowed, wrong.rows.get("hint") or _without_spaces(value)) from None


def _without_spaces(value: object) -> str | None:
    if not isinstance(value, str) or not re.search(r"\s", value):
        return None
    text = re.sub(r"\s", "", value)
    return text if re.fullmatch(r"[\d|-]*\d", text, re.ASCII) else None


def _kernels(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name.strip() for name in value):
        raise Invalid("not a list of names", KERNELS, f"[{show(value)}]" if isinstance(value, str) and value else None)
    return tuple(dict.fromkeys(value))


_KEYS: dict[str, tuple[Any, Rule]] = {
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
    "dump_step": (str, Rule(validate=_dump_step)),
}

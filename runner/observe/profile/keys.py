"""What the keys of a profile may be, in a config, in the JSON text of the context, and as words with colons.

The JSON text is that of `profiling_options` of the context, `{"result_path": "/data", "training_trace": "on"}`; the
words are those of a session, `training_trace:task_trace` (spec sections 5.1 and 7).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, ConfigErrors, nearest, raise_all
from runner.host import json_file
from runner.host.files import make_directory
from runner.observe.profile.settings import METRICS, ProfilingSettings
from runner.validation.rules import FREE, Rule
from runner.validation.validate import Invalid, existing_folder, invalid_value_error, validate

TRACES = ("training_trace", "task_trace", "aicpu_trace")
WORDS = ("training_trace", "task_trace", "op_trace")
SPELLINGS = {"output": "result_path", "aicpu": "aicpu_trace", "aic_metrics": "ai_core_metrics"}
FOLDER = "profiling"  # when nobody names another one
_FORMS = 'words with colons, such as "training_trace:task_trace", or JSON, such as {"training_trace": "on"}'
_TYPO = "traing_trace"
_OPERATOR = "the full name of an operator, or a type with shapes, such as MatMul(32x400,400x120)"
_NAME = "the full name of an operator, or nothing for the one that is found"


def validate_key(name: str, value: object) -> Any:
    """The value of a key in its final form; None says nothing. Raises Invalid."""
    usual = SPELLINGS.get(name, name)
    return None if value is None else validate(str, _RULES[usual], value)


def read(options: str, key: str) -> dict[str, Any]:
    """What a text asks for, by the usual names of keys; `op_trace` is empty when it does not say which operator.

    `key` is where the text stands. Raises ConfigError, or ConfigErrors with everything that is wrong.
    """
    if not options.lstrip().startswith("{"):
        return _words(options, key)
    try:
        values = json_file.parsed(options, key)
    except ConfigError as wrong:
        raise ConfigError(wrong.what).add(**({"key": key, "value": options} | wrong.rows)) from None
    return _pairs(values, key)


def combined(*parts: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Keys of several places as one group, those that say nothing left out; each part has a prefix for messages.

    Raises ConfigErrors for keys that are set in two places or in two spellings.
    """
    made: dict[str, Any] = {}
    places: dict[str, str] = {}
    errors = []
    for prefix, values in parts:
        for name, value in values.items():
            usual = SPELLINGS.get(name, name)
            if value is None:
                continue
            if usual in made:
                rows = {"value": value, "also": places[usual], "hint": "one of the two is enough"}
                errors.append(ConfigError("asked for twice", key=prefix + name, **rows))
            made[usual], places[usual] = value, prefix + name
    raise_all(errors)
    return made


def contradictions(wanted: Mapping[str, Any], prefix: str) -> Iterator[ConfigError]:
    """What does not fit together in the keys of one profile; `prefix` stands in front of their names."""
    others = [name for name in (*TRACES, "ai_core_metrics") if wanted.get(name)]
    if wanted.get("op_trace") == "":
        rows = {"key": f"{prefix}op_trace", "allowed": _OPERATOR}
        yield ConfigError("op_trace measures one operator alone, and none is named", **rows)
    if "op_trace" in wanted and others:
        rows = {"excludes": ", ".join(others), "hint": "two runs, or task_trace, which measures every operator"}
        yield ConfigError("op_trace cannot go with another trace", key=f"{prefix}op_trace", **rows)
    if "op_trace" not in wanted and not others and all(wanted.get(name) is False for name in TRACES[:2]):
        hint = f"training_trace=on; {prefix.rstrip('.').partition('.')[0]}=none makes no profile"
        yield ConfigError("nothing is traced", key=f"{prefix}training_trace", value="off", allowed="on", hint=hint)


def settings(wanted: Mapping[str, Any], everything: bool, folder: Path, device_id: int) -> ProfilingSettings:
    """The profile that keys ask for, whose folder is there afterwards.

    Traces that nobody speaks of: `training_trace` is on, the others are with `everything`. A trace of the operators
    comes with `PipeUtilization`, if no other metric is named. Raises StorageError when the folder cannot be made.
    """
    place = wanted.get("result_path") or str(make_directory(folder.absolute() / FOLDER))
    if "op_trace" in wanted:
        return ProfilingSettings(Path(place), op_trace=wanted["op_trace"], device_id=device_id)
    usual = dict(zip(TRACES, (True, everything, everything), strict=True))
    on = {name: bool(wanted.get(name, usual[name])) for name in TRACES}
    return ProfilingSettings(
        Path(place),
        on["training_trace"],
        on["task_trace"],
        on["aicpu_trace"],
        fp_point=wanted.get("fp_point") or None,
        bp_point=wanted.get("bp_point") or None,
        ai_core_metrics=wanted.get("ai_core_metrics", "PipeUtilization" if on["task_trace"] else None),
        device_id=device_id,
    )


def _words(text: str, key: str) -> dict[str, Any]:
    names = [name.strip() for name in text.split(":")]
    unknown = [name for name in names if name not in WORDS]
    if unknown:
        raise invalid_value_error(key, text, _unknown_words(names, unknown))
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise invalid_value_error(
            key, text, Invalid(f"{twice[0]} stands twice", _FORMS, ":".join(dict.fromkeys(names)))
        )
    made: dict[str, Any] = {name: "" if name == "op_trace" else True for name in names}
    if len(made) > 1 and "op_trace" in made:
        hint = "two runs, or task_trace, which measures every operator"
        raise invalid_value_error(
            key, text, Invalid("op_trace cannot go with another trace", "op_trace alone", hint=hint)
        )
    return made


def _unknown_words(names: list[str], unknown: list[str]) -> Invalid:
    meant = [name if name in WORDS else nearest(name, WORDS) for name in names]
    close = ":".join(dict.fromkeys(name for name in meant if name)) if all(meant) else None
    hint = f"the reference's example spells it {_TYPO}, and means training_trace" if _TYPO in unknown else None
    if any(mark in name for name in unknown for mark in ",|; "):
        hint = "colons stand between the words"
    allowed = f"{', '.join(WORDS)}, with colons between them"
    return Invalid(f"unknown trace: {', '.join(unknown) or 'nothing'}", allowed, close, hint)


def _pairs(values: Mapping[str, object], key: str) -> dict[str, Any]:
    known = (*_RULES, *SPELLINGS)
    made: dict[str, Any] = {}
    errors: list[ConfigError] = []
    for name, value in values.items():
        try:
            if name not in known:
                raise Invalid("unknown key", ", ".join(known), nearest(name, known))
            made[name] = validate_key(name, value)
        except Invalid as invalid:
            errors.append(invalid_value_error(f"{key}.{name}", value, invalid))
    try:
        both = combined((f"{key}.", made))
    except ConfigErrors as several:
        errors += several.errors
    except ConfigError as one:
        errors.append(one)
    raise_all(errors)
    return both


def _on(value: object) -> bool:
    known = {"on": True, "off": False, "true": True, "false": False, True: True, False: False}
    wanted = value.lower() if isinstance(value, str) else value if isinstance(value, bool) else None
    if wanted in known:
        return known[wanted]
    meant = {"yes": "on", "1": "on", "no": "off", "0": "off"}.get(str(value).lower())
    raise Invalid("neither on nor off", "on, off, true or false", meant)


def _point(value: object) -> str:
    text: str = validate(str, FREE, value)
    if text and (text != text.strip() or text.endswith("/")):
        raise Invalid("not the name of an operator", _NAME, text.strip().rstrip("/") or None)
    return text


def _operator(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not text.strip() or text.lower() in ("on", "off", "true", "false"):
        raise Invalid("not the name of an operator", _OPERATOR)
    return text


def _folder(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not text:
        raise Invalid("not the name of a folder", "a folder that exists", hint="left out: a folder of its own is made")
    return existing_folder(text)


_RULES: dict[str, Rule] = {
    "result_path": Rule(validate=_folder),
    **dict.fromkeys(TRACES, Rule(validate=_on)),
    **dict.fromkeys(("fp_point", "bp_point"), Rule(validate=_point)),
    "ai_core_metrics": Rule(choices=METRICS),
    "op_trace": Rule(validate=_operator),
}

"""The keys of a profile, the texts that contain them, and the settings with their values.

The JSON text is that of `profiling_options` of the context, `{"result_path": "/data", "training_trace": "on"}`; the
words are those of a session, `training_trace:task_trace`. The config imports this module in
every start: it loads nothing that profiles.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from runner import rundir
from runner.errors import ConfigError, nearest, raise_all
from runner.host.files import make_directory
from runner.host.json import parse_config
from runner.validation.rules import (
    FREE,
    Frozen,
    Invalid,
    as_path,
    existing_folder,
    invalid_value_error,
    key,
    keys_of,
    validate,
    validate_keys,
)

METRICS = ("ArithmeticUtilization", "PipeUtilization", "Memory", "MemoryL0", "ResourceConflictRatio")
TRACES = ("training_trace", "task_trace", "aicpu_trace")
WORDS = ("training_trace", "task_trace", "op_trace")
ALIASES = {"output": "result_path", "aicpu": "aicpu_trace", "aic_metrics": "ai_core_metrics"}
# Patterns of the files of a profile, ours and those of MindSpore.
FILES = (
    *("*_op_detail_info_*.csv", "*_op_type_info_*.csv", "framework_raw_*.csv", "minddata_pipeline_raw_*.csv"),
    *("step_trace_raw_*.csv", "step_trace_point_info*.json", "pipeline_profiling_*.json", "ai_core_metrics_*.json"),
    *("*_timeline_display_*.json", "op_trace_*.json", "profile_summary_*.json"),
    "profile_[0-9]*",  # the folder of a later training of a script
)
UNNAMED: Any = object()  # the operator of the word op_trace, which does not say which one
_FORMS = 'words with colons, such as "training_trace:task_trace", or JSON, such as {"training_trace": "on"}'
_TYPO = "traing_trace"
_OPERATOR = "the full name of an operator, or a type with shapes, such as MatMul(32x400,400x120)"
_NAME = "the full name of an operator, or nothing for the one that is found"
_TWO_RUNS = "two runs, or task_trace, which measures every operator"


class ProfileSettings(Frozen):
    """A profile. `result_path` is the absolute folder of the files.

    `training_trace`: the parts of every step. `task_trace`: every operator, which needs the parts of the steps too.
    `aicpu_trace`: the operators of the data pipeline. `fp_point`, `bp_point`: full names of the operators with which
    the forward part begins and the backward part ends (None: found in the network). `ai_core_metrics`: the one measure
    of the hardware for each operator (None: none). `op_trace`: a single operator, by its full name in the network, or
    by type with operands such as `MatMul(32x400,400x120)`; it excludes all others. `device_id` is in the files' names.
    `keys`: where each value was set, for errors, such as `profiling.fp_point`.
    """

    result_path: Path
    training_trace: bool = False
    task_trace: bool = False
    aicpu_trace: bool = False
    fp_point: str | None = None
    bp_point: str | None = None
    ai_core_metrics: str | None = None
    op_trace: str | None = None
    device_id: int = 0
    keys: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def from_values(
        cls, sources: Mapping[str, Mapping[str, Any]], folder: Path, device_id: int = 0, everything: bool = False
    ) -> "ProfileSettings":
        """The profile with the values of several sources, in `folder`/profiling unless `result_path` is among them.

        Without values, `training_trace` is on, and the other traces are with `everything`. A trace of the operators
        comes with `PipeUtilization`. Raises as `merged`, and for contradictory values, with the last prefix.
        """
        values, places = merged(sources)
        raise_all(list(_contradictions(values, [*sources][-1])))
        if "op_trace" not in values:
            values = {"training_trace": True, "task_trace": everything, "aicpu_trace": everything, **values}
            if values["task_trace"]:
                values.setdefault("ai_core_metrics", "PipeUtilization")
        values["result_path"] = Path(values.get("result_path", folder.absolute() / rundir.PROFILING))
        values = {name: value for name, value in values.items() if value != ""}
        return cls(**values, device_id=device_id, keys=places)

    def with_folder(self) -> "ProfileSettings":
        """The same; `result_path` exists afterwards. Raises StorageError."""
        make_directory(self.result_path)
        return self

    @property
    def steps(self) -> bool:
        """Whether the parts of the steps are measured."""
        return self.training_trace or self.operators

    @property
    def operators(self) -> bool:
        """Whether every operator is measured: for its trace, or for a measure of the hardware."""
        return self.task_trace or self.ai_core_metrics is not None


def options(text: str, key: str) -> dict[str, Any]:
    """The values in a text, words or JSON, which is the value of `key`. Raises ConfigError when it is neither."""
    if not text.lstrip().startswith("{"):
        return _words(text, key)
    try:
        values: dict[str, Any] = parse_config(text, key)
    except ConfigError as wrong:
        raise ConfigError(wrong.what).add(**({"key": key, "value": text} | wrong.rows)) from None
    return values


def merged(sources: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of several sources, without null, by the usual names of their keys, and the key that set each.

    A source is found by the prefix that its keys have in errors. Raises ConfigError, or ConfigErrors, for what is not
    valid and for keys that are set in two sources or under two names.
    """
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    errors: list[ConfigError] = []
    for prefix, source in sources.items():
        valid, wrong = validate_keys(source, KEYS, prefix)
        errors += wrong
        for name, value in valid.items():
            usual = ALIASES.get(name, name)
            if value is None:
                continue
            if usual in values:
                rows = {"value": value, "also": places[usual], "hint": "one of the two is enough"}
                errors.append(ConfigError("requested twice", key=prefix + name, **rows))
            values[usual], places[usual] = value, prefix + name
    raise_all(errors)
    return values, places


def _contradictions(values: Mapping[str, Any], prefix: str) -> Iterator[ConfigError]:
    others = [name for name in (*TRACES, "ai_core_metrics") if values.get(name)]
    if values.get("op_trace") is UNNAMED:
        rows = {"key": f"{prefix}op_trace", "allowed": _OPERATOR}
        yield ConfigError("op_trace measures a single operator, and none is named", **rows)
    if "op_trace" in values and others:
        rows = {"excludes": ", ".join(others), "hint": _TWO_RUNS}
        yield ConfigError("op_trace excludes every other trace", key=f"{prefix}op_trace", **rows)
    if "op_trace" not in values and not others and all(values.get(name) is False for name in TRACES[:2]):
        hint = f"training_trace=on; {prefix.rstrip('.').partition('.')[0]}=none makes no profile"
        yield ConfigError("nothing is traced", key=f"{prefix}training_trace", value="off", allowed="on", hint=hint)


def _words(text: str, key: str) -> dict[str, Any]:
    names = [name.strip() for name in text.split(":")]
    distinct = list(dict.fromkeys(names))
    if unknown := [name for name in names if name not in WORDS]:
        raise invalid_value_error(key, text, _unknown_words(distinct, unknown))
    if twice := [name for name in distinct if names.count(name) > 1]:
        raise invalid_value_error(key, text, Invalid(f"{twice[0]} stands twice", _FORMS, ":".join(distinct)))
    if len(names) > 1 and "op_trace" in names:
        invalid = Invalid("op_trace excludes every other trace", "only op_trace", hint=_TWO_RUNS)
        raise invalid_value_error(key, text, invalid)
    return {name: UNNAMED if name == "op_trace" else True for name in names}


def _unknown_words(names: list[str], unknown: list[str]) -> Invalid:
    meant = [name if name in WORDS else nearest(name, WORDS) for name in names]
    close = ":".join(dict.fromkeys(name for name in meant if name)) if all(meant) else None
    hint = f"MindSpore's example spells it {_TYPO}, and means training_trace" if _TYPO in unknown else None
    if any(mark in name for name in unknown for mark in ",|; "):
        hint = "colons stand between the words"
    allowed = f"{', '.join(WORDS)}, with colons between them"
    return Invalid(f"unknown trace: {', '.join(unknown) or 'nothing'}", allowed, close, hint)


def options_text(value: object) -> str:
    """Validator of options, words or JSON; Hydra parses JSON without quotes as a group of keys. Raises Invalid."""
    text: str = json.dumps(value) if isinstance(value, Mapping) else validate(str, FREE, value)
    return text


def path_in_options(text: str | None, group: object = None) -> str | None:
    """The `result_path` in a text, words or JSON, that is valid otherwise; None without one."""
    values = options(text, "options") if text is not None else {}
    path = values.get("result_path") or values.get("output")
    return path if isinstance(path, str) else None


def _on(value: object) -> bool:
    text = str(value).lower()
    if isinstance(value, str | bool) and text in ("on", "off", "true", "false"):
        return text in ("on", "true")
    meant = {"yes": "on", "1": "on", "no": "off", "0": "off"}.get(text)
    raise Invalid("neither on nor off", "on, off, true or false", meant)


def point(value: object) -> str:
    """Validator of the full name of an operator, or nothing. Raises Invalid."""
    text: str = validate(str, FREE, value)
    if text and (text != text.strip() or text.endswith("/")):
        raise Invalid("not the name of an operator", _NAME, text.strip().rstrip("/") or None)
    return text


def operator(value: object) -> Any:
    """Validator of the operator of `op_trace`. Raises Invalid."""
    if value is UNNAMED:
        return value
    text: str = validate(str, FREE, value)
    if not text.strip() or text.lower() in ("on", "off", "true", "false"):
        raise Invalid("not the name of an operator", _OPERATOR)
    return text


def _folder(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not text:
        raise Invalid("not the name of a folder", "a folder that exists", hint="without this key, a folder is created")
    return existing_folder(text)


class TraceProfiling(Frozen):
    """A profile of the run. null: the value in `options`; without options, all traces are on.

    `result_path` is an existing folder, relative to the working directory; null: `profiling/` in the run directory.
    `output`, `aicpu` and `aic_metrics` are aliases of `result_path`, `aicpu_trace` and `ai_core_metrics`.
    """

    name: str = key("trace", choices=("trace",))  # the kind of profile
    options: str | None = key(None, validate=options_text, writes=path_in_options)  # JSON with these keys, or words
    result_path: str | None = key(None, validate=_folder, writes=as_path)  # null: profiling/ of the run
    output: str | None = key(None, validate=_folder, writes=as_path)  # alias of result_path
    training_trace: bool | None = key(None, validate=_on)  # phases of each step
    task_trace: bool | None = key(None, validate=_on)  # times of operators
    aicpu_trace: bool | None = key(None, validate=_on)  # waiting times for data
    aicpu: bool | None = key(None, validate=_on)  # alias of aicpu_trace
    fp_point: str | None = key(None, validate=point)  # first operator of the forward pass; null: detected
    bp_point: str | None = key(None, validate=point)  # last operator of the backward pass; null: detected
    ai_core_metrics: str | None = key(None, choices=METRICS)  # null: PipeUtilization, if operators are traced
    aic_metrics: str | None = key(None, choices=METRICS)  # alias of ai_core_metrics
    op_trace: str | None = key(None, validate=operator)  # profile a single operator instead of the run


KEYS = {name: declared for name, declared in keys_of(TraceProfiling).items() if name not in ("name", "options")}


class ProfileTarget(Frozen):
    """What is profiled: the mode (`graph` or `pynative`), the kind of device as in file names (`cpu`, `gpu`, `ascend`),
    and the rank and number of ranks of a data-parallel training.

    What advice can name: `scripted`, whether a script trains, which has no keys; `tuned`, whether this run was tuned;
    `can_sink`, whether its data can be sunk.
    """

    mode: str = "graph"
    device: str = "cpu"
    rank: int = 0
    ranks: int = 1
    scripted: bool = False
    tuned: bool = False
    can_sink: bool = True

    @property
    def label(self) -> str:
        """The rank for titles; empty when there is only one."""
        return f"rank {self.rank} of {self.ranks}" if self.ranks > 1 else ""


# The schedule of a profile: which steps of a training have their operators timed.


class ProfileSchedule(NamedTuple):
    """`bursts` bursts of `length` steps: one every `every` steps, from step `first` on.

    The first `warm_up` steps of each burst are not counted. Timing operators is expensive (onnxruntime's profile makes
    a LeNet step half as long again), so it runs in bursts: the first one soon after the start, a few others far
    between. There are at most `BURSTS` of them, because onnxruntime keeps a kilobyte for each node that it executes.
    """

    first: int
    length: int
    every: int
    warm_up: int
    bursts: int

    def is_profiled(self, step: int) -> bool:
        """Whether the operators of this step are timed."""
        burst, place = divmod(step - self.first, self.every)
        return 0 <= burst < self.bursts and place < self.length

    def is_counted(self, step: int) -> bool:
        """Whether its times are used: it is profiled and does not warm up."""
        return self.is_profiled(step) and (step - self.first) % self.every >= self.warm_up

    def run_length(self, step: int) -> int:
        """The number of steps from this one on, at least 1, that are all profiled or all not profiled."""
        if step < self.first:
            return self.first - step
        burst, place = divmod(step - self.first, self.every)
        if place < self.length and burst < self.bursts:
            return self.length - place
        return self.every - place if burst + 1 < self.bursts else ENDLESS


SAMPLES = 5  # fewer steps give no spread, so no ranking and no advice
BURST, WARM_UP, EVERY, BURSTS = 12, 2, 1000, 5
BOUNDARIES_BURST, BOUNDARIES_EVERY = SAMPLES + WARM_UP, 2500  # when only the boundaries of the parts are measured
BEFORE = 3  # steps that are not profiled before the first burst, the first of which allocates memory
ENDLESS = 1 << 62


def schedule(first_step: int, total: int, operators: bool) -> ProfileSchedule:
    """The schedule for the steps from `first_step` to `total`. `operators`: whether every operator is measured.

    Figures need `SAMPLES` steps, so a short training is divided by need: first `SAMPLES` counted steps, then steps that
    warm up, then as many steps before and after them that show what a step takes without the profile.
    """
    longest, every = (BURST, EVERY) if operators else (BOUNDARIES_BURST, BOUNDARIES_EVERY)
    steps, shortest = max(1, total - first_step), SAMPLES + WARM_UP
    before = min(BEFORE, max(0, steps - shortest))
    after = SAMPLES - (BEFORE - 1)  # with those before, without the first one, SAMPLES steps are not profiled
    length = min(longest, steps - before, max(shortest, steps - before - after))
    return ProfileSchedule(first_step + before, length, every, max(0, min(WARM_UP, length - SAMPLES)), BURSTS)

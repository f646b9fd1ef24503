"""`hydra/sweeper=optuna`: settings and space of a search, validated before anything is written.

The space is given in Hydra's grammar: `choice(a,b)`, `range(1,9,2)` without its end, `interval(0,1)` with its ends,
integers as `int(interval(1,9))`, and `tag(log,...)` for a logarithmic scale.
"""

import importlib.util
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep, Transformer

from runner import register
from runner.config import check, overrides
from runner.config.groups.entries import direction, single_number
from runner.config.schema import RunConfig, defaults
from runner.errors import ConfigError, collect_errors, nearest, raise_all
from runner.rundir import OF_SWEEPS
from runner.validation.rules import FILE_PATH, Frozen, Invalid, key, show, validate

# The dimensions of a search space, and the check for Optuna, which proposes trials.

INSTALL = 'pip install "runner-ml[optuna]"'
OLDEST = 4  # the first major version whose journal files are not experimental
SAMPLERS = ("tpe", "random", "grid")


class Choice(Frozen):
    """A key with unordered values, as text."""

    key: str
    texts: tuple[str, ...]

    def text(self, value: Any) -> str:
        """A value of the study in the syntax of overrides."""
        return str(value)

    def points(self) -> list[str]:
        """All values of the study."""
        return list(self.texts)


class Number(Frozen):
    """A key with numbers from `low` to `high`, both included.

    `step` is None for an interval. For a range, `texts` are its values in ascending order, as in overrides.
    """

    key: str
    low: float
    high: float
    integral: bool = False
    log: bool = False
    step: float | None = None
    texts: tuple[str, ...] = ()

    def text(self, value: Any) -> str:
        """A value of the study in the syntax of overrides."""
        if self.step is not None:
            index: int = round((value - self.low) / self.step)
            return self.texts[index]
        return repr(int(value) if self.integral else float(value))

    def points(self) -> list[float]:
        """All values of the study, of a range."""
        kind = int if self.integral else float
        return [kind(self.low + index * (self.step or 1)) for index in range(len(self.texts))]


Dimension = Choice | Number


def optuna_error() -> ConfigError | None:
    """The error if Optuna is missing or too old; None otherwise."""
    if importlib.util.find_spec("optuna") is None:
        return ConfigError("the search needs Optuna", key="hydra/sweeper", value="optuna", repair=INSTALL)
    found = version()
    if int(found.partition(".")[0]) < OLDEST:
        rows = {"found": found, "allowed": f"at least {OLDEST}", "repair": INSTALL}
        return ConfigError("this Optuna is too old", key="hydra/sweeper", value="optuna", **rows)
    return None


def version() -> str:
    """The version of Optuna, on which proposals depend."""
    from importlib import metadata  # here: few starts search

    return metadata.version("optuna")


# The settings and the space as a whole.

PARAMS = "hydra.sweeper.params"
TAGS = ("log",)
NO_SEARCH_SPACE = "nothing to search"
_FORMS = "interval(0.001,1), tag(log,interval(0.001,1)), int(interval(1,9)), range(1,9), choice(a,b) or a,b"


def _inside(value: object) -> str:
    text: str = validate(str, FILE_PATH, value)
    path = PurePath(text)
    if path.is_absolute() or ".." in path.parts or "://" in text or not path.name:
        raise Invalid("not a file in the folder of the sweep", "a name, such as study.log")
    if path.parts[0] in OF_SWEEPS:
        raise Invalid("a file of the sweep itself", "another name, such as study.log")
    return text


class SearchSettings(Frozen):
    """Objective and method of a search: the keys below `hydra.sweeper`.

    The value of a trial is `metric` in its summary; `direction` null is that of the metric.
    Trials run `n_jobs` at a time; all of these are proposed before one of them has a result. `storage` is a file in
    the folder of the sweep: a copy of the study in Optuna's journal format, named `study_name` (null: the folder's).
    """

    metric: str = key("accuracy", choices=register.metric, validate=single_number)
    direction: str | None = key(
        None, choices=("maximize", "minimize"), aliases={"maximise": "maximize", "minimise": "minimize"}, fold=True
    )
    n_trials: int = key(20, low=1, high=overrides.MAX_JOBS)
    n_jobs: int = key(1, low=1, high=1000)
    sampler: str = key("tpe", choices=SAMPLERS, fold=True)
    seed: int = key(1, low=0, high=2**32 - 1)
    study_name: str | None = None
    storage: str | None = key(None, validate=_inside)

    @property
    def resolved_direction(self) -> str:
        """The configured direction or, without one, that of the metric."""
        return self.direction or direction(self.metric)


def node() -> dict[str, Any]:
    """The defaults of the keys below `hydra.sweeper`."""
    return {**defaults(SearchSettings), "params": {}}


def settings(values: Mapping[str, Any], origin: check.Origin) -> tuple[SearchSettings, list[ConfigError]]:
    """The settings below `hydra.sweeper`, and the errors in them or in the installation of Optuna."""
    own = {name: value for name, value in values.items() if name not in ("_target_", "params")}
    search, errors = check.check_section(SearchSettings, own, "hydra.sweeper", origin)
    missing = optuna_error()
    return search, [*errors, *([missing] if missing else [])]


def never_evaluated(search: SearchSettings, config: RunConfig) -> ConfigError | None:
    """The error for a metric that no run evaluates; None for others."""
    if search.metric == "loss" or (config.eval.every != "never" and search.metric in config.eval.metrics):
        return None
    hint = f"eval.every=end with {search.metric} among eval.metrics, or hydra.sweeper.metric=loss"
    return ConfigError("a metric that is never evaluated", key="hydra.sweeper.metric", value=search.metric, hint=hint)


def parameter_overrides(params: object) -> list[str]:
    """The overrides given by `hydra.sweeper.params`. Raises ConfigError, or ConfigErrors."""
    found: list[str] = []
    errors: list[ConfigError] = []
    for name, value in _leaves(params):
        if name.lstrip("+~").startswith("hydra"):
            errors.append(ConfigError("a search may not change Hydra", key=f"{PARAMS}.{name}", value=show(value)))
        elif isinstance(value, list | dict):
            rows = {"value": show(value), "allowed": _FORMS}
            errors.append(ConfigError("not a dimension of a search space", key=f"{PARAMS}.{name}", **rows))
        else:
            line = f"{name}={value if isinstance(value, str) else Transformer.str(value)}"
            found.append(line)
            errors += [_from_params(error) for error in collect_errors(overrides.parse, [line])[1]]
    raise_all(errors)
    return found


def _from_params(error: ConfigError) -> ConfigError:
    error.rows["from"] = PARAMS
    return error


def space(parsed: Iterable[Override], search: SearchSettings) -> list[Dimension]:
    """The dimensions of the search: all overrides with several values. Raises ConfigError, or ConfigErrors."""
    dimensions: list[Dimension] = []
    errors: list[ConfigError] = []
    for override in (one for one in parsed if one.is_sweep_override()):
        try:
            dimensions.append(_dimension(override, search.sampler))
        except ConfigError as error:
            errors.append(error.add(key=override.key_or_group, value=override.get_value_string()))
    raise_all(errors)
    if not dimensions:
        raise ConfigError(NO_SEARCH_SPACE, key="hydra/sweeper", value="optuna", hint=f"a key with {_FORMS}")
    if search.sampler == "grid" and point_count(dimensions) > overrides.MAX_JOBS:
        raise ConfigError(
            "the grid has too many points", value=point_count(dimensions), allowed=f"at most {overrides.MAX_JOBS}"
        )
    return dimensions


def point_count(dimensions: Sequence[Dimension]) -> int:
    """The number of points in a space of choices and ranges."""
    return math.prod(len(one.points()) for one in dimensions)


def _leaves(params: object, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(params, Mapping):
        for name, value in params.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    elif params is not None or path:
        yield path, params


def _dimension(override: Override, sampler: str) -> Dimension:
    value: Any = override._value
    tags: set[str] = getattr(value, "tags", set())
    for tag in sorted(tags - set(TAGS)):
        raise ConfigError("unknown tag", tag=tag, allowed=", ".join(TAGS), nearest=nearest(tag, TAGS))
    name = override.get_key_element()
    if isinstance(value, IntervalSweep):
        return _interval(name, value, "log" in tags, sampler)
    if isinstance(value, RangeSweep):
        return _range(name, override, value, "log" in tags)
    if tags:
        raise ConfigError("choices do not have a scale", allowed="tag(log,...) of an interval or a range")
    if isinstance(value, ChoiceSweep):  # in the given order: Hydra's shuffle has no seed
        override = replace(override, _value=replace(value, shuffle=False))
    texts = tuple(dict.fromkeys(override.sweep_string_iterator()))
    if not texts:
        raise ConfigError("no option matches")
    return Choice(name, texts)


def _interval(name: str, value: IntervalSweep, log: bool, sampler: str) -> Number:
    low, high = value.start, value.end
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high) or low >= high:
        raise ConfigError("an empty interval", allowed="two finite numbers, the lower one first")
    if sampler == "grid":
        raise ConfigError(
            "a grid search needs a finite number of values", hint="range(start,end,step), or hydra.sweeper.sampler=tpe"
        )
    if log and low <= 0:
        raise ConfigError("a logarithmic scale needs positive values")
    return Number(name, low, high, isinstance(low, int) and isinstance(high, int), log)


def _range(name: str, override: Override, value: RangeSweep, log: bool) -> Number:
    ordered = replace(override, _value=replace(value, shuffle=False))
    texts = overrides.sweep_values(ordered)
    texts = texts if value.step > 0 else texts[::-1]
    step, integral = abs(value.step), all(type(one) is int for one in (value.start or 0, value.stop, value.step))
    low = float(texts[0])
    if log and (not integral or step != 1):
        raise ConfigError(
            "steps that do not fit a logarithmic scale", allowed="whole numbers in steps of 1, or interval"
        )
    if log and low <= 0:
        raise ConfigError("a logarithmic scale needs positive values")
    high = float(Decimal(texts[0]) + (len(texts) - 1) * Decimal(str(step)))
    return Number(name, low, high, integral, log, float(step), tuple(texts))

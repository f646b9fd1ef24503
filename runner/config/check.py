"""Validation of composed values: a frozen `RunConfig`, or all errors of the config at once."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from runner.config.groups import GROUPS, NAMED
from runner.config.groups.entries import (
    CALLBACKS,
    METRICS,
    CallbackSettings,
    MetricSettings,
    consistency_errors as optimizer_errors,
    keys_of_value,
    missing_keys,
    numbers,
    single_number,
)
from runner.config.groups.services import (
    MOVED_KEYS,
    DataParallel,
    SessionSettings,
    consistency_errors as tracking_errors,
    dump_consistency_errors as dump_errors,
    dump_is_requested,
    profiling_consistency_errors as profiling_errors,
    profiling_is_requested,
    requested_dump,
    session_consistency_errors as session_errors,
    session_dump_errors,
)
from runner.config.schema import Expectation, RunConfig
from runner.dataset.catalog import AUGMENTABLE, CATALOG
from runner.errors import ConfigError, raise_all
from runner.validation.rules import Invalid, Rule, describe, invalid_value_error, rule_of, unknown_key, validate

MAX_ERRORS = 100
NO_HINTS: Mapping[str, str] = {}
Origin = Callable[[str], str | None]


def check(values: Mapping[str, Any], origin: Origin = lambda key: None) -> RunConfig:
    """The config of a run; missing keys have their defaults.

    `origin` returns where a key was set. Raises ConfigError, or ConfigErrors when there are several.
    """
    config, errors = examine(values, origin)
    raise_all(errors)
    return config


def examine(values: Mapping[str, Any], origin: Origin) -> tuple[RunConfig, list[ConfigError]]:
    """A config in which every invalid value is replaced by its default, and the errors."""
    checker = _Checker(origin)
    config: RunConfig = checker.section(RunConfig, values, "")
    if not checker.errors:
        for error in _consistency_errors(config):
            checker.report(error)
    checker.check_outputs(config)
    return config, checker.found()


def check_section(
    owner: type[Any], values: Mapping[str, Any], path: str, origin: Origin
) -> tuple[Any, list[ConfigError]]:
    """Keys below `path` that are not part of a run, validated in the same way."""
    checker = _Checker(origin)
    return checker.section(owner, values, path), checker.found()


class _Checker:
    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        # Sections whose keys are registered names.
        self.by_name = {"expect": self.expectations, "metrics": self.metrics, "callbacks": self.callbacks}
        self.errors: list[ConfigError] = []
        self.omitted: list[str] = []  # keys of errors after MAX_ERRORS

    def found(self) -> list[ConfigError]:
        """All errors, with one for those that are omitted."""
        if not self.omitted:
            return self.errors
        rows = {"key": self.omitted[0], "value": f"{len(self.omitted)} more", "allowed": f"{MAX_ERRORS} are reported"}
        return [*self.errors, ConfigError("too many errors", **rows)]

    def report(self, error: ConfigError) -> None:
        self.errors.append(error.add(**{"from": self.origin(error.rows["key"])}))

    def invalid(self, path: str, value: object, invalid: Invalid) -> None:
        self.report(invalid_value_error(path, value, invalid))

    def section(self, owner: type[Any], values: object, path: str, hints: Mapping[str, str] = NO_HINTS) -> Any:
        """An object of the schema, from its keys; `hints` has hints for keys that it does not have."""
        if not isinstance(values, Mapping):
            self.invalid(path, values, Invalid("not a group of keys", ", ".join(_names(owner))))
            return owner()
        self.check_names(values, _names(owner), path, hints)
        return owner(**self.fields(owner, values, path))

    def fields(self, owner: type[Any], values: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {
            f.name: self.field(owner, f, values[f.name], path) for f in dataclasses.fields(owner) if f.name in values
        }

    def field(self, owner: type[Any], field: dataclasses.Field[Any], value: object, path: str) -> Any:
        name, kind, key_path = field.name, field.type, _join(path, field.name)
        if kind in NAMED:
            return self.section_by_name(NAMED[kind], value, key_path)
        if key_path in self.by_name:
            return self.by_name[key_path](value, key_path)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self.section(kind, value, key_path, MOVED_KEYS if kind is SessionSettings else NO_HINTS)
        return self.value(kind, rule_of(owner, name), value, key_path, field.default)

    def value(self, kind: Any, rule: Rule, value: object, path: str, default: object) -> Any:
        try:
            return validate(kind, rule, value)
        except Invalid as invalid:
            self.invalid(path, value, invalid)
            return default

    def check_names(
        self, values: Mapping[str, Any], names: Collection[str], path: str, hints: Mapping[str, str] = NO_HINTS
    ) -> None:
        """Report the keys that are not among `names`."""
        for name in values:
            if name not in names:
                if len(self.errors) >= MAX_ERRORS:  # finding the nearest key and the line takes time
                    self.omitted.append(_join(path, str(name)))
                    continue
                invalid = unknown_key(str(name), names, _join(path, ""), hints.get(str(name)))
                self.invalid(_join(path, str(name)), values[name], invalid)

    def section_by_name(self, kinds: Mapping[str, type[Any]], values: object, path: str) -> Any:
        """A section whose `name` determines its keys."""
        default = default_of(kinds)
        name = values.get("name", default) if isinstance(values, Mapping) else default
        name = self.value(str, Rule(choices=tuple(kinds)), name, _join(path, "name"), None)
        if name is None:
            return kinds[default]()
        is_known = not isinstance(values, Mapping) or values.keys() <= kinds[name].__dataclass_fields__.keys()
        return self.settings(kinds[name], values, path, NO_HINTS if is_known else _owners(kinds, path))

    def settings(self, owner: type[Any], values: object, path: str, hints: Mapping[str, str] = NO_HINTS) -> Any:
        """A section with the keys of a registered entry, some of which may be required."""
        missing = tuple(missing_keys(owner, values if isinstance(values, Mapping) else {}))
        for name in missing:
            own = owner.entry.keys[name]
            rows = {"allowed": describe(own.kind, own.rule), "where": owner.entry.place}
            hint = f"{_join(path, name)}=..."
            self.errors.append(ConfigError("a key without a value", key=_join(path, name), **rows, hint=hint))
        if missing and isinstance(values, Mapping):
            values = {name: value for name, value in values.items() if name not in missing}
        return self.section(owner, values, path, hints)

    def entries(self, values: object, names: Collection[str], path: str) -> Mapping[str, Any]:
        """A section of registered names, without those that are unknown, which are reported."""
        if not isinstance(values, Mapping):
            self.invalid(path, values, Invalid("not a group of keys", ", ".join(names)))
            return {}
        self.check_names(values, names, path)
        return {name: values[name] for name in names if name in values}

    def metrics(self, values: object, path: str) -> dict[str, MetricSettings]:
        found = self.entries(values, METRICS, path)
        return {name: self.settings(METRICS[name], value, _join(path, name)) for name, value in found.items()}

    def callbacks(self, values: object, path: str) -> dict[str, CallbackSettings | None]:
        found: dict[str, CallbackSettings | None] = {}
        for name, value in self.entries(values, CALLBACKS, path).items():
            try:
                keys = keys_of_value(name, value)
            except Invalid as invalid:
                self.invalid(_join(path, name), value, invalid)
                keys = None
            found[name] = None if keys is None else self.settings(CALLBACKS[name], keys, _join(path, name))
        return found

    def expectations(self, values: object, path: str) -> dict[str, Expectation]:
        allowed = numbers()
        if isinstance(values, Mapping):
            for name in (name for name in METRICS if name in values and name not in allowed):
                self.value(str, Rule(validate=single_number), name, _join(path, name), None)
            values = {name: value for name, value in values.items() if name in allowed or name not in METRICS}
        found = self.entries(values, allowed, path)
        return {name: self.expectation(value, _join(path, name)) for name, value in found.items()}

    def expectation(self, bounds: object, path: str) -> Expectation:
        if not isinstance(bounds, Mapping) or not bounds:
            self.invalid(path, bounds, Invalid("not a bound", "min, max or both"))
            return Expectation()
        expected: Expectation = self.section(Expectation, bounds, path)
        return expected

    def check_outputs(self, config: RunConfig) -> None:
        """Report errors of dump, profile and tracking as a whole, unless single keys of them are invalid."""
        wrong = {error.rows["key"].split(".")[0] for error in self.errors}
        found: list[ConfigError] = []
        dump = requested_dump(config.dump, config.session)
        if not wrong & {"dump", "mode", "dataset_sink_mode", *(["session"] if config.session.enable_dump else [])}:
            found += dump_errors(dump, sunk=config.mode == "graph" and config.dataset_sink_mode)
        if not wrong & {"profiling", "session"}:
            is_single = not isinstance(config.parallel, DataParallel)
            found += profiling_errors(config.profiling, config.session, is_single)
        if "tracking" not in wrong:
            found += tracking_errors(config.tracking)
        if not self.errors and not found:
            requested = dump_is_requested(dump), profiling_is_requested(config.profiling, config.session)
            found += session_errors(config.session, config.eval.every != "never", *requested)
        for error in found:
            if error.rows["key"].split(".")[0] in _names(RunConfig):
                self.report(error)
            else:  # a key in a JSON file
                self.errors.append(error)


def _consistency_errors(config: RunConfig) -> Iterator[ConfigError]:
    """Errors of valid keys that contradict each other."""
    yield from session_dump_errors(config.dump, config.session)
    yield from _expectation_errors(config)
    yield from optimizer_errors(config.optimizer)
    yield from _rank_errors(config)
    if config.checkpoint.names is not None and config.checkpoint.load is None:
        hint = "checkpoint.load=FILE.safetensors"
        yield ConfigError("names of weights that are not loaded", key="checkpoint.names", hint=hint)
    name = config.dataset.name
    if name in CATALOG and name not in AUGMENTABLE and config.dataset.augment:
        hint = f"augment mirrors images, which changes the class of those of {name}"
        rows = {"value": "true", "allowed": f"false, or a dataset of {', '.join(AUGMENTABLE)}", "hint": hint}
        yield ConfigError("images of this dataset cannot be augmented", key="dataset.augment", **rows)


def _expectation_errors(config: RunConfig) -> Iterator[ConfigError]:
    for metric, e in config.expect.items():
        if e.min is not None and e.max is not None and e.min > e.max:
            yield ConfigError("min is above max", key=f"expect.{metric}", value=f"min {e.min}, max {e.max}")
        is_evaluated = config.eval.every != "never" and metric in config.eval.metrics
        if metric != "loss" and not is_evaluated:  # without an evaluation, the loss is that of the last step
            hint = f"eval.every=end with {metric} among eval.metrics, or ~expect"
            yield ConfigError("an expectation that is never evaluated", key=f"expect.{metric}", hint=hint)


def _rank_errors(config: RunConfig) -> Iterator[ConfigError]:
    """Keys that a data-parallel run does not support."""
    if not isinstance(config.parallel, DataParallel):
        return
    if config.device.id:
        rows = {"value": config.device.id, "allowed": "0", "hint": "each rank uses the device with its own number"}
        yield ConfigError("all ranks cannot use one device", key="device.id", **rows)
    if config.session.auto_tune_mode is not None:
        hint = "use parallel=stand_alone"
        yield ConfigError("not supported with several ranks", key="session.auto_tune_mode", hint=hint)


def _owners(kinds: Mapping[str, type[Any]], path: str) -> dict[str, str]:
    """A hint for each key of a group: what must be chosen for the group to have it."""
    keys = dict.fromkeys(key for kind in kinds.values() for key in _names(kind))
    having = {key: [name for name, kind in kinds.items() if key in _names(kind)] for key in keys}
    if path not in GROUPS:  # it has no options
        return {key: f"a key of {path}.name={', '.join(names)}" for key, names in having.items()}
    return {key: f"add {' or '.join(f'{path}={name}' for name in names)} first" for key, names in having.items()}


def default_of(kinds: Mapping[str, type[Any]]) -> str:
    """The name of the section that a config without a name has."""
    return str(getattr(kinds, "default", "") or next(iter(kinds)))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _names(owner: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(owner))

"""From composed plain values to a frozen `RunConfig`: every error of the whole config, not the first one only."""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from runner.config import networks
from runner.config.groups import GROUPS, NAMED
from runner.config.groups.dump import disagreements as dump_disagreements, is_requested as is_dumped
from runner.config.groups.optimizer import disagreements as optimizer_disagreements
from runner.config.groups.parallel import DataParallel
from runner.config.groups.profiling import disagreements as profiling_disagreements, is_requested as is_profiled
from runner.config.groups.session import ELSEWHERE, SessionSettings, disagreements as session_disagreements
from runner.config.groups.tracking import disagreements as tracking_disagreements
from runner.config.schema import Expectation, NetworkSettings, RunConfig
from runner.dataset.catalog import AUGMENTABLE
from runner.errors import ConfigError, nearest, raise_all
from runner.nn.metrics import METRICS
from runner.validation.rules import FREE, Rule, rule_of
from runner.validation.validate import Invalid, invalid_value_error, show, validate

NOWHERE: Mapping[str, str] = {}
Origin = Callable[[str], str | None]


def check(values: Mapping[str, Any], origin: Origin = lambda key: None) -> RunConfig:
    """The run that the values describe; keys that are left out have their defaults.

    `origin` returns where a key was set. Raises ConfigError, or ConfigErrors when there are several.
    """
    config, errors = examine(values, origin)
    raise_all(errors)
    return config


def examine(values: Mapping[str, Any], origin: Origin) -> tuple[RunConfig, list[ConfigError]]:
    """A config in which every wrong value is replaced by its default, and the errors."""
    checker = _Checker(origin)
    config: RunConfig = checker.section(RunConfig, values, "")
    if not checker.errors:
        checker.agree(config)
    checker.agree_on_files(config)
    return config, checker.errors


def part(owner: type[Any], values: Mapping[str, Any], path: str, origin: Origin) -> tuple[Any, list[ConfigError]]:
    """Keys below `path` that are not part of a run, in the same way."""
    checker = _Checker(origin)
    return checker.section(owner, values, path), checker.errors


class _Checker:
    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.errors: list[ConfigError] = []

    def report(self, what: str, key: str, **rows: object) -> None:
        self.errors.append(ConfigError(what, key=key, **rows).add(**{"from": self.origin(key)}))

    def section(self, owner: type[Any], values: object, path: str, elsewhere: Mapping[str, str] = NOWHERE) -> Any:
        """An object of the schema, from its keys; `elsewhere` has hints for keys that it does not have."""
        if not isinstance(values, Mapping):
            self.report("not a group of keys", path, value=show(values), allowed=", ".join(_names(owner)))
            return owner()
        if owner is NetworkSettings:
            return self.network(values, path)
        self.known(values, _names(owner), path, elsewhere)
        return owner(**self.fields(owner, values, path))

    def fields(self, owner: type[Any], values: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {f.name: self.one(owner, f, values[f.name], path) for f in dataclasses.fields(owner) if f.name in values}

    def one(self, owner: type[Any], field: dataclasses.Field[Any], value: object, path: str) -> Any:
        name, kind, place = field.name, field.type, _join(path, field.name)
        if kind in NAMED:
            return self.named(NAMED[kind], value, place)
        if name == "expect":
            return self.expectations(value, place)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self.section(kind, value, place, ELSEWHERE if kind is SessionSettings else NOWHERE)
        return self.value(kind, rule_of(owner, name), value, place, field.default)

    def value(self, kind: Any, rule: Rule, value: object, path: str, default: object) -> Any:
        try:
            return validate(kind, rule, value)
        except Invalid as invalid:
            self.errors.append(invalid_value_error(path, value, invalid).add(**{"from": self.origin(path)}))
            return default

    def known(
        self, values: Mapping[str, Any], names: Collection[str], path: str, elsewhere: Mapping[str, str] = NOWHERE
    ) -> None:
        """Report the keys that are not among `names`."""
        for name in values:
            if name not in names:
                close = nearest(str(name), names)
                self.report(
                    "unknown key",
                    _join(path, str(name)),
                    value=show(values[name]),
                    allowed=", ".join(names),
                    nearest=_join(path, close) if close else None,
                    hint=elsewhere.get(str(name)),
                )

    def named(self, kinds: Mapping[str, type[Any]], values: object, path: str) -> Any:
        """One of several kinds of objects, by its `name`."""
        usual = next(iter(kinds))
        name = values.get("name", usual) if isinstance(values, Mapping) else usual
        name = self.value(str, Rule(choices=tuple(kinds)), name, _join(path, "name"), None)
        return kinds[usual]() if name is None else self.section(kinds[name], values, path, _owners(kinds, path))

    def network(self, values: Mapping[str, Any], path: str) -> NetworkSettings:
        """The network's own keys, then the keyword arguments that its constructor declares."""
        names = [name for name in _names(NetworkSettings) if name != "arguments"]
        own = {name: value for name, value in values.items() if name in names}
        kind = NetworkSettings(**self.fields(NetworkSettings, own, path))
        errors = len(self.errors)
        name = self.value(str, Rule(choices=networks.names()), kind.name, _join(path, "name"), None)
        extra = {name: value for name, value in values.items() if name not in own}
        if not extra or len(self.errors) > errors:
            return kind
        declared = {name: p for name, p in networks.parameters(name).items() if p.kind is not p.VAR_KEYWORD}
        self.known(extra, [*names, *(p for p in declared if p not in names)], path)
        arguments = {k: self.argument(declared[k], v, _join(path, k)) for k, v in extra.items() if k in declared}
        return dataclasses.replace(kind, arguments=arguments)

    def argument(self, parameter: inspect.Parameter, value: object, path: str) -> Any:
        kind = object if parameter.annotation is parameter.empty else parameter.annotation
        return self.value(kind, FREE, value, path, parameter.default)

    def expectations(self, values: object, path: str) -> tuple[Expectation, ...]:
        if not isinstance(values, Mapping):
            self.report("not a group of keys", path, value=show(values), allowed=", ".join(METRICS))
            return ()
        self.known(values, METRICS, path)
        return tuple(
            self.expectation(metric, values[metric], _join(path, metric)) for metric in METRICS if metric in values
        )

    def expectation(self, metric: str, bounds: object, path: str) -> Expectation:
        if not isinstance(bounds, Mapping) or not bounds:
            self.report("not a bound", path, value=show(bounds), allowed="min, max or both")
            return Expectation(metric)
        self.known(bounds, ("min", "max"), path)
        known = {side: bounds[side] for side in ("min", "max") if side in bounds}
        bounds = {side: self.value(float | None, FREE, bound, _join(path, side), None) for side, bound in known.items()}
        return Expectation(metric, **bounds)

    def agree(self, config: RunConfig) -> None:
        """Report keys that contradict each other; each of them is allowed on its own."""
        for e in config.expect:
            if e.min is not None and e.max is not None and e.min > e.max:
                self.report("min is above max", f"expect.{e.metric}", value=f"min {e.min}, max {e.max}")
            is_evaluated = config.eval.every != "never" and e.metric in config.eval.metrics
            if e.metric != "loss" and not is_evaluated:  # without an evaluation, the loss is that of the last step
                hint = f"eval.every=end with {e.metric} among eval.metrics, or ~expect"
                self.report("an expectation that is never evaluated", f"expect.{e.metric}", hint=hint)
        for error in optimizer_disagreements(config.optimizer):
            self.errors.append(error.add(**{"from": self.origin(error.rows["key"])}))
        self.agree_on_ranks(config)
        if config.dataset.augment and config.dataset.name not in AUGMENTABLE:
            hint = f"augment mirrors images, and those of {config.dataset.name} mean something else in a mirror"
            rows = {"value": "true", "allowed": f"false, or a dataset of {', '.join(AUGMENTABLE)}", "hint": hint}
            self.report("images that cannot be augmented", "dataset.augment", **rows)

    def agree_on_ranks(self, config: RunConfig) -> None:
        """Report what ranks of a data-parallel run cannot do."""
        if not isinstance(config.parallel, DataParallel):
            return
        if config.device.id:
            hint = "each rank has the device of its own number"
            self.report("a device for all ranks", "device.id", value=config.device.id, allowed="0", hint=hint)
        if config.session.auto_tune_mode is not None:
            hint = "parallel=stand_alone knows it"
            self.report("several ranks cannot do this yet", "session.auto_tune_mode", hint=hint)

    def agree_on_files(self, config: RunConfig) -> None:
        """Report what is wrong with a dump, a profile or a tracking as a whole, unless keys of it are wrong."""
        wrong = {error.rows["key"].split(".")[0] for error in self.errors}
        found: list[ConfigError] = []
        if not wrong & {"dump", "mode", "dataset_sink_mode"}:
            found += dump_disagreements(config.dump, sunk=config.mode == "graph" and config.dataset_sink_mode)
        if not wrong & {"profiling", "session"}:
            is_single = not isinstance(config.parallel, DataParallel)
            found += profiling_disagreements(config.profiling, config.session, is_single)
        if "tracking" not in wrong:
            found += tracking_disagreements(config.tracking)
        if not self.errors and not found:
            requested = is_dumped(config.dump), is_profiled(config.profiling, config.session)
            found += session_disagreements(config.session, config.eval.every != "never", *requested)
        for error in found:
            key = error.rows["key"]
            origin = self.origin(key) if key.split(".")[0] in _names(RunConfig) else None  # or in a JSON file
            self.errors.append(error.add(**{"from": origin}))


def _owners(kinds: Mapping[str, type[Any]], path: str) -> dict[str, str]:
    """What to add to have a key, for each key of a group whose `name` decides which keys it has."""
    keys = dict.fromkeys(key for kind in kinds.values() for key in _names(kind))
    having = {key: [name for name, kind in kinds.items() if key in _names(kind)] for key in keys}
    if path not in GROUPS:  # it has no options of its own
        return {key: f"a key of {path}.name={', '.join(names)}" for key, names in having.items()}
    return {key: f"add {' or '.join(f'{path}={name}' for name in names)} first" for key, names in having.items()}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _names(owner: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(owner))

"""Parameter groups of optimizers: dicts with parameters and their own learning rate, weight decay or centralization."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from runner.core.values import Parameter
from runner.errors import ConfigError, known_names
from runner.validation.arguments import Where, at_least, flag, scalar
from runner.validation.rules import Frozen

KEYS = ("params", "lr", "weight_decay", "grad_centralization", "order_params")

Parameters: TypeAlias = Iterable[Parameter] | Iterable[Mapping[str, Any]]


class Group(Frozen):
    """The dict `number` of a list: its parameters, and those of the keys `lr`, `weight_decay` and
    `grad_centralization` that it has."""

    number: int
    parameters: tuple[Parameter, ...]
    settings: Mapping[str, Any]

    def weight_decay(self, default: float) -> float:
        """The penalty of the group."""
        return float(scalar(self.settings.get("weight_decay", default)))

    @property
    def centralizes(self) -> bool:
        """Whether gradients are centralized."""
        return bool(self.settings.get("grad_centralization", False))


def read_groups(given: object, where: Where) -> tuple[list[Group], tuple[Parameter, ...] | None]:
    """The groups of an optimizer's `parameters`, and the order that `order_params` gives to all of them.

    Parameters without groups are one group, whose `number` is -1. Raises ConfigError for what are neither parameters
    nor groups of them.
    """
    entries = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping) else [given]
    if not entries:
        raise ConfigError("an optimizer needs parameters", **where)
    if not any(isinstance(entry, Mapping) for entry in entries):
        return [Group(-1, _checked(entries, where), {})], None
    groups, order = [], None
    for number, entry in enumerate(entries):
        place = {**where, "group": number}
        if not isinstance(entry, Mapping):
            raise ConfigError("parameters are all in groups, or none is", **place, given=type(entry).__name__)
        _check_keys(entry, place)
        if "order_params" in entry:
            order = _checked(_listed(entry["order_params"], "order_params", place), place)
        else:
            groups.append(_group(number, entry, place))
    _check_members(groups, order, where)
    return groups, order


def _group(number: int, entry: Mapping[str, Any], place: Where) -> Group:
    if "params" not in entry:
        raise ConfigError("a parameter group needs the key params", **place, given=", ".join(entry) or "{}")
    members = _listed(entry["params"], "params", place)
    if not members:
        raise ConfigError("a parameter group needs parameters", **place, repair="leave out a group without parameters")
    if "weight_decay" in entry:
        at_least(place, 0.0, weight_decay=scalar(entry["weight_decay"]))
    if "grad_centralization" in entry:
        flag(place, grad_centralization=entry["grad_centralization"])
    return Group(number, _checked(members, place), {key: entry[key] for key in entry if key != "params"})


def _check_keys(entry: Mapping[str, Any], place: Where) -> None:
    for key in entry:
        if key not in KEYS:
            raise ConfigError("a parameter group has no such key", **place, given=repr(key), **known_names(key, KEYS))
    if "order_params" in entry and len(entry) > 1:
        given = ", ".join(entry)
        raise ConfigError("order_params is the only key of its dict", **place, given=given, repair="a dict for itself")


def _check_members(groups: Sequence[Group], order: tuple[Parameter, ...] | None, where: Where) -> None:
    """Raise ConfigError for parameters in two groups, and for an order of other parameters."""
    members: set[Parameter] = set()
    for group in groups:
        for parameter in group.parameters:
            if parameter in members:
                raise ConfigError("a parameter is in two groups", **where, parameter=parameter.name)
            members.add(parameter)
    if not members:
        raise ConfigError("an optimizer needs parameters", **where)
    if order is not None and (len(order) != len(members) or set(order) != members):
        other = members.symmetric_difference(order)
        rows = {"order_params": len(order), "in_groups": len(members), "other": _names(other) or None}
        raise ConfigError("order_params has every parameter of the groups once", **where, **rows)


def _listed(value: object, key: str, place: Where) -> list[object]:
    if isinstance(value, Parameter) or not isinstance(value, Iterable):
        raise ConfigError(f"{key} must be a list of parameters", **place, given=type(value).__name__)
    return list(value)


def _checked(entries: Sequence[object], place: Where) -> tuple[Parameter, ...]:
    for entry in entries:
        if not isinstance(entry, Parameter):
            rows = {"given": type(entry).__name__, "repair": "network.trainable_params()"}
            raise ConfigError("an optimizer takes parameters, or dicts with the key params", **place, **rows)
    return tuple(entries)  # type: ignore[arg-type]


def _names(parameters: Iterable[Parameter]) -> str:
    return ", ".join(sorted(parameter.name for parameter in parameters))

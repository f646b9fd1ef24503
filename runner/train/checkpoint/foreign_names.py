"""Weights of other programs, under the names of our parameters (`checkpoint.names`)."""

import re
from collections.abc import Mapping

from runner.core.values import Parameter
from runner.errors import ConfigError, nearest
from runner.validation.rules import Frozen, Names

COUNTERS = re.compile(r"(.*\.)?num_batches_tracked")  # of torch's normalizations, which need none here


class Renamed(Frozen):
    """Weights by our names; our names that have none, with theirs, and their names that are left."""

    parameters: dict[str, Parameter]
    missing: dict[str, str]
    surplus: list[str]


def renamed(own: Mapping[str, Parameter], given: Mapping[str, Parameter], names: Names) -> Renamed:
    """The values `given` for our parameters `own`, floats in the element types of these.

    Raises ConfigError for rules of a file that match none of our names.
    """
    if unused := names.unused(own):
        lines = "\n".join(_with_nearest(rule, list(own)) for rule in unused)
        raise ConfigError("rules for names of weights match no parameter of the network", rules=lines)
    found, missing = dict[str, Parameter](), dict[str, str]()
    for name, parameter in own.items():
        other = names.theirs(name)
        if other is not None and other in given:
            found[name] = _converted(given[other], parameter)
        elif other is not None:
            missing[name] = other
    used = {names.theirs(name) for name in own}
    surplus = [name for name in sorted(given) if name not in used and not COUNTERS.fullmatch(name)]
    return Renamed(parameters=found, missing=missing, surplus=surplus)


def _with_nearest(rule: str, names: list[str]) -> str:
    close = nearest(rule, names)
    return f"{rule} (nearest: {close})" if close else rule


def _converted(given: Parameter, own: Parameter) -> Parameter:
    if given.dtype is own.dtype or not (given.dtype.is_float and own.dtype.is_float):
        return given
    return Parameter(given.array.astype(own.dtype.numpy), given.name)

"""Parameters that a training leaves as they are (`network.freeze`)."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from runner.core.values import Parameter
from runner.errors import ConfigError, nearest, raise_all, some
from runner.nn.cell import Cell

__all__ = ["freeze"]

NOWHERE: Mapping[str, object] = {}
MOST_NAMES = 5  # in an error


def freeze(
    network: Cell, patterns: Sequence[str], trained: Collection[Parameter] = (), where: Mapping[str, object] = NOWHERE
) -> list[Parameter]:
    """Freeze the parameters whose names match a pattern, and return those that a training would have changed.

    `*` stands for any text, `?` for one character, `[ab]` for one of these; dots and slashes are the same character.
    A frozen parameter has `frozen` and no `requires_grad`, so optimizers do not get it. A batch normalization whose
    gamma and beta are frozen normalizes with its moving statistics in training too, and keeps them. Those of `trained`
    are never frozen. `where` are rows of errors. Raises ConfigError for a pattern that matches no parameter that would
    be trained, and when all are frozen; ConfigErrors for several.
    """
    others = set(trained)  # `in` a list would compare elements
    parameters = [p for p in network.get_parameters() if p not in others]
    trainable = [p for p in parameters if p.requires_grad]
    matched = {pattern: [p for p in parameters if matches(p.name, pattern)] for pattern in patterns}
    raise_all([_unmatched(pattern, matched[pattern], trainable, where) for pattern in _useless(matched)])
    frozen = {p for found in matched.values() for p in found}
    if patterns and not any(p.requires_grad for p in network.get_parameters() if p not in frozen):
        rows = {"value": ", ".join(patterns), "trainable": f"all {len(trainable)} parameters are frozen"}
        repair = "patterns that leave some, such as those of the last layer"
        raise ConfigError("no parameter is left to train", **where, **rows, repair=repair)
    for parameter in frozen:
        parameter.frozen, parameter.requires_grad = True, False
    return [p for p in trainable if p.frozen]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern is that of a name.

    >>> matches("features.0.weight", "features/*"), matches("model/dense/kernel:0", "*.dense.*")
    (True, True)
    """
    name, pattern = (text.replace("/", ".") for text in (name, pattern))
    return name == pattern or fnmatchcase(name, pattern)


def _useless(matched: Mapping[str, Sequence[Parameter]]) -> list[str]:
    """The patterns without any parameter that would be trained."""
    return [pattern for pattern, found in matched.items() if not any(p.requires_grad for p in found)]


def _unmatched(
    pattern: str, found: Sequence[Parameter], trainable: Sequence[Parameter], where: Mapping[str, object]
) -> ConfigError:
    names = [p.name for p in trainable]
    rows: dict[str, object]
    if found:
        rows = {"value": pattern, "matches": some([p.name for p in found], MOST_NAMES)}
        return ConfigError("a pattern matches only parameters that are never trained", **where, **rows)
    below = [name for name in names if matches(name, f"{pattern}.*")]
    close = f"{pattern}.*" if below else nearest(pattern, [*_groups(names), *names])
    rows = {"value": pattern, "nearest": close, "parameters": some(below or names, MOST_NAMES)}
    return ConfigError("a pattern matches no parameter", **where, **rows)


def _groups(names: Sequence[str]) -> list[str]:
    """The patterns of whole layers: `layer1.*`, `layer1.0.*`."""
    groups = dict[str, None]()
    for name in names:
        parts = name.replace("/", ".").split(".")
        groups |= dict.fromkeys(".".join([*parts[:count], "*"]) for count in range(1, len(parts)))
    return list(groups)

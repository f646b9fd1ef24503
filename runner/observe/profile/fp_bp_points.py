"""The borders in a step: the operator with which forward begins, and the one with which backward ends."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from runner.errors import ConfigError, nearest
from runner.observe.profile.record import Look, Operator

SUNK_ROOT = "network-TrainOneStepCell/"  # what the scopes of a sunk step have in addition (spec section 2.6)


class Points(NamedTuple):
    """Full names; no `bp` when nothing is differentiated."""

    fp: str
    bp: str | None


class Borders(NamedTuple):
    """When the first point began and the second ended; None where nothing is known."""

    fp: int | None
    bp: int | None


def executed(point: str, operators: Iterable[str]) -> str | None:
    """The operator that a point names, with or without the root of sunk steps; None when the compiler has merged it
    into others or computed it beforehand.
    """
    return {_plain(name): name for name in operators}.get(_plain(point))


def check(point: str, key: str, operators: Sequence[str], hint: str | None = None) -> None:
    """Raise ConfigError with the nearest name when no operator of the traced step has this one."""
    if executed(point, operators) is not None:
        return
    raise ConfigError(
        "no operator of the training step has this name",
        key=key,
        value=point,
        allowed=f"the full name of one of its {len(operators)} operators",
        nearest=nearest(point, operators),
        hint=hint,
    )


def found(operators: Mapping[str, Operator], looks: Iterable[Look]) -> Points:
    """The points of a network by themselves.

    Forward begins with the operator of the lowest number that takes time; backward ends with the gradient that ends
    last in most steps.
    """
    looked = list(looks)
    timed = {moment.operators[0] for look in looked for moment in look.moments if moment.operators}
    steps = [o for o in operators.values() if o.part != "data" and o.name in timed] or list(operators.values())
    first = min(steps, key=lambda o: o.number).name
    last = [name for look in looked if (name := _last_gradient(operators, look))]
    return Points(first, max(set(last), key=last.count) if last else None)


def borders(look: Look, points: Points) -> Borders:
    """When the points were met in a step; an operator without nodes of its own is met when the next one begins."""
    of_fp = [m.start for m in look.moments if points.fp in m.operators]
    of_bp = [m.stop for m in look.moments if points.bp in m.operators]
    return Borders(min(of_fp, default=look.start), max(of_bp, default=look.stop) if points.bp else None)


def _last_gradient(operators: Mapping[str, Operator], look: Look) -> str | None:
    gradients = [
        (moment.stop, name)
        for moment in look.moments
        for name in moment.operators
        if name in operators and operators[name].part == "backward"
    ]
    return max(gradients)[1] if gradients else None


def _plain(name: str) -> str:
    return name.replace(SUNK_ROOT, "", 1)

"""The fp and bp points of a step: the operators with which its forward part begins and its backward part ends."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from runner.errors import ConfigError, nearest
from runner.observe.profile.record import ProfiledOperator, ProfiledStep

SUNK_ROOT = "network-TrainOneStepCell/"  # an additional scope of sunk steps (spec section 2.6)


class StepPoints(NamedTuple):
    """Full names of the operators; `bp` is None when the step has no gradients."""

    fp: str
    bp: str | None


class PointTimes(NamedTuple):
    """The start of the fp point and the end of the bp point in ns; None where it is not known."""

    fp: int | None
    bp: int | None


def find_operator(point: str, operators: Iterable[str]) -> str | None:
    """The operator with the name `point`, with or without the root of sunk steps.

    None when the compiler has merged it into others or folded it.
    """
    return {_without_root(name): name for name in operators}.get(_without_root(point))


def check_point(
    point: str, key: str, operators: Sequence[str], hint: str | None = None, part: Sequence[str] = (), name: str = ""
) -> None:
    """Raise ConfigError with the nearest name when no operator of the traced step has this name.

    `part` has the operators that are meant, those of the part of the step with this `name`; () means all.
    """
    if find_operator(point, operators) is not None:
        return
    meant = part or operators
    what = f"the {len(meant)} operators of its {name} part" if part else f"its {len(meant)} operators"
    close = _nearest(point, meant)
    rows = {"nearest": close, "such_as": meant[0] if meant and close is None else None, "hint": hint}
    about = {"key": key, "value": point, "allowed": f"the full name of one of {what}"}
    raise ConfigError("no operator of the training step has this name", **about, **rows)


def _nearest(point: str, names: Sequence[str]) -> str | None:
    """The closest full name, otherwise the first one whose last part, such as `Conv2D-op3`, is close."""
    by_last_part = {name.rpartition("/")[2]: name for name in reversed(names)}
    last_part = nearest(point.rpartition("/")[2], by_last_part)
    return nearest(point, names) or (by_last_part[last_part] if last_part else None)


def find_points(operators: Mapping[str, ProfiledOperator], steps: Iterable[ProfiledStep]) -> StepPoints:
    """The points of a network.

    Forward begins with the operator of the lowest number that takes time; backward ends with the gradient that ends
    last in most steps.
    """
    steps = list(steps)
    timed = {execution.operators[0] for step in steps for execution in step.executions if execution.operators}
    candidates = [o for o in operators.values() if o.part != "data" and o.name in timed] or list(operators.values())
    first = min(candidates, key=lambda o: o.number).name
    last = [name for step in steps if (name := _last_gradient(operators, step))]
    return StepPoints(first, max(set(last), key=last.count) if last else None)


def point_times(step: ProfiledStep, points: StepPoints) -> PointTimes:
    """The times of the points in a step; without nodes of an operator, the start or the end of the step."""
    fp = [e.start for e in step.executions if points.fp in e.operators]
    bp = [e.stop for e in step.executions if points.bp in e.operators]
    return PointTimes(min(fp, default=step.start), max(bp, default=step.stop) if points.bp else None)


def _last_gradient(operators: Mapping[str, ProfiledOperator], step: ProfiledStep) -> str | None:
    gradients = [
        (execution.stop, name)
        for execution in step.executions
        for name in execution.operators
        if name in operators and operators[name].part == "backward"
    ]
    return max(gradients)[1] if gradients else None


def _without_root(name: str) -> str:
    return name.replace(SUNK_ROOT, "", 1)

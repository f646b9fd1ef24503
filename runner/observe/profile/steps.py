"""The steps of a profiled training, and their fp and bp points: the operators with which the forward part of a step
begins and its backward part ends.

`find_points` names the points of a network, `check_point` one that the user gives; `step_rows` places them in every
step: as measured in profiled steps, and as in those in all others.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from runner.errors import ConfigError, nearest
from runner.observe.names import without_root
from runner.observe.profile.record import ProfiledOperator, ProfiledStep, ProfileRecord

# The points.


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
    return {without_root(name): name for name in operators}.get(without_root(point))


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


# The steps.


class StepRow(NamedTuple):
    """One step, ns since the start of the training: from the end of the step before to its own end.

    `measured`: whether the points were measured, or else placed as in profiled steps. `exchanges` with other ranks:
    start and stop, measured in every step. `warm_up`: whether averages leave the step out.
    """

    number: int
    start: int
    stop: int
    fp: int | None
    bp: int | None
    measured: bool
    exchanges: tuple[tuple[int, int], ...] = ()
    warm_up: bool = False


def step_rows(record: ProfileRecord, points: StepPoints) -> list[StepRow]:
    """The steps of a record; times are relative to its origin."""
    profiled = {step.step: step for step in record.profiled_steps}
    exchanges = {call.first: call.exchanges for call in record.calls}
    shares = [_shares(step, point_times(step, points), exchanges.get(number, ())) for number, step in profiled.items()]
    fp = statistics.median(share[0] for share in shares) if shares else None
    with_bp = [share[1] for share in shares if share[1] is not None]
    bp = statistics.median(with_bp) if with_bp else None
    rows: list[StepRow] = []
    calls, origin = record.calls, record.origin
    end = calls[0].start - calls[0].waited if calls else 0
    for number, start, stop in _windows(record):
        step, own = profiled.get(number), exchanges.get(number, ())
        first = _first_exchange(start, stop, own)
        estimate = PointTimes(_placed(start, first, fp), _placed(start, first, bp))
        times = point_times(step, points) if step else estimate
        fp_at, bp_at = (None if time is None else min(time, stop) - origin for time in times)
        relative = tuple([(x - origin, y - origin) for x, y in own])
        warm_up = number in record.warm_up
        rows.append(StepRow(number, end - origin, stop - origin, fp_at, bp_at, step is not None, relative, warm_up))
        end = stop
    return rows


def _windows(record: ProfileRecord) -> Iterator[tuple[int, int, int]]:
    """Each step with its time on the device; unprofiled steps of a sink have equal shares of the call."""
    for call in record.calls:
        length = (call.stop - call.start) / call.steps
        for k in range(call.steps):
            number = call.first + k
            equal = call.start + round(k * length), call.start + round((k + 1) * length)
            start, stop = record.windows.get(number, equal)
            yield number, start, call.stop if k == call.steps - 1 else stop


def _first_exchange(start: int, stop: int, exchanges: Sequence[tuple[int, int]]) -> int:
    """The start of the first exchange of a step, or its end: the points do not depend on the duration of exchanges."""
    return min((at for at, _ in exchanges if start < at), default=stop)


def _shares(step: ProfiledStep, times: PointTimes, exchanges: Sequence[tuple[int, int]]) -> tuple[float, float | None]:
    """The points of a step as shares of its time on the device before the first exchange."""
    length = max(1, _first_exchange(step.start, step.stop, exchanges) - step.start)
    assert times.fp is not None
    return (times.fp - step.start) / length, None if times.bp is None else (times.bp - step.start) / length


def _placed(start: int, stop: int, share: float | None) -> int | None:
    return None if share is None else start + round(share * (stop - start))

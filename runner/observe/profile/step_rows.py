"""Every step of a training with its points: measured in profiled steps, placed as in those in all others."""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runner.observe.profile.fp_bp_points import PointTimes, StepPoints, point_times
from runner.observe.profile.record import ProfiledStep, ProfileRecord


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

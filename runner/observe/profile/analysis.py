"""Analysis of a record: the time of each operator, and the parts of every step.

The time of an operator is that of its nodes plus the pause before each of them, in which onnxruntime or Python selects
the node. The profile itself lengthens these pauses, so all of them are multiplied by one `pause_factor`, with which the
operators add up to a step that is not profiled. Kernel times are used as measured, except for exchanges with other
ranks: these wait for each other, and wait longer when all ranks are profiled. Exchanges are timed in every step, so
`exchange_factor` scales them to their duration in steps that are not profiled.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from runner.observe.profile.fp_bp_points import PointTimes, StepPoints, find_operator, find_points, point_times
from runner.observe.profile.record import HOST, NodeExecution, ProfiledOperator, ProfiledStep, ProfileRecord
from runner.observe.profile.settings import ProfileSettings

COPY = "Identity"


class OperatorTimes(NamedTuple):
    """Nanoseconds of one operator in each profiled step. `operator` is None for copies of results, which belong to no
    operator; `shared_with` are the operators that are implemented by the same nodes.
    """

    name: str
    operator: ProfiledOperator | None
    times: tuple[float, ...]
    shared_with: tuple[str, ...]

    @property
    def total(self) -> float:
        """The sum over all steps."""
        return sum(self.times)

    @property
    def mean(self) -> float:
        """The mean of all steps."""
        return self.total / len(self.times) if self.times else 0.0

    @property
    def median(self) -> float:
        """The median of all steps: other processes disturb some of them."""
        return statistics.median(self.times) if self.times else 0.0

    @property
    def kind(self) -> str:
        """Type of the operator."""
        return self.operator.kind if self.operator else COPY


class StepRow(NamedTuple):
    """One step, ns since the start of the training: from the end of the step before to its own end.

    `measured`: whether the points were measured, or else placed as in profiled steps. `exchanges` with other ranks:
    start and stop, measured in every step.
    """

    number: int
    start: int
    stop: int
    fp: int | None
    bp: int | None
    measured: bool
    exchanges: tuple[tuple[int, int], ...] = ()


class Analysis:
    """Figures of a record."""

    def __init__(self, record: ProfileRecord, settings: ProfileSettings) -> None:
        self.record, self.settings = record, settings

    @cached_property
    def unprofiled_step(self) -> float | None:
        """Nanoseconds of the device for a step that is not profiled, the median; None when there is none."""
        plain = [(call.stop - call.start) / call.steps for call in self.record.calls if not call.profiled]
        rest = plain[1:] or plain  # the first one also allocates memory
        return statistics.median(rest) if rest else None

    @cached_property
    def profiled_step(self) -> float:
        """Nanoseconds of the device for a profiled step, the median; 0 when there is none."""
        steps = self.record.profiled_steps
        return statistics.median(step.stop - step.start for step in steps) if steps else 0.0

    @cached_property
    def pause_factor(self) -> float:
        """The factor for the pauses between nodes; 1 where it is unknown."""
        steps = self.record.profiled_steps
        if not steps or self.unprofiled_step is None:
            return 1.0
        kernels = statistics.median(sum(e.stop - e.start for e in step.executions) for step in steps)
        pauses = self.profiled_step - kernels
        corrected = statistics.median(sum(map(self.corrected, step.executions)) for step in steps)
        return min(1.0, max(0.0, (self.unprofiled_step - corrected) / pauses)) if pauses > 0 else 1.0

    @cached_property
    def exchange_factor(self) -> float:
        """The duration of exchanges with other ranks in steps that are not profiled, relative to profiled steps; 1
        where it is unknown.
        """
        sums = [(call.profiled, sum(stop - start for start, stop in call.exchanges)) for call in self.record.calls]
        plain, profiled = [ns for timed, ns in sums[1:] if not timed], [ns for timed, ns in sums if timed]
        known = plain and profiled and statistics.median(profiled)
        return statistics.median(plain) / statistics.median(profiled) if known else 1.0

    def corrected(self, execution: NodeExecution) -> float:
        """Nanoseconds of a node; exchanges are scaled by `exchange_factor`."""
        operator = self.record.operators.get(owner(execution))
        is_exchange = operator is not None and operator.part == "aggregation"
        return (execution.stop - execution.start) * (self.exchange_factor if is_exchange else 1.0)

    @cached_property
    def operator_times(self) -> list[OperatorTimes]:
        """Every operator in the order of the graph, including those without nodes of their own; then copies."""
        steps = self.record.profiled_steps
        times: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(steps))
        shared: dict[str, dict[str, None]] = defaultdict(dict)
        for place, step in enumerate(steps):
            for execution, ns in self._slots(step):
                times[owner(execution)][place] += ns
                for name in execution.operators:
                    shared[name].update(dict.fromkeys(n for n in execution.operators if n != name))
        known = self.record.operators
        names = [*known, *(name for name in times if name not in known)] if steps else []
        return [OperatorTimes(name, known.get(name), tuple(times[name]), tuple(shared[name])) for name in names]

    @property
    def longest_first(self) -> list[OperatorTimes]:
        """Every operator, by its total time."""
        return sorted(self.operator_times, key=lambda times: -times.total)

    def _slots(self, step: ProfiledStep) -> Iterator[tuple[NodeExecution, float]]:
        """Each node with its time: kernel and scaled pause before it; the last node also has the pause after it."""
        before = step.start
        for execution in step.executions:
            after = step.stop - execution.stop if execution is step.executions[-1] else 0
            pause = max(0, execution.start - before) + max(0, after)
            yield execution, self.corrected(execution) + self.pause_factor * pause
            before = execution.stop

    @cached_property
    def points(self) -> StepPoints:
        """The points of the settings where they are executed, otherwise those of the network."""
        record = self.record
        found = find_points(record.operators, record.profiled_steps) if record.operators else StepPoints("", None)
        return StepPoints(
            self._configured("fp_point", self.settings.fp_point) or found.fp,
            self._configured("bp_point", self.settings.bp_point) or found.bp,
        )

    def _configured(self, key: str, point: str | None) -> str | None:
        name = find_operator(point, self.record.operators) if point else None
        if point and name is None:
            self.record.remarks.append(
                f"{key} {point} is not executed: the compiler has merged it; another one is taken"
            )
        return name

    @cached_property
    def parts(self) -> dict[str, float]:
        """Nanoseconds of one step by part; they add up to a step that is not profiled."""
        calls = self.record.calls
        steps = sum(call.steps for call in calls)
        if not steps:
            return {}
        by_part: dict[str, float] = defaultdict(float)
        for times in self.operator_times:
            by_part[times.operator.part if times.operator else "update"] += times.median
        device = self.unprofiled_step or self.profiled_step
        waited = sum(call.waited for call in calls) / steps
        named = {part: by_part[part] for part in ("forward", "backward", "aggregation", "update")}
        parts = {"data_preparation": waited + by_part["data"], **named, "callbacks_and_python": self._between_calls}
        return parts | {"rest_of_the_device_call": max(0.0, device - sum(by_part.values()))}

    @cached_property
    def _between_calls(self) -> float:
        """Nanoseconds per step between two calls, without waiting for data and compiling: the median."""
        host = self.record.tracks.get(HOST, [])
        pauses = []
        for before, call in pairwise(self.record.calls):
            compiling = sum(span.stop - span.start for span in host if before.stop <= span.start <= call.start)
            pauses.append((call.start - before.stop - call.waited - compiling) / call.steps)
        return max(0.0, statistics.median(pauses)) if pauses else 0.0

    @cached_property
    def steps(self) -> list[StepRow]:
        """Every step of the training."""
        profiled = {step.step: step for step in self.record.profiled_steps}
        exchanges = {call.first: call.exchanges for call in self.record.calls}
        shares = [
            _shares(step, point_times(step, self.points), exchanges.get(number, ()))
            for number, step in profiled.items()
        ]
        fp = statistics.median(share[0] for share in shares) if shares else None
        with_bp = [share[1] for share in shares if share[1] is not None]
        bp = statistics.median(with_bp) if with_bp else None
        rows: list[StepRow] = []
        calls, origin = self.record.calls, self.record.origin
        end = calls[0].start - calls[0].waited if calls else 0
        for number, start, stop in self._windows():
            step, own = profiled.get(number), exchanges.get(number, ())
            first = _first_exchange(start, stop, own)
            estimate = PointTimes(_placed(start, first, fp), _placed(start, first, bp))
            times = point_times(step, self.points) if step else estimate
            fp_at, bp_at = (None if time is None else min(time, stop) - origin for time in times)
            relative = tuple([(x - origin, y - origin) for x, y in own])
            rows.append(StepRow(number, end - origin, stop - origin, fp_at, bp_at, step is not None, relative))
            end = stop
        return rows

    def _windows(self) -> Iterator[tuple[int, int, int]]:
        """Each step with its time on the device; unprofiled steps of a sink have equal shares of the call."""
        for call in self.record.calls:
            length = (call.stop - call.start) / call.steps
            for k in range(call.steps):
                number = call.first + k
                equal = call.start + round(k * length), call.start + round((k + 1) * length)
                start, stop = self.record.windows.get(number, equal)
                yield number, start, call.stop if k == call.steps - 1 else stop


def owner(execution: NodeExecution) -> str:
    """The operator to which the time of a node is attributed; the node itself when it implements none."""
    return execution.operators[0] if execution.operators else execution.node


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

"""Analysis of a record: the time of each operator, and the parts of every step.

The time of an operator is that of its nodes plus the pause before each of them, in which onnxruntime or Python selects
the node. The profile itself lengthens these pauses, so all of them are multiplied by one `pause_factor`, with which the
operators add up to a step that is not profiled. Kernel times are used as measured, except for exchanges with other
ranks: these wait for each other, and wait longer when all ranks are profiled. Exchanges are timed in every step, so
`exchange_factor` scales them to their duration in steps that are not profiled.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, get_args

from runner.observe.profile.distribution import Distribution, distribution, of_steps
from runner.observe.profile.fp_bp_points import StepPoints, find_operator, find_points
from runner.observe.profile.record import DeviceCall, NodeExecution, Part, ProfiledOperator, ProfiledStep, ProfileRecord
from runner.observe.profile.schedule import SAMPLES
from runner.observe.profile.settings import ProfileSettings
from runner.observe.profile.step_rows import StepRow, step_rows

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
    def distribution(self) -> Distribution:
        """The median of all steps, since other processes disturb some of them, and the quartiles."""
        return of_steps(self.times)

    @property
    def median(self) -> float:
        """The median of all steps."""
        return self.distribution.value

    @property
    def kind(self) -> str:
        """Type of the operator."""
        return self.operator.kind if self.operator else COPY


class Analysis:
    """Figures of a record."""

    def __init__(self, record: ProfileRecord, settings: ProfileSettings) -> None:
        self.record, self.settings = record, settings

    @cached_property
    def _plain_calls(self) -> list[DeviceCall]:
        """The calls that show how long a step takes without the profile: none if they are too few steps for that."""
        record = self.record
        plain = [call for call in record.calls if not call.profiled]
        settled = [call for call in plain if call.first not in record.warm_up]
        if sum(call.steps for call in settled) >= SAMPLES:
            return settled
        return [] if record.profiled_steps else settled or plain

    @cached_property
    def device_step(self) -> Distribution:
        """The time of the device for a step: of those that are not profiled, if there are enough of them."""
        if self._plain_calls:
            return distribution([((call.stop - call.start) / call.steps, call.steps) for call in self._plain_calls])
        return of_steps(step.stop - step.start for step in self.record.profiled_steps)

    @property
    def unprofiled_step(self) -> float | None:
        """Nanoseconds of the device for a step that is not profiled, the median; None where it is not known."""
        return self.device_step.value if self._plain_calls else None

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
    def parts(self) -> dict[str, Distribution]:
        """The time of one step by part; they add up to a step that is not profiled, if there are enough of those."""
        if not self.record.calls:
            return {}
        by_part = {part: self._part(part) for part in get_args(Part)}
        data, device = by_part.pop("data"), self.device_step
        waits = self.waits
        data = Distribution(waits.samples, waits.value + data.value, waits.low + data.low, waits.high + data.high, True)
        inside = data.value - waits.value + sum(part.value for part in by_part.values())
        value, low, high = (max(0.0, time - inside) for time in (device.value, device.low, device.high))
        host = {"data_preparation": data, **by_part, "callbacks_and_python": self._between_calls}
        return {**host, "rest_of_the_device_call": Distribution(device.samples, value, low, high)}

    @property
    def step(self) -> float:
        """Nanoseconds of one step: the sum of its parts."""
        return sum(part.value for part in self.parts.values())

    @property
    def step_distribution(self) -> Distribution:
        """The time of the device for a step, with the waits for data and the pauses between calls."""
        device, host = self.device_step, self.waits.value + self._between_calls.value
        return Distribution(device.samples, device.value + host, device.low + host, device.high + host)

    def _part(self, part: str) -> Distribution:
        """The sum of all operators of a part; operators that are not known copy results of the update."""
        times = [t.times for t in self.operator_times if (t.operator.part if t.operator else "update") == part]
        return of_steps(map(sum, zip(*times, strict=True)))

    @property
    def waiting_calls(self) -> list[DeviceCall]:
        """The calls whose waits for data count: the first batch is prepared before there is anything to compute."""
        return self.record.calls[1:] or self.record.calls

    @cached_property
    def waits(self) -> Distribution:
        """The wait for data of a step. It is a mean: batches come in bunches when several threads prepare them."""
        calls = self.waiting_calls
        found = distribution([(call.waited / call.steps, call.steps) for call in calls])
        steps = sum(call.steps for call in calls)
        return found._replace(value=sum(call.waited for call in calls) / max(1, steps), is_mean=True)

    @cached_property
    def _between_calls(self) -> Distribution:
        """The time of a step between two calls, without waiting for data and preparation."""
        pauses = [
            (max(0.0, (call.start - before.stop - call.waited - call.prepared) / call.steps), call.steps)
            for before, call in pairwise(self.record.calls)
        ]
        return distribution(pauses)

    @cached_property
    def steps(self) -> list[StepRow]:
        """Every step of the training."""
        return step_rows(self.record, self.points)


def owner(execution: NodeExecution) -> str:
    """The operator to which the time of a node is attributed; the node itself when it implements none."""
    return execution.operators[0] if execution.operators else execution.node

"""Analysis of the record of a profiled training, from which the files and the summary are made (`files.py`).

In this order: the distribution of a time over steps; `Analysis`, the time of each operator and the parts of a step; the
waits for data; the ranking of operators; one advice; `figures`, which puts together what people read.

The time of an operator is that of its nodes plus the pause before each of them, in which onnxruntime or Python selects
the node. The profile itself lengthens these pauses, so all of them are multiplied by one `pause_factor`, with which the
operators add up to a step that is not profiled. Kernel times are used as measured, except for exchanges with other
ranks: these wait for each other, and wait longer when all ranks are profiled. Exchanges are timed in every step, so
`exchange_factor` scales them to their duration in steps that are not profiled.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, get_args

from runner.observe.profile.record import DeviceCall, NodeExecution, Part, ProfiledOperator, ProfiledStep, ProfileRecord
from runner.observe.profile.settings import SAMPLES, WARM_UP, ProfileSettings, ProfileTarget
from runner.observe.profile.steps import StepPoints, StepRow, find_operator, find_points, step_rows

# The distribution of a time over the steps of a training, and what two of them say of each other.

# The share by which the time of an operator differs from run to run, in which it is in another place of the memory and
# beside other processes. Medians of equal operators of LeNet-5 differed by up to 0.2 in eight runs.
BETWEEN_RUNS = 0.25


class Distribution(NamedTuple):
    """Nanoseconds of a step, in so many `samples`: their `value`, and the quartiles `low` and `high`.

    A sample is a step, or a call of the device for several steps. The value is the median unless `is_mean`.
    """

    samples: int
    value: float
    low: float
    high: float
    is_mean: bool = False

    def exceeds(self, other: "Distribution") -> bool:
        """Whether the time is longer by more than the spread, so that the quartiles do not overlap, and by more than
        runs differ: of the longer time the lower quartile counts, since a few disturbed steps raise the median.
        """
        return self.low > other.high and (1 - BETWEEN_RUNS) * self.low > other.value


NOTHING = Distribution(0, 0.0, 0.0, 0.0)


def distribution(samples: Iterable[tuple[float, int]]) -> Distribution:
    """The distribution of samples: the time of a step, and the number of steps that had this time in the mean."""
    ordered = sorted(samples)
    if not ordered:
        return NOTHING
    low, median, high = (_quantile(ordered, quarters) for quarters in (1, 2, 3))
    return Distribution(len(ordered), median, low, high)


def of_steps(times: Iterable[float]) -> Distribution:
    """The distribution of times of single steps."""
    return distribution((time, 1) for time in times)


def _quantile(ordered: list[tuple[float, int]], quarters: int) -> float:
    """The shortest time that so many quarters of all steps do not exceed; of two such times, their mean."""
    target, seen = quarters * sum(steps for _, steps in ordered), 0
    for k, (time, steps) in enumerate(ordered):
        seen += 4 * steps
        if seen == target and k + 1 < len(ordered):
            return (time + ordered[k + 1][0]) / 2
        if seen >= target:
            return time
    return ordered[-1][0]


# The time of each operator, and the parts of every step.

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


# Whether the run waits for data.

NOTICEABLE, LARGE = 0.05, 0.25  # shares of the time


def waiting_share(analysis: Analysis) -> float:
    """The share of the time of a step that is spent on its data."""
    return analysis.parts["data_preparation"].value / (analysis.step or 1.0) if analysis.parts else 0.0


def waits_often(analysis: Analysis) -> bool:
    """Whether waits for data are a large share of the steps also without the longest wait, which another process may
    have caused.
    """
    calls = sorted(analysis.waiting_calls, key=lambda call: call.waited)[:-1]
    waited = sum(call.waited for call in calls) / max(1, sum(call.steps for call in calls))
    return waited > LARGE * (analysis.step - analysis.waits.value + waited)


def sentence(analysis: Analysis) -> str:
    """A sentence on whether the run waits for data."""
    share = waiting_share(analysis)
    time = f"{share:.1%} of its time"
    if share < NOTICEABLE:
        return f"The run does not wait for data: {time}."
    return f"The run {'waits' if share > LARGE and waits_often(analysis) else 'sometimes waits'} for data: {time}."


# Which operators take most of a step, as far as the timed steps can separate them.

WIDTH = 88  # of a name in a line


class RankedOperator(NamedTuple):
    """An operator with its places, 1 for the most expensive one.

    Operators that the timed steps do not separate have the same places, from `first` to `last`.
    """

    operator: OperatorTimes
    first: int
    last: int

    @property
    def places(self) -> str:
        """The places as text: `3`, or `1-4`."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def label(self) -> str:
        """The full name, or the end of a long one."""
        name = self.operator.name
        return name if len(name) <= WIDTH else "…" + name[1 - WIDTH :]


def ranking(analysis: Analysis) -> list[RankedOperator]:
    """The operators that take time, the longest median first; none when too few steps were timed."""
    if len(analysis.record.profiled_steps) < SAMPLES:
        return []
    ordered = sorted((t for t in analysis.operator_times if t.median), key=lambda times: -times.median)
    groups: list[list[OperatorTimes]] = []
    for operator in ordered:
        if not groups or groups[-1][0].distribution.exceeds(operator.distribution):
            groups.append([])
        groups[-1].append(operator)
    ranked: list[RankedOperator] = []
    for group in groups:
        first = len(ranked) + 1
        ranked += [RankedOperator(operator, first, len(ranked) + len(group)) for operator in group]
    return ranked


def remark(analysis: Analysis, ranked: list[RankedOperator]) -> str | None:
    """A sentence on what the ranking does not say; None when the first place is clear, or no operator was timed."""
    timed = len(analysis.record.profiled_steps)
    if 0 < timed < SAMPLES:
        steps = f"{timed} step{'' if timed == 1 else 's'}"
        return f"Operators are not ranked: they were timed in {steps}, and a ranking needs {SAMPLES}."
    if not ranked or ranked[0].last == 1:
        return None
    return (
        f"The first {ranked[0].last} cannot be separated: their quartiles overlap, or they differ by less than"
        f" {BETWEEN_RUNS:.0%}, as the same operator does from run to run."
    )


# The recommendation of a profile.

OVERHEAD = 0.15  # a share of the step that is worth a recommendation


class Means(NamedTuple):
    """What a recommendation names: keys of a config, or what a script writes."""

    workers: str
    operators: str
    steps: str
    graph: str
    batch: str
    sink: str


KEYS = Means(
    workers="dataset.num_parallel_workers=2",
    operators="profiling=trace profiling.task_trace=on",
    steps="max_steps={}",
    graph="mode=graph",
    batch="dataset.batch_size",
    sink="dataset_sink_mode=true",
)
OF_SCRIPTS = Means(
    workers="num_parallel_workers=2 of the dataset",
    operators="task_trace in profiling_options",
    steps="{} steps",
    graph="context.set_context(mode=context.GRAPH_MODE)",
    batch="batch",
    sink="dataset_sink_mode=True of Model.train",
)


def advice(analysis: Analysis, target: ProfileTarget, ranked: Sequence[RankedOperator]) -> str:
    """One thing to try next: none from fewer than `SAMPLES` timed steps, and a share of the step counts only if its
    lower quartile is large. It names only what this training has, and what would have an effect on it.
    """
    means = OF_SCRIPTS if target.scripted else KEYS
    if waits_often(analysis) and sum(call.steps for call in analysis.waiting_calls) >= SAMPLES:
        return f"{means.workers} or more: the run waits for data"
    if not analysis.settings.steps:
        return f"{means.operators}, to see the operators"
    if (timed := len(analysis.record.profiled_steps)) < SAMPLES:
        enough = means.steps.format(SAMPLES + WARM_UP)
        return f"{enough} or more: {timed} timed steps are too few for advice, {SAMPLES} are needed"
    if target.mode == "pynative":
        return f"{means.graph}: the same numbers, in one call for each step or for many"
    return _of_the_graph(analysis, target, ranked, means)


def _of_the_graph(analysis: Analysis, target: ProfileTarget, ranked: Sequence[RankedOperator], means: Means) -> str:
    parts, whole = analysis.parts, analysis.step
    exchanges, callbacks, data = parts["aggregation"], parts["callbacks_and_python"], parts["data_preparation"]
    if exchanges.low / whole > LARGE:
        share = exchanges.value / whole
        return f"a larger {means.batch}: {share:.0%} of a step are exchanges, and waiting for other ranks in them"
    sinks = target.can_sink and target.ranks == 1 and not analysis.record.sunk
    if (callbacks.low + data.low) / whole > OVERHEAD and sinks:
        outside = (callbacks.value + data.value) / whole
        return f"{means.sink}: {outside:.0%} of a step is spent on the host"
    pauses = _pauses(analysis)
    if pauses.low > OVERHEAD:
        share = pauses.value
        return f"a larger {means.batch}: {share:.0%} of a step are pauses between operators, which are too small"
    tunes = target.device == "cpu" and target.ranks == 1 and not target.scripted and not target.tuned
    tuning = "session.auto_tune_mode='RL,GA' or " if tunes else ""
    return f"{tuning}a narrower network: most of a step is computing{_where(ranked, whole)}"


def _where(ranked: Sequence[RankedOperator], whole: float) -> str:
    """The share of the most expensive operator, or of those that cannot be separated."""
    first = [one for one in ranked if one.first == 1]
    if not first:
        return ""
    share = sum(one.operator.median for one in first) / whole
    name = first[0].label if len(first) == 1 else f"the first {len(first)} operators"
    return f", {share:.0%} of it in {name}"


def _pauses(analysis: Analysis) -> Distribution:
    """The share of a step in which no node is executed, without the overhead of the profile."""
    shares = []
    for step in analysis.record.profiled_steps:
        inside = sum(map(analysis.corrected, step.executions))
        between = step.stop - step.start - sum(e.stop - e.start for e in step.executions)
        pauses = between * analysis.pause_factor
        shares.append(pauses / ((pauses + inside) or 1.0))
    return of_steps(shares)


# The figures of a profile: the one source of what people read of it, on the console and in `runner report`.

LISTED = 50  # operators in the file; the tables have all
LABELS = {
    "data_preparation": "data preparation",
    "forward": "forward",
    "backward": "backward",
    "aggregation": "gradient aggregation",
    "update": "update",
    "rest_of_the_device_call": "rest of the call",
    "callbacks_and_python": "callbacks and Python",
}


class ProfileFigures(NamedTuple):
    """The figures. `step` is the sum of all parts in nanoseconds, `spread` the distribution of this sum.

    `parts` are those that take time, by label; `operators` counts all that were timed, `ranked` are those that take
    time.
    """

    title: str
    steps: int
    timed: int
    warm_up: list[int]
    threads: int
    step: float
    spread: Distribution
    parts: dict[str, Distribution]
    operators: int
    ranked: list[RankedOperator]
    sentences: list[str]
    notes: list[str]
    next: str

    def as_json(self) -> dict[str, Any]:
        """The content of `profile_summary_{d}.json`: times in microseconds, shares of a step from 0 to 1.

        A time has its median (of waits for data, the mean), the quartiles, and the number of samples.
        """
        return {
            "title": self.title,
            "steps": self.steps,
            "timed_steps": self.timed,
            "warm_up_steps": self.warm_up,
            "threads": self.threads,
            "step_us": round(self.step / 1e3, 3),
            "step": _time(self.spread),
            "parts": [{"part": name, **self._with_share(part)} for name, part in self.parts.items()],
            "operators": self.operators,
            "ranking": [
                {
                    "places": one.places,
                    "full_op_name": one.operator.name,
                    "op_type": one.operator.kind,
                    **self._with_share(one.operator.distribution),
                    "shares_nodes_with": list(one.operator.shared_with),
                }
                for one in self.ranked[:LISTED]
            ],
            "sentences": self.sentences,
            "notes": self.notes,
            "next": self.next,
        }

    def _with_share(self, time: Distribution) -> dict[str, Any]:
        return {**_time(time), "share": round(time.value / (self.step or 1.0), 5)}


def figures(analysis: Analysis, target: ProfileTarget) -> ProfileFigures:
    """The figures of a profile."""
    record, ranked = analysis.record, ranking(analysis)
    label = f" of {target.label}" if target.label else ""
    return ProfileFigures(
        title=f"profile{label}",
        steps=sum(call.steps for call in record.calls),
        timed=len(record.profiled_steps),
        warm_up=[number + 1 for number in sorted(record.warm_up)],
        threads=record.threads,
        step=analysis.step,
        spread=analysis.step_distribution,
        parts={LABELS[name]: part for name, part in analysis.parts.items() if part.value},
        operators=len(record.operators),
        ranked=ranked,
        sentences=[text for text in (remark(analysis, ranked), sentence(analysis)) if text],
        notes=_notes(analysis),
        next=advice(analysis, target, ranked),
    )


def _notes(analysis: Analysis) -> list[str]:
    """Remarks, and the hardware metrics that this machine does not provide, by reason."""
    record = analysis.record
    notes = list(record.remarks)
    if record.profiled_steps and analysis.unprofiled_step is None:
        notes.append(f"fewer than {SAMPLES} steps ran without timed operators: the times include what the timing costs")
    reasons: dict[str, list[str]] = {}
    for name, reason in record.missing_counters.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        metric = analysis.settings.ai_core_metrics
        notes.append(f"ai_core_metrics={metric}: this machine does not provide {', '.join(names)}: {reason}")
    return notes


def _time(time: Distribution) -> dict[str, Any]:
    values = {
        "mean_us" if time.is_mean else "median_us": time.value,
        "lower_quartile_us": time.low,
        "upper_quartile_us": time.high,
    }
    return {**{name: round(value / 1e3, 3) for name, value in values.items()}, "samples": time.samples}

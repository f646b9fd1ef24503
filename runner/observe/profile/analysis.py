"""From the facts of a training to figures: what each operator takes, and the parts of every step.

An operator's time is that of its nodes, and of the pause before each of them, in which the runtime or Python chooses
what comes next. The profile itself makes these pauses longer: they are all shortened by one `factor`, so that operators
add up to a step that nobody looks at. What kernels take is left as it was measured, but for exchanges with other ranks:
these wait for each other, and do so longer where all of them are looked at. They are seen in every step, so another
factor, `waits`, makes them what they are in the others.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from runner.observe.profile.fp_bp_points import Borders, Points, borders, executed, found
from runner.observe.profile.record import HOST, Look, Moment, Operator, Record
from runner.observe.profile.settings import ProfileSettings

COPY = "Identity"


class Measure(NamedTuple):
    """Nanoseconds of one operator, in each of the steps that were looked at. `operator` is None for copies of results
    that belong to none; `others` are operators whose nodes it shares.
    """

    name: str
    operator: Operator | None
    times: tuple[float, ...]
    others: tuple[str, ...]

    @property
    def total(self) -> float:
        """In all of them."""
        return sum(self.times)

    @property
    def mean(self) -> float:
        """In one."""
        return self.total / len(self.times) if self.times else 0.0

    @property
    def typical(self) -> float:
        """In the median one: other processes disturb some steps."""
        return statistics.median(self.times) if self.times else 0.0

    @property
    def kind(self) -> str:
        """Type of the operator."""
        return self.operator.kind if self.operator else COPY


class StepRow(NamedTuple):
    """One step, ns since the training began: from the end of the one before to its own end. `measured`: whether the
    borders were seen, or else placed where they lie in steps that were looked at. `exchanges` with other ranks:
    start and stop, seen in every step.
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

    def __init__(self, record: Record, settings: ProfileSettings) -> None:
        self.record, self.settings = record, settings

    @cached_property
    def plain_step(self) -> float | None:
        """Nanoseconds of the device for a step whose operators are not timed, the median; None when there is none."""
        plain = [(call.stop - call.start) / call.steps for call in self.record.calls if not call.looked]
        rest = plain[1:] or plain  # the first one also makes memory ready
        return statistics.median(rest) if rest else None

    @cached_property
    def looked_step(self) -> float:
        """The same of those that are."""
        return statistics.median(look.stop - look.start for look in self.record.looks) if self.record.looks else 0.0

    @cached_property
    def factor(self) -> float:
        """By what the pauses between nodes are shortened: 1 where nothing is known."""
        looks = self.record.looks
        if not looks or self.plain_step is None:
            return 1.0
        pauses = self.looked_step - statistics.median(sum(m.stop - m.start for m in look.moments) for look in looks)
        inside = statistics.median(sum(map(self.counted, look.moments)) for look in looks)
        return min(1.0, max(0.0, (self.plain_step - inside) / pauses)) if pauses > 0 else 1.0

    @cached_property
    def waits(self) -> float:
        """How long exchanges with other ranks take in a step that nobody looks at, as a share of what they take in one
        that is looked at: 1 where nothing is known.
        """
        sums = [(call.looked, sum(stop - start for start, stop in call.exchanges)) for call in self.record.calls]
        plain, looked = [ns for seen, ns in sums[1:] if not seen], [ns for seen, ns in sums if seen]
        known = plain and looked and statistics.median(looked)
        return statistics.median(plain) / statistics.median(looked) if known else 1.0

    def counted(self, moment: Moment) -> float:
        """Nanoseconds of a node, as they count."""
        operator = self.record.operators.get(owner(moment))
        exchanged = operator is not None and operator.part == "aggregation"
        return (moment.stop - moment.start) * (self.waits if exchanged else 1.0)

    @cached_property
    def measures(self) -> list[Measure]:
        """Every operator in the order of the graph, also those that take no time of their own; then copies."""
        looks = self.record.looks
        times: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(looks))
        others: dict[str, dict[str, None]] = defaultdict(dict)
        for place, look in enumerate(looks):
            for moment, took in self._slots(look):
                times[owner(moment)][place] += took
                for name in moment.operators:
                    others[name].update(dict.fromkeys(n for n in moment.operators if n != name))
        known = self.record.operators
        names = [*known, *(name for name in times if name not in known)] if looks else []
        return [Measure(name, known.get(name), tuple(times[name]), tuple(others[name])) for name in names]

    def _slots(self, look: Look) -> Iterator[tuple[Moment, float]]:
        """Each node with its time: the kernel, and its share of the pause before it; the last takes the pause after."""
        before = look.start
        for moment in look.moments:
            after = look.stop - moment.stop if moment is look.moments[-1] else 0
            pause = max(0, moment.start - before) + max(0, after)
            yield moment, self.counted(moment) + self.factor * pause
            before = moment.stop

    @cached_property
    def points(self) -> Points:
        """The operators that are the borders: those that the settings name, if they are executed."""
        automatic = found(self.record.operators, self.record.looks) if self.record.operators else Points("", None)
        return Points(
            self._asked("fp_point", self.settings.fp_point) or automatic.fp,
            self._asked("bp_point", self.settings.bp_point) or automatic.bp,
        )

    def _asked(self, key: str, point: str | None) -> str | None:
        name = executed(point, self.record.operators) if point else None
        if point and name is None:
            self.record.remarks.append(
                f"{key} {point} is not executed: the compiler has merged it; another one is taken"
            )
        return name

    @cached_property
    def parts(self) -> dict[str, float]:
        """Nanoseconds of one step by what they are for; they add up to a step that nobody looks at."""
        calls = self.record.calls
        steps = sum(call.steps for call in calls)
        if not steps:
            return {}
        by_part: dict[str, float] = defaultdict(float)
        for measure in self.measures:
            by_part[measure.operator.part if measure.operator else "update"] += measure.typical
        device = self.plain_step or self.looked_step
        waited = sum(call.waited for call in calls) / steps
        named_parts = {part: by_part[part] for part in ("forward", "backward", "aggregation", "update")}
        made = {"data_preparation": waited + by_part["data"], **named_parts, "callbacks_and_python": self._between}
        return made | {"rest_of_the_device_call": max(0.0, device - sum(by_part.values()))}

    @cached_property
    def _between(self) -> float:
        """Nanoseconds between two calls, by step, but for the wait for data and what compiles: the median."""
        busy = self.record.tracks.get(HOST, [])
        pauses = []
        for before, call in pairwise(self.record.calls):
            compiled = sum(span.stop - span.start for span in busy if before.stop <= span.start <= call.start)
            pauses.append((call.start - before.stop - call.waited - compiled) / call.steps)
        return max(0.0, statistics.median(pauses)) if pauses else 0.0

    @cached_property
    def steps(self) -> list[StepRow]:
        """Every step that was made."""
        looks = {look.step: look for look in self.record.looks}
        exchanges = {call.first: call.exchanges for call in self.record.calls}
        shares = [
            _shares(look, borders(look, self.points), exchanges.get(number, ())) for number, look in looks.items()
        ]
        fp = statistics.median(share[0] for share in shares) if shares else None
        with_bp = [share[1] for share in shares if share[1] is not None]
        bp = statistics.median(with_bp) if with_bp else None
        rows: list[StepRow] = []
        calls, origin = self.record.calls, self.record.origin
        end = calls[0].start - calls[0].waited if calls else 0
        for number, start, stop in self._windows():
            look, met = looks.get(number), exchanges.get(number, ())
            first = _first(start, stop, met)
            at = borders(look, self.points) if look else Borders(_placed(start, first, fp), _placed(start, first, bp))
            fp_at, bp_at = (None if mark is None else min(mark, stop) - origin for mark in at)
            others = tuple([(x - origin, y - origin) for x, y in met])
            rows.append(StepRow(number, end - origin, stop - origin, fp_at, bp_at, look is not None, others))
            end = stop
        return rows

    def _windows(self) -> Iterator[tuple[int, int, int]]:
        """Each step with the time in which the device worked on it; those of a sink have equal parts of the call,
        unless they were looked at.
        """
        for call in self.record.calls:
            length = (call.stop - call.start) / call.steps
            for k in range(call.steps):
                number = call.first + k
                equal = call.start + round(k * length), call.start + round((k + 1) * length)
                start, stop = self.record.windows.get(number, equal)
                yield number, start, call.stop if k == call.steps - 1 else stop


def owner(moment: Moment) -> str:
    """The operator whose time a node is; a node that belongs to none is its own."""
    return moment.operators[0] if moment.operators else moment.node


def _first(start: int, stop: int, exchanges: Sequence[tuple[int, int]]) -> int:
    """When the first exchange of a step begins, or it ends: how long ranks wait for each other moves no border."""
    return min((at for at, _ in exchanges if start < at), default=stop)


def _shares(look: Look, at: Borders, exchanges: Sequence[tuple[int, int]]) -> tuple[float, float | None]:
    """Where the borders lie in a step, as shares of its time on the device before the first exchange."""
    length = max(1, _first(look.start, look.stop, exchanges) - look.start)
    assert at.fp is not None
    return (at.fp - look.start) / length, None if at.bp is None else (at.bp - look.start) / length


def _placed(start: int, stop: int, share: float | None) -> int | None:
    return None if share is None else start + round(share * (stop - start))

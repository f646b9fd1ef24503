"""Reader of onnxruntime's profile of a session: the steps of every call, and the nodes of every step.

onnxruntime writes one event per line: `model_run` for each call, `SequentialExecutor::Execute` for each execution of a
graph (so for each step of a sink, whose graph is the body of a Scan), and `{node}_kernel_time` for each executed node.
Times are whole microseconds since the start of the profile, on a clock of onnxruntime's own. It silently stops after
`EVENT_CAP` events.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

EVENT_CAP = 1_000_000  # onnxruntime/core/common/profiler.h
EXECUTE, RUN, KERNEL = "SequentialExecutor::Execute", "model_run", "_kernel_time"
SCAN = "sink" + KERNEL  # the node around all steps of a sink


class OrtEvent(NamedTuple):
    """One event: microseconds since the start of the profile."""

    name: str
    start: int
    length: int

    @property
    def stop(self) -> int:
        """Its end."""
        return self.start + self.length


class OrtStep(NamedTuple):
    """One execution of the graph of a step, with its nodes in the order of execution."""

    start: int
    stop: int
    nodes: list[OrtEvent]


class OrtRun(NamedTuple):
    """One call of the session."""

    start: int
    stop: int
    steps: list[OrtStep]


class OrtProfile(NamedTuple):
    """The content of a profile; `full` when onnxruntime may have dropped events because of its limit."""

    runs: list[OrtRun]
    full: bool


def read(lines: Iterable[str], sunk: bool, cap: int = EVENT_CAP) -> OrtProfile:
    """The profile in the lines of a file of onnxruntime.

    `sunk`: whether a call runs many steps, in the body of a Scan. It contains complete calls only: a call that was cut
    off by the cap is missing.
    """
    events = list(_events(lines))
    executions = [e for e in events if e.name == EXECUTE]
    nodes = sorted((e for e in events if e.name.endswith(KERNEL) and e.name != SCAN), key=lambda e: (e.start, e.stop))
    runs = []
    for run in (e for e in events if e.name == RUN):
        # By their starts: times are cut to microseconds, so an execution may stop one later than the call around it.
        inside = sorted((e for e in executions if run.start <= e.start < run.stop), key=lambda e: e.start)
        steps = _steps(run, inside[1:] if sunk else inside[:1])
        runs.append(OrtRun(run.start, run.stop, [OrtStep(*step, _between(nodes, *step)) for step in steps]))
    return OrtProfile(runs, len(events) >= cap)


def _events(lines: Iterable[str]) -> Iterator[OrtEvent]:
    for line in lines:
        head, found, _ = line.partition(',"args"')  # the rest is long and not needed
        if found:
            event = json.loads(head + "}")
            yield OrtEvent(event["name"], int(event["ts"]), int(event["dur"]))


def _steps(run: OrtEvent, executions: Sequence[OrtEvent]) -> Iterable[tuple[int, int]]:
    """Start and stop of the steps, which cover the whole call.

    Time between two steps counts for the earlier one, time before the first one for the first one.
    """
    starts = [run.start, *(execution.start for execution in executions[1:])] if executions else []
    return pairwise([*starts, run.stop])


def _between(nodes: Sequence[OrtEvent], start: int, stop: int) -> list[OrtEvent]:
    first, last = (bisect_left(nodes, at, key=lambda e: e.start) for at in (start, stop))
    return [e._replace(name=e.name.removesuffix(KERNEL)) for e in nodes[first:last]]

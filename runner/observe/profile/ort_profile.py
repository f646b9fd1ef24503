"""onnxruntime's own profile of a session: from the text of its file to the steps and the nodes in them.

onnxruntime writes one event a line: `model_run` for each call, `SequentialExecutor::Execute` for each time that a graph
was walked (so for each step of a sink, whose graph is the body of a Scan), and `{node}_kernel_time` for each node that
was executed. Times are whole microseconds since the profile began, on a clock of its own. It stops without a word when
it has `EVENT_CAP` events.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

EVENT_CAP = 1_000_000  # onnxruntime/core/common/profiler.h
EXECUTE, RUN, KERNEL = "SequentialExecutor::Execute", "model_run", "_kernel_time"
SCAN = "sink" + KERNEL  # the node around all steps of a sink


class Event(NamedTuple):
    """One event: microseconds since the profile began."""

    name: str
    start: int
    length: int

    @property
    def stop(self) -> int:
        """Its end."""
        return self.start + self.length


@dataclass
class Walk:
    """One time that the graph of a step was walked, with the nodes in the order of their execution."""

    start: int
    stop: int
    nodes: list[Event] = field(default_factory=list)


@dataclass
class Run:
    """One call of the session."""

    start: int
    stop: int
    steps: list[Walk]


@dataclass
class Profile:
    """What a profile says; `full` when onnxruntime may have dropped events, because it has no more room."""

    runs: list[Run]
    full: bool


def read(lines: Iterable[str], sunk: bool, cap: int = EVENT_CAP) -> Profile:
    """The profile in the lines of a file of onnxruntime.

    `sunk`: whether a call holds many steps, in the body of a Scan. Only whole calls are there: one that was cut off by
    the cap is not.
    """
    events = list(_events(lines))
    runs = [Run(e.start, e.stop, []) for e in events if e.name == RUN]
    walks = [e for e in events if e.name == EXECUTE]
    nodes = sorted((e for e in events if e.name.endswith(KERNEL) and e.name != SCAN), key=lambda e: (e.start, e.stop))
    for run in runs:
        inside = sorted((w for w in walks if run.start <= w.start and w.stop <= run.stop), key=lambda w: w.start)
        run.steps = _steps(run, inside[1:] if sunk else inside[:1])
        _distribute(nodes, run.steps)
    return Profile(runs, len(events) >= cap)


def _events(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        head, found, _ = line.partition(',"args"')  # what follows is long, and not needed
        if found:
            event = json.loads(head + "}")
            yield Event(event["name"], int(event["ts"]), int(event["dur"]))


def _steps(run: Run, walks: Sequence[Event]) -> list[Walk]:
    """The steps fill the call: what onnxruntime does between two of them belongs to the first, before the first to
    that."""
    starts = [run.start, *(walk.start for walk in walks[1:])] if walks else []
    return [Walk(start, stop) for start, stop in zip(starts, [*starts[1:], run.stop], strict=True)]


def _distribute(nodes: Sequence[Event], steps: Sequence[Walk]) -> None:
    """Give every step its nodes."""
    for step in steps:
        first = bisect_left(nodes, step.start, key=lambda e: e.start)
        last = bisect_left(nodes, step.stop, key=lambda e: e.start)
        step.nodes = [e._replace(name=e.name.removesuffix(KERNEL)) for e in nodes[first:last]]

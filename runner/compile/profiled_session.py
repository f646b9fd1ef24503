"""Sessions with onnxruntime's profile of node times, in addition to the usual session of a program.

They run the same models, so profiled steps compute the same results. A divided graph has several sessions; what ranks
exchange between them is timed with the host's clock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.compile.divided_session import DividedSession, SunkSession
from runner.compile.onnx.builder import FULL_NAME, all_graphs, source_operators
from runner.compile.parts import DividedGraph
from runner.compile.program import AnySession, Executable
from runner.compile.session import Session, temporary_folder
from runner.core.operators import Node
from runner.core.values import Value
from runner.device import Device
from runner.observe.profile.record import NodeExecution, OrtEvent, OrtProfile, OrtRun, OrtStep, ProfiledStep, read

if TYPE_CHECKING:
    from runner.compile.onnx.model import ModelProto
MICROSECOND = 1000
ProfiledCalls = tuple[list[list[ProfiledStep]], list[str]]  # for each call its steps, numbered from 0; and remarks


class ProfiledProgram:
    """A program with a second, profiled session. `sunk`: whether a call runs many steps."""

    def __init__(self, program: Executable, sunk: bool) -> None:
        self.program = program
        plain = program.session
        divided = plain.inner if isinstance(plain, SunkSession) else plain
        self._profiled: ProfiledSession | ProfiledDividedSession = (
            ProfiledDividedSession(divided.division, plain.device, program.optimize, divided.layouts)
            if isinstance(divided, DividedSession)
            else ProfiledSession(program.model, plain.device, program.optimize, sunk)
        )
        self.session: AnySession = self._profiled
        self._sunk: SunkSession | None = None
        if isinstance(plain, SunkSession) and isinstance(self._profiled, DividedSession):
            self.session = self._sunk = SunkSession(self._profiled, plain.scanned, plain.fed)
        self._first_steps: list[int] = []  # of each call

    @contextmanager
    def profiling(self, first: int) -> Iterator[None]:
        """Run one call of the program in the profiled session; `first` is the number of its first step."""
        plain, self.program.session = self.program.session, self.session
        self._first_steps.append(first)
        try:
            yield
        finally:
            self.program.session = plain

    def close(self) -> tuple[list[ProfiledStep], list[str]]:
        """End the profile and return the profiled steps and remarks about them."""
        calls, remarks = self._profiled.close()
        if self._sunk is not None:
            calls = list(self._sunk.by_call(list(chain.from_iterable(calls))))
        numbered = zip(self._first_steps, calls, strict=False)  # a last call that failed has no steps
        return [
            step._replace(step=first + number) for first, steps in numbered for number, step in enumerate(steps)
        ], remarks


class ProfiledSession(Session):
    """A session with onnxruntime's profile. `sunk`: whether a call runs many steps."""

    def __init__(self, model: ModelProto, device: Device, optimize: bool, sunk: bool = False) -> None:
        self.sunk = sunk
        self._folder = temporary_folder("runner-profile-")
        self._operators = {n.name: source_operators(n) for graph in all_graphs(model.graph) for n in graph.node}
        self._calls: list[tuple[int, int]] = []  # start and stop, ns on the host's clock
        prefix = Path(self._folder.name, "p")
        super().__init__(model.SerializeToString(), device, optimize=optimize, profile=prefix)

    def step(self, values: Sequence[Any]) -> list[Any]:
        """Run once, and record the time of the call."""
        start = time.perf_counter_ns()
        results = super().step(values)
        self._calls.append((start, time.perf_counter_ns()))
        return results

    def close(self) -> ProfiledCalls:
        """End the profile."""
        with open(self.end_profile()) as lines:
            profile = read(lines, self.sunk)
        self._folder.cleanup()
        origin = self._origin(profile.runs)
        runs = profile.runs[: len(self._calls)]
        return [list(self._steps(run, origin)) for run in runs], list(_remarks(profile, len(self._calls)))

    def _steps(self, run: OrtRun, origin: int) -> Iterator[ProfiledStep]:
        def at(event: OrtEvent | OrtStep) -> tuple[int, int]:
            return origin + event.start * MICROSECOND, origin + event.stop * MICROSECOND

        for number, ort_step in enumerate(run.steps):
            executions = [NodeExecution(_operators(e.name, self._operators), e.name, *at(e)) for e in ort_step.nodes]
            yield ProfiledStep(number, *at(ort_step), executions)

    def _origin(self, runs: list[OrtRun]) -> int:
        """The start of the profile on the host's clock, chosen such that every run lies within its call if possible."""
        pairs = list(zip(self._calls, runs, strict=False))
        earliest = max((start - run.start * MICROSECOND for (start, _), run in pairs), default=0)
        latest = min((stop - run.stop * MICROSECOND for (_, stop), run in pairs), default=0)
        return (earliest + latest) // 2


class ProfiledDividedSession(DividedSession):
    """A divided graph whose sessions have onnxruntime's profile; a step consists of their runs and the collectives.

    A session that each part runs is profiled with one thread, in which parts follow each other.
    """

    def __init__(self, division: DividedGraph, device: Device, optimize: bool, layouts: Mapping[Value, Any]) -> None:
        self._profiled: list[ProfiledSession] = []
        self._kernels_run: list[list[NodeExecution]] = []  # of each call
        super().__init__(division, device, optimize, layouts)
        self._threads = 1

    def _make_session(self, model: ModelProto, device: Device, optimize: bool) -> Session:
        self._profiled.append(ProfiledSession(model, device, optimize))
        return self._profiled[-1]

    def step(self, values: Sequence[Any]) -> list[Any]:
        """Run once, as `DividedSession.step`."""
        self._kernels_run.append([])
        return super().step(values)

    def _compute(self, node: Node, inputs: Sequence[int], outputs: Sequence[int], known: list[Any]) -> None:
        start = time.perf_counter_ns()
        super()._compute(node, inputs, outputs, known)
        self._kernels_run[-1].append(NodeExecution((node.name,), "", start, time.perf_counter_ns()))

    def close(self) -> ProfiledCalls:
        """End the profiles. Each call is one step."""
        runs = Counter(id(task.session) for turn in self.turns for task in turn.tasks)  # in a step
        profiles = [(*session.close(), runs[id(session)]) for session in self._profiled]
        remarks = dict.fromkeys(chain.from_iterable(remarks for _, remarks, _ in profiles))
        by_step = [_by_step(list(chain.from_iterable(calls)), count) for calls, _, count in profiles if count]
        calls = zip(self._kernels_run, *by_step, strict=False)  # the last one may have failed
        return [[_merge(collectives, chain.from_iterable(parts))] for collectives, *parts in calls], list(remarks)


def _by_step(runs: Sequence[ProfiledStep], count: int) -> list[Sequence[ProfiledStep]]:
    """The runs of a session that has so many in each step."""
    return [runs[k : k + count] for k in range(0, len(runs) - count + 1, count)]


def _merge(collectives: Sequence[NodeExecution], parts: Iterable[ProfiledStep]) -> ProfiledStep:
    """The step that consists of these parts and collectives."""
    parts = list(parts)
    executions = sorted(
        [*collectives, *(e for part in parts for e in part.executions)], key=lambda e: (e.start, e.stop)
    )
    spans: list[ProfiledStep | NodeExecution] = [*parts, *collectives]
    return ProfiledStep(0, min(span.start for span in spans), max(span.stop for span in spans), executions)


def _remarks(profile: OrtProfile, calls: int) -> Iterator[str]:
    if profile.full or len(profile.runs) < calls:
        yield (
            f"onnxruntime's profile is incomplete: it has {len(profile.runs)} of {calls} calls"
            + (", because it is limited to one million events" if profile.full else "")
        )


def _operators(name: str, operators: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The operators of a node. On accelerators onnxruntime creates nodes whose names contain those of the operators."""
    if name in operators:
        return operators[name]
    return tuple(dict.fromkeys(FULL_NAME.findall(name)))

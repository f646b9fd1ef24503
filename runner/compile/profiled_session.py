"""Sessions with onnxruntime's profile of node times, in addition to the usual session of a program.

They run the same model, so profiled steps compute the same results. A graph that is split has one session for each
part; the collectives between the parts are timed with the host's clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.compile.onnx.builder import FULL_NAME, all_graphs, source_operators
from runner.compile.program import Executable
from runner.compile.session import Session, temporary_folder
from runner.compile.split_at_collectives import SplitSession
from runner.core.graph import Graph
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
        self.session: ProfiledSession | ProfiledSplitSession = (
            ProfiledSplitSession(plain.graph, plain.device, program.optimize, plain.layouts)
            if isinstance(plain, SplitSession)
            else ProfiledSession(program.model, plain.device, program.optimize, sunk)
        )
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
        calls, remarks = self.session.close()
        numbered = zip(self._first_steps, calls, strict=False)  # a last call that failed has no steps
        return [step._replace(step=first + step.step) for first, steps in numbered for step in steps], remarks


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


class ProfiledSplitSession(SplitSession):
    """A split graph whose parts have onnxruntime's profile; a step consists of the parts and the collectives."""

    def __init__(self, graph: Graph, device: Device, optimize: bool, layouts: Mapping[Value, Any]) -> None:
        self._profiled: list[ProfiledSession] = []
        self._collectives: list[list[NodeExecution]] = []  # of each call
        super().__init__(graph, device, optimize, layouts)

    def _session(self, model: ModelProto, device: Device, optimize: bool) -> Session:
        self._profiled.append(ProfiledSession(model, device, optimize))
        return self._profiled[-1]

    def step(self, values: Sequence[Any]) -> list[Any]:
        """Run once, as `SplitSession.step`."""
        self._collectives.append([])
        return super().step(values)

    def _communicate(self, node: Node, known: dict[Value, Any]) -> None:
        start = time.perf_counter_ns()
        super()._communicate(node, known)
        self._collectives[-1].append(NodeExecution((node.name,), "", start, time.perf_counter_ns()))

    def close(self) -> ProfiledCalls:
        """End the profiles. Each call is one step."""
        profiles = [session.close() for session in self._profiled]
        remarks = dict.fromkeys(chain.from_iterable(remarks for _, remarks in profiles))
        calls = zip(self._collectives, *[calls for calls, _ in profiles], strict=False)  # the last one may have failed
        return [[_merge(collectives, chain.from_iterable(parts))] for collectives, *parts in calls], list(remarks)


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

"""Second sessions of a program, in which onnxruntime writes down what its nodes take: the same models, so that steps
made there are steps like the others. A graph that is cut has one for each part; what lies between them, the exchanges
with other ranks, the host's clock sees.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.compile.onnx.builder import FULL_NAME, operators_in
from runner.compile.ort.session import Session
from runner.compile.program import Executable
from runner.compile.split_at_collectives import CutSession
from runner.core.graph import Graph
from runner.core.primitive import Node
from runner.core.value import Value
from runner.device import Device
from runner.observe.profile.ort_profile import Event, Profile, Run, Walk, read
from runner.observe.profile.record import Look, Moment

if TYPE_CHECKING:
    from runner.compile.onnx.lower import ModelProto

MICROSECOND = 1000
Seen = tuple[list[list[Look]], list[str]]  # for each call its steps, numbered from 0; and remarks


class Measured:
    """The twin of a program's session. `sunk`: whether a call of it holds many steps."""

    def __init__(self, program: Executable, sunk: bool) -> None:
        self.program = program
        usual = program.session
        self.session: ProfiledSession | ProfiledCut = (
            ProfiledCut(usual.graph, usual.device, program.optimize, usual.ways)
            if isinstance(usual, CutSession)
            else ProfiledSession(program.model, usual.device, program.optimize, sunk)
        )
        self._firsts: list[int] = []  # the first step of each call

    @contextmanager
    def inside(self, first: int) -> Iterator[None]:
        """Inside, the program runs in the twin: one call, for the step `first` and perhaps those after it."""
        usual, self.program.session = self.program.session, self.session
        self._firsts.append(first)
        try:
            yield
        finally:
            self.program.session = usual

    def close(self) -> tuple[list[Look], list[str]]:
        """End the profile: the steps that were made in the twin, and what is to be said about them."""
        calls, remarks = self.session.close()
        numbered = zip(self._firsts, calls, strict=False)  # a last call that failed has no steps
        return [look._replace(step=first + look.step) for first, steps in numbered for look in steps], remarks


class ProfiledSession(Session):
    """A session with onnxruntime's profile. `sunk`: whether a call holds many steps."""

    def __init__(self, model: ModelProto, device: Device, optimize: bool, sunk: bool = False) -> None:
        self.sunk = sunk
        self._folder = tempfile.TemporaryDirectory(prefix="runner-profile-")
        self._operators = dict(operators_in(model.graph))
        self._calls: list[tuple[int, int]] = []  # start and stop on the clock of the host
        prefix = Path(self._folder.name, "p")
        super().__init__(model.SerializeToString(), device, optimize=optimize, profile=prefix)

    def step(self, values: Sequence[Any]) -> list[Any]:
        """As ever, between two looks at the clock."""
        start = time.perf_counter_ns()
        made = super().step(values)
        self._calls.append((start, time.perf_counter_ns()))
        return made

    def close(self) -> Seen:
        """End the profile."""
        with open(self.end_profile()) as lines:
            profile = read(lines, self.sunk)
        self._folder.cleanup()
        origin = self._origin(profile.runs)
        runs = profile.runs[: len(self._calls)]
        return [list(self._looks(run, origin)) for run in runs], list(_remarks(profile, len(self._calls)))

    def _looks(self, run: Run, origin: int) -> Iterator[Look]:
        def at(event: Event | Walk) -> tuple[int, int]:
            return origin + event.start * MICROSECOND, origin + event.stop * MICROSECOND

        for step, walk in enumerate(run.steps):
            moments = [Moment(_known(e.name, self._operators), e.name, *at(e)) for e in walk.nodes]
            yield Look(step, *at(walk), moments)

    def _origin(self, runs: list[Run]) -> int:
        """When the profile began, on the clock of the host: so that every run lies in its call, as well as it can."""
        pairs = list(zip(self._calls, runs, strict=False))
        earliest = max((start - run.start * MICROSECOND for (start, _), run in pairs), default=0)
        latest = min((stop - run.stop * MICROSECOND for (_, stop), run in pairs), default=0)
        return (earliest + latest) // 2


class ProfiledCut(CutSession):
    """A cut graph whose parts have onnxruntime's profile; a step is all of them and the exchanges in between."""

    def __init__(self, graph: Graph, device: Device, optimize: bool, ways: Mapping[Value, Any]) -> None:
        self._twins: list[ProfiledSession] = []
        self._exchanges: list[list[Moment]] = []  # of each call
        super().__init__(graph, device, optimize, ways)

    def _session(self, model: ModelProto, device: Device, optimize: bool) -> Session:
        self._twins.append(ProfiledSession(model, device, optimize))
        return self._twins[-1]

    def step(self, values: Sequence[Any]) -> list[Any]:
        """As ever."""
        self._exchanges.append([])
        return super().step(values)

    def _exchange(self, node: Node, known: dict[Value, Any]) -> None:
        start = time.perf_counter_ns()
        super()._exchange(node, known)
        self._exchanges[-1].append(Moment((node.name,), "", start, time.perf_counter_ns()))

    def close(self) -> Seen:
        """End the profiles. Each call is one step."""
        seen = [twin.close() for twin in self._twins]
        remarks = dict.fromkeys(chain.from_iterable(said for _, said in seen))
        calls = zip(self._exchanges, *[calls for calls, _ in seen], strict=False)  # the last one may have failed
        return [[_whole(exchanges, chain.from_iterable(parts))] for exchanges, *parts in calls], list(remarks)


def _whole(exchanges: Sequence[Moment], parts: Iterable[Look]) -> Look:
    """The step that these parts and exchanges are."""
    looks = list(parts)
    moments = sorted([*exchanges, *(m for look in looks for m in look.moments)], key=lambda m: (m.start, m.stop))
    spans: list[Look | Moment] = [*looks, *exchanges]
    return Look(0, min(span.start for span in spans), max(span.stop for span in spans), moments)


def _remarks(profile: Profile, calls: int) -> Iterator[str]:
    if profile.full or len(profile.runs) < calls:
        yield (
            f"onnxruntime's profile is not complete: it has {len(profile.runs)} of {calls} calls"
            + (", because it holds one million events at most" if profile.full else "")
        )


def _known(name: str, operators: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The operators of a node. On cards onnxruntime makes nodes of its own, whose names hold those of what they are."""
    if name in operators:
        return operators[name]
    return tuple(dict.fromkeys(FULL_NAME.findall(name)))

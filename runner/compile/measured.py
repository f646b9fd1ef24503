"""A second session of a program, in which onnxruntime writes down what its nodes take: the same model, so that steps
made there are steps like the others.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runner.compile.builder import FULL_NAME, operators_in
from runner.compile.program import Executable
from runner.compile.session import Session
from runner.profiling.record import Look, Moment
from runner.profiling.runtime import Event, Profile, Run, Walk, read

MICROSECOND = 1000


class Measured:
    """The twin of a program's session. `sunk`: whether a call of it holds many steps."""

    def __init__(self, program: Executable, sunk: bool) -> None:
        self.program, self.sunk = program, sunk
        self._folder = tempfile.TemporaryDirectory(prefix="runner-profile-")
        model, device, prefix = program.model.SerializeToString(), program.session.device, Path(self._folder.name, "p")
        self.session = Session(model, device, optimize=program.optimize, profile=prefix)
        self._calls: list[tuple[int, int, int]] = []  # first step, start and stop on the clock of the host

    @contextmanager
    def inside(self, first: int) -> Iterator[None]:
        """Inside, the program runs in the twin: one call, for the step `first` and perhaps those after it."""
        usual, self.program.session = self.program.session, self.session
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self._calls.append((first, start, time.perf_counter_ns()))
            self.program.session = usual

    def close(self) -> tuple[list[Look], list[str]]:
        """End the profile: the steps that were made in the twin, and what is to be said about them."""
        with open(self.session.end_profile()) as lines:
            profile = read(lines, self.sunk)
        self._folder.cleanup()
        remarks = list(_remarks(profile, len(self._calls)))
        origin = self._origin(profile.runs)
        operators = dict(operators_in(self.program.model.graph))

        def at(event: Event | Walk) -> tuple[int, int]:
            return origin + event.start * MICROSECOND, origin + event.stop * MICROSECOND

        def moment(event: Event) -> Moment:
            return Moment(_known(event.name, operators), event.name, *at(event))

        looks = [
            Look(step, *at(walk), list(map(moment, walk.nodes)))
            for (first, _, _), run in zip(self._calls, profile.runs, strict=False)
            for step, walk in enumerate(run.steps, first)
        ]
        return looks, remarks

    def _origin(self, runs: list[Run]) -> int:
        """When the profile began, on the clock of the host: so that every run lies in its call, as well as it can."""
        pairs = list(zip(self._calls, runs, strict=False))
        earliest = max((start - run.start * MICROSECOND for (_, start, _), run in pairs), default=0)
        latest = min((stop - run.stop * MICROSECOND for (_, _, stop), run in pairs), default=0)
        return (earliest + latest) // 2


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

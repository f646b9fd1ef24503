"""`{device}_timeline_display_{d}.json`: a Chrome trace, an array of events in microseconds, that Perfetto opens.

Tracks (threads of one process): `steps`, `host` (calls to the device, compiling), `data` (waits, and operators that
prepare batches on the device), `data workers`, `operators` (of profiled steps, by full name; operators without nodes of
their own have a length of 0), `writers` (callbacks) and, with several ranks, `exchanges` (of every step). A profiled
step has all operators of the graph.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from runner.observe.profile.analysis import Analysis, owner
from runner.observe.profile.clock import SPANS
from runner.observe.profile.record import DATA, EXCHANGES, HOST, WORKERS, WRITERS, NodeExecution, ProfiledStep
from runner.observe.profile.settings import ProfileTarget

STEPS, OPERATORS = "steps", "operators"
TRACKS = (STEPS, HOST, DATA, WORKERS, OPERATORS, WRITERS, EXCHANGES)
SLICES = 60_000  # of operators; later steps are left out (the reference limits its files to 20 MB)

Event = dict[str, Any]


def events(analysis: Analysis, target: ProfileTarget) -> list[Event]:
    """The events of the trace."""
    tracks = TRACKS if EXCHANGES in analysis.record.tracks else TRACKS[:-1]
    trace = list(_named_tracks(target, tracks))
    origin, process = analysis.record.origin, os.getpid()
    threads = {track: tid for tid, track in enumerate(tracks, 1)}

    def add(track: str, name: str, start: int, stop: int, **args: object) -> None:
        begin, length = (start - origin) / 1e3, max(0, stop - start) / 1e3
        event = {"name": name, "ph": "X", "pid": process, "tid": threads[track], "ts": begin, "dur": length}
        trace.append(event | {"args": args})

    for step in analysis.steps[:SPANS]:
        marks = {"borders_measured": step.measured, "warm_up": step.warm_up}
        add(STEPS, f"step {step.number + 1}", step.start + origin, step.stop + origin, **marks)
    for call in analysis.record.calls[:SPANS]:
        last = call.first + call.steps
        args = {"first_step": call.first + 1, "last_step": last, "operators_timed": call.profiled}
        add(HOST, "call of the device", call.start, call.stop, **args)
    for track, spans in analysis.record.tracks.items():
        for span in spans:
            add(track, span.name, span.start, span.stop)
    if len(analysis.steps) > SPANS:
        analysis.record.remarks.append(f"the timeline shows the first {SPANS} steps")
    for profiled in _selected_steps(analysis):
        for name, start, stop, executions in _slices(profiled, analysis):
            operator = analysis.record.operators.get(name)
            track = DATA if operator and operator.part == "data" else OPERATORS
            add(track, name, start, stop, step=profiled.step + 1, **_args(name, executions, analysis))
    return trace


def _named_tracks(target: ProfileTarget, tracks: Sequence[str]) -> Iterator[Event]:
    names = {"process_name": f"runner, {target.label}" if target.label else "runner"}
    for kind, name in names.items():
        yield {"name": kind, "ph": "M", "pid": os.getpid(), "tid": 0, "args": {"name": name}}
    for tid, track in enumerate(tracks, 1):
        for kind, args in (("thread_name", {"name": track}), ("thread_sort_index", {"sort_index": tid})):
            yield {"name": kind, "ph": "M", "pid": os.getpid(), "tid": tid, "args": args}


def _selected_steps(analysis: Analysis) -> list[ProfiledStep]:
    steps: list[ProfiledStep] = []
    slices = 0
    for step in analysis.record.profiled_steps:
        slices += max(len(step.executions), len(analysis.record.operators))
        if slices > SLICES and steps:
            left = len(analysis.record.profiled_steps) - len(steps)
            analysis.record.remarks.append(
                f"the timeline leaves out the operators of {left} steps: it would be too long"
            )
            break
        steps.append(step)
    return steps


def _slices(step: ProfiledStep, analysis: Analysis) -> Iterator[tuple[str, int, int, list[NodeExecution]]]:
    """Adjacent nodes of one operator are one slice; operators without nodes are at the start of the step or of the node
    that implements them."""
    groups: list[tuple[str, list[NodeExecution]]] = []
    for execution in step.executions:
        name = owner(execution)
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append(execution)
    first: dict[str, int] = {}
    for execution in step.executions:
        for name in execution.operators:
            first.setdefault(name, execution.start)
    own = {name for name, _ in groups}
    for name in analysis.record.operators:
        if name not in own:
            yield name, first.get(name, step.start), first.get(name, step.start), []
    for name, executions in groups:
        yield name, executions[0].start, executions[-1].stop, executions


def _args(name: str, executions: list[NodeExecution], analysis: Analysis) -> dict[str, Any]:
    operator = analysis.record.operators.get(name)
    nodes = [execution.node.removeprefix(f"{name}/") for execution in executions if execution.node]
    shared = list(dict.fromkeys(n for execution in executions for n in execution.operators if n != name))
    args: dict[str, Any] = {"nodes": nodes} if nodes else {}
    if shared:
        args["shared_with"] = shared
    if operator is not None:
        args |= {"type": operator.kind, "part": operator.part}
        args |= {"inputs": list(map(str, operator.inputs)), "outputs": list(map(str, operator.outputs))}
        args |= operator.cost._asdict()
    return args

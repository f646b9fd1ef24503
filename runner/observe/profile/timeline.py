"""`{device}_timeline_display_{d}.json`: a Chrome trace, an array of events in microseconds, that Perfetto opens.

Tracks (threads of one process): `steps`, `host` (calls to the device, compiling), `data` (waits, and what prepares
batches on the device), `data workers`, `operators` (those of the steps that were looked at, by full name; operators
that take no time of their own are there with a length of 0), `writers` (callbacks) and, where ranks train together,
`exchanges` (of every step). The operators of a step are as many as the graph's.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from runner.observe.profile.analysis import Analysis
from runner.observe.profile.clock import SPANS
from runner.observe.profile.record import DATA, EXCHANGES, HOST, WORKERS, WRITERS, Look, Moment
from runner.observe.profile.settings import Place

STEPS, OPERATORS = "steps", "operators"
TRACKS = (STEPS, HOST, DATA, WORKERS, OPERATORS, WRITERS, EXCHANGES)
SLICES = 60_000  # of operators: above this, later steps are left out (the reference limits its files to 20 MB too)

Event = dict[str, Any]


def events(analysis: Analysis, place: Place) -> list[Event]:
    """The whole trace."""
    tracks = TRACKS if EXCHANGES in analysis.record.tracks else TRACKS[:-1]
    made = list(_named_tracks(place, tracks))
    origin, process = analysis.record.origin, os.getpid()
    threads = {track: tid for tid, track in enumerate(tracks, 1)}

    def add(track: str, name: str, start: int, stop: int, **args: object) -> None:
        begin, length = (start - origin) / 1e3, max(0, stop - start) / 1e3
        event = {"name": name, "ph": "X", "pid": process, "tid": threads[track], "ts": begin, "dur": length}
        made.append(event | {"args": args})

    for step in analysis.steps[:SPANS]:
        add(STEPS, f"step {step.number + 1}", step.start + origin, step.stop + origin, borders_measured=step.measured)
    for call in analysis.record.calls[:SPANS]:
        last = call.first + call.steps
        args = {"first_step": call.first + 1, "last_step": last, "operators_timed": call.looked}
        add(HOST, "call of the device", call.start, call.stop, **args)
    for track, spans in analysis.record.tracks.items():
        for span in spans:
            add(track, span.name, span.start, span.stop)
    if len(analysis.steps) > SPANS:
        analysis.record.remarks.append(f"the timeline shows the first {SPANS} steps")
    for look in _shown(analysis):
        for name, start, stop, moments in _slices(look, analysis):
            operator = analysis.record.operators.get(name)
            track = DATA if operator and operator.part == "data" else OPERATORS
            add(track, name, start, stop, step=look.step + 1, **_args(name, moments, analysis))
    return made


def _named_tracks(place: Place, tracks: Sequence[str]) -> Iterator[Event]:
    names = {"process_name": f"runner, {place.whose}" if place.whose else "runner"}
    for kind, name in names.items():
        yield {"name": kind, "ph": "M", "pid": os.getpid(), "tid": 0, "args": {"name": name}}
    for tid, track in enumerate(tracks, 1):
        for kind, args in (("thread_name", {"name": track}), ("thread_sort_index", {"sort_index": tid})):
            yield {"name": kind, "ph": "M", "pid": os.getpid(), "tid": tid, "args": args}


def _shown(analysis: Analysis) -> list[Look]:
    looks: list[Look] = []
    slices = 0
    for look in analysis.record.looks:
        slices += max(len(look.moments), len(analysis.record.operators))
        if slices > SLICES and looks:
            left = len(analysis.record.looks) - len(looks)
            analysis.record.remarks.append(
                f"the timeline leaves out the operators of {left} steps: it would be too long"
            )
            break
        looks.append(look)
    return looks


def _slices(look: Look, analysis: Analysis) -> Iterator[tuple[str, int, int, list[Moment]]]:
    """Nodes of one operator that follow each other are one slice; operators without any stand where the step begins."""
    groups: list[tuple[str, list[Moment]]] = []
    for moment in look.moments:
        name = moment.operators[0] if moment.operators else moment.node
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append(moment)
    met: dict[str, int] = defaultdict(int)
    for moment in look.moments:
        for name in moment.operators:
            met.setdefault(name, moment.start)
    own = {name for name, _ in groups}
    for name in analysis.record.operators:
        if name not in own:
            yield name, met.get(name, look.start), met.get(name, look.start), []
    for name, moments in groups:
        yield name, moments[0].start, moments[-1].stop, moments


def _args(name: str, moments: list[Moment], analysis: Analysis) -> dict[str, Any]:
    operator = analysis.record.operators.get(name)
    nodes = [moment.node.removeprefix(f"{name}/") for moment in moments if moment.node]
    shared = list(dict.fromkeys(n for moment in moments for n in moment.operators if n != name))
    made: dict[str, Any] = {"nodes": nodes} if nodes else {}
    if shared:
        made["shared_with"] = shared
    if operator is not None:
        made |= {"type": operator.kind, "part": operator.part}
        made |= {"inputs": list(map(str, operator.inputs)), "outputs": list(map(str, operator.outputs))}
        made |= {"flops": operator.cost.flops, "bytes": operator.cost.bytes}
    return made

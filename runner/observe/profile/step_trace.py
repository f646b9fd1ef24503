"""`step_trace_raw_{d}_detail_time.csv` and `step_trace_point_info.json` (spec section 5.2).

The table has a line for each step and one with the averages, in ticks of 10 ns since the training began. A step lasts
from the end of the one before to its own end: `iteration_interval` until the first point (data, callbacks, the way to
the device), `fp_and_bp` until the second, then `tail`. Without a second point (nothing is differentiated) the last
columns are `fp`, and there is no `bp_point` and no `tail`, as in the reference. Where ranks train together, three
columns follow for each exchange between them: how long it took, waiting for the others included, its beginning and its
end, `stream_0_{i}_{operator}` with nothing, `_start_point` and `_end_point` behind it.
"""

from collections.abc import Iterator
from typing import Any

from runner.host.csv_file import csv_text
from runner.observe.profile.analysis import Analysis, StepRow
from runner.observe.profile.record import Operator

TICK = 10  # ns
BOTH = (
    *("step_num", "start_point", "end_point", "total", "fp_point", "bp_point"),
    *("iteration_interval", "fp_and_bp", "tail"),
)
FORWARD_ONLY = ("step_num", "start_point", "end_point", "total", "fp_point", "iteration_interval", "fp")


def detail(analysis: Analysis) -> str:
    """The table."""
    forward_only = analysis.points.bp is None
    columns = [*(FORWARD_ONLY if forward_only else BOTH), *_exchange_columns(analysis)]
    steps = [step for step in analysis.steps if step.fp is not None]
    if not steps:
        return csv_text(columns, [])
    rows = [[*_ticks(step, forward_only), *_exchanged(step)] for step in steps]
    numbered = [(step.number + 1, *row) for step, row in zip(steps, rows, strict=True)]
    averages = [round(sum(column) / len(rows)) for column in zip(*rows, strict=True)]
    return csv_text(columns, [*numbered, ("-", *averages)])


def point_info(analysis: Analysis) -> dict[str, Any]:
    """The points, how the borders were found, and the parts of one step in microseconds."""
    measured = [step.number + 1 for step in analysis.steps if step.measured]
    made: dict[str, Any] = {
        "fp_start": analysis.points.fp,
        "bp_end": analysis.points.bp,
        "tick_ns": TICK,
        "steps": len(analysis.steps),
        "measured_steps": measured,
        "how": _how(len(measured), len(analysis.steps), any(call.steps > 1 for call in analysis.record.calls)),
        "parts_us_per_step": {name: round(ns / 1e3, 3) for name, ns in analysis.parts.items()},
        "operators_us_per_step": round(sum(m.typical for m in analysis.measures) / 1e3, 3),
        "device_us_per_step": None if analysis.plain_step is None else round(analysis.plain_step / 1e3, 3),
        "device_us_per_measured_step": round(analysis.looked_step / 1e3, 3),
        "pauses_between_nodes_counted": round(analysis.factor, 4),
    }
    if _exchange_columns(analysis):
        made["exchanges"] = [operator.name for operator in _exchanging(analysis)]
        made["exchanges_counted"] = round(analysis.waits, 4)
    return made | ({"remarks": analysis.record.remarks} if analysis.record.remarks else {})


def _ticks(step: StepRow, forward_only: bool) -> Iterator[int]:
    start, stop = step.start // TICK, step.stop // TICK
    fp = (step.fp or 0) // TICK
    if forward_only:
        yield from (start, stop, stop - start, fp, fp - start, stop - fp)
    else:
        bp = (step.bp or 0) // TICK
        yield from (start, stop, stop - start, fp, bp, fp - start, bp - fp, stop - bp)


def _exchange_columns(analysis: Analysis) -> list[str]:
    """Of the exchanges of one step; all steps have equally many. Without their operators they are called as the
    reference calls those that it does not know."""
    count = max((len(step.exchanges) for step in analysis.steps), default=0)
    names = [operator.short for operator in _exchanging(analysis)]
    names = names if len(names) == count else ["parallel"] * count
    made = [f"stream_0_{i}_{name}" for i, name in enumerate(names)]
    return [column + end for column in made for end in ("", "_start_point", "_end_point")]


def _exchanging(analysis: Analysis) -> list[Operator]:
    return [operator for operator in analysis.record.operators.values() if operator.part == "aggregation"]


def _exchanged(step: StepRow) -> Iterator[int]:
    for start, stop in step.exchanges:
        yield from (stop // TICK - start // TICK, start // TICK, stop // TICK)


def _how(measured: int, steps: int, sunk: bool) -> str:
    said = "The beginning and the end of every call to the device are measured with the clock of the host. "
    if sunk:
        said += "A call holds many steps: those that are not in measured_steps have equal shares of its time. "
    said += f"The points fp and bp were seen in the {measured} steps of measured_steps, whose operators were timed"
    rest = "; in the other steps they are placed where they lie in those, as a share of the time on the device (median)"
    return said + (rest if measured < steps else "") + "."

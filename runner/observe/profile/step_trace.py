"""`step_trace_raw_{d}_detail_time.csv` and `step_trace_point_info.json` (spec section 5.2).

The table has a row for each step and one with the averages of the steps that do not warm up, in ticks of 10 ns since
the start of the training. A step lasts from the end of the one before to its own end: `iteration_interval` until the fp
point (data, callbacks, transfer to the device), `fp_and_bp` until the bp point, then `tail`. Without a bp point (no
gradients) the last column is `fp`, and there is no `bp_point` and no `tail`, as in the reference. With several ranks,
three columns follow for each exchange between them, `stream_0_{i}_{operator}` without suffix, with `_start_point` and
with `_end_point`: its duration, including the wait for other ranks, its start and its end.
"""

from collections.abc import Iterator
from typing import Any

from runner.host.console import csv_text
from runner.observe.profile.analysis import Analysis
from runner.observe.profile.record import ProfiledOperator
from runner.observe.profile.step_rows import StepRow

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
        return csv_text([columns])
    rows = [[*_ticks(step, forward_only), *_exchange_ticks(step)] for step in steps]
    numbered = [(step.number + 1, *row) for step, row in zip(steps, rows, strict=True)]
    settled = [row for step, row in zip(steps, rows, strict=True) if not step.warm_up] or rows
    averages = [round(sum(column) / len(settled)) for column in zip(*settled, strict=True)]
    return csv_text([columns, *numbered, ("-", *averages)])


def point_info(analysis: Analysis) -> dict[str, Any]:
    """The points, how their times were measured, and the parts of one step in microseconds."""
    measured = [step.number + 1 for step in analysis.steps if step.measured]
    content: dict[str, Any] = {
        "fp_start": analysis.points.fp,
        "bp_end": analysis.points.bp,
        "tick_ns": TICK,
        "steps": len(analysis.steps),
        "measured_steps": measured,
        "warm_up_steps": [step.number + 1 for step in analysis.steps if step.warm_up],
        "how": _how(len(measured), len(analysis.steps), any(call.steps > 1 for call in analysis.record.calls)),
        "parts_us_per_step": {name: round(part.value / 1e3, 3) for name, part in analysis.parts.items()},
        "operators_us_per_step": round(sum(times.median for times in analysis.operator_times) / 1e3, 3),
        "device_us_per_step": None if analysis.unprofiled_step is None else round(analysis.unprofiled_step / 1e3, 3),
        "device_us_per_measured_step": round(analysis.profiled_step / 1e3, 3),
        "pauses_between_nodes_counted": round(analysis.pause_factor, 4),
    }
    if _exchange_columns(analysis):
        content["exchanges"] = [operator.name for operator in _exchange_operators(analysis)]
        content["exchanges_counted"] = round(analysis.exchange_factor, 4)
    return content | ({"remarks": analysis.record.remarks} if analysis.record.remarks else {})


def _ticks(step: StepRow, forward_only: bool) -> Iterator[int]:
    start, stop = step.start // TICK, step.stop // TICK
    fp = (step.fp or 0) // TICK
    if forward_only:
        yield from (start, stop, stop - start, fp, fp - start, stop - fp)
    else:
        bp = (step.bp or 0) // TICK
        yield from (start, stop, stop - start, fp, bp, fp - start, bp - fp, stop - bp)


def _exchange_columns(analysis: Analysis) -> list[str]:
    """The columns of the exchanges of one step; all steps have the same number. Without known operators they have the
    reference's name for unknown ones."""
    count = max((len(step.exchanges) for step in analysis.steps), default=0)
    names = [operator.short for operator in _exchange_operators(analysis)]
    names = names if len(names) == count else ["parallel"] * count
    columns = [f"stream_0_{i}_{name}" for i, name in enumerate(names)]
    return [column + end for column in columns for end in ("", "_start_point", "_end_point")]


def _exchange_operators(analysis: Analysis) -> list[ProfiledOperator]:
    return [operator for operator in analysis.record.operators.values() if operator.part == "aggregation"]


def _exchange_ticks(step: StepRow) -> Iterator[int]:
    for start, stop in step.exchanges:
        yield from (stop // TICK - start // TICK, start // TICK, stop // TICK)


def _how(measured: int, steps: int, sunk: bool) -> str:
    text = "The beginning and the end of every call to the device are measured with the clock of the host. "
    if sunk:
        text += "A call holds many steps: those that are not in measured_steps have equal shares of its time. "
    text += f"The points fp and bp were seen in the {measured} steps of measured_steps, whose operators were timed"
    rest = "; in the other steps they are placed where they lie in those, as a share of the time on the device (median)"
    text += rest if measured < steps else ""
    return text + (
        ". The averages leave out warm_up_steps: in these, sessions are prepared and make their first call, which"
        " allocates memory, or the profile starts."
    )

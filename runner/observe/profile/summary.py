"""The summary of a profiled training on the console: its step, the largest operators, and one recommendation."""

from collections.abc import Iterator

from runner.observe.profile.analysis import Analysis, OperatorTimes
from runner.observe.profile.data_pipeline import LARGE, sentence, waiting_share
from runner.observe.profile.settings import ProfileTarget

TOP, WIDTH = 10, 88
OVERHEAD = 0.15  # a share of the step that is worth a recommendation
NAMES = {
    "data_preparation": "data preparation",
    "forward": "forward",
    "backward": "backward",
    "aggregation": "gradient aggregation",
    "update": "update",
    "rest_of_the_device_call": "rest of the call",
    "callbacks_and_python": "callbacks and Python",
}


def lines(analysis: Analysis, target: ProfileTarget) -> Iterator[str]:
    """The summary, line by line."""
    steps = sum(call.steps for call in analysis.record.calls)
    profiled = len(analysis.record.profiled_steps)
    whole = sum(analysis.parts.values())
    label = f" of {target.label}" if target.label else ""
    yield f"profile{label}: {steps} steps, {whole / 1e6:.3f} ms each; operators were timed in {profiled} of them"
    for name, ns in analysis.parts.items():
        if ns:
            yield f"  {NAMES[name]:22} {ns / 1e6:10.3f} ms  {ns / whole:6.1%}"
    if analysis.operator_times:
        yield f"largest of {len(analysis.record.operators)} operators:"
    for times in _largest(analysis)[:TOP]:
        yield f"  {times.median / 1e6:10.3f} ms  {times.median / whole:6.1%}  {_name(times)}"
    yield sentence(analysis)
    yield from (f"note: {remark}" for remark in analysis.record.remarks)
    yield f"next: {advice(analysis, target)}"


def advice(analysis: Analysis, target: ProfileTarget) -> str:
    """The recommendation: one thing to try next."""
    parts, whole = analysis.parts, sum(analysis.parts.values()) or 1.0
    if waiting_share(analysis) > LARGE:
        return "dataset.num_parallel_workers=2 or more: the run waits for data"
    if target.mode == "pynative":
        return "mode=graph: the same numbers, in one call for each step or for many"
    if parts.get("aggregation", 0.0) / whole > LARGE:
        share = parts["aggregation"] / whole
        return f"a larger dataset.batch_size: {share:.0%} of a step are exchanges, and waiting for other ranks in them"
    outside = (parts.get("callbacks_and_python", 0.0) + parts.get("data_preparation", 0.0)) / whole
    if outside > OVERHEAD and not analysis.record.sunk and target.ranks == 1:
        return f"dataset_sink_mode=true: {outside:.0%} of a step is spent on the host"
    pauses = _pauses(analysis)
    if pauses > OVERHEAD:
        return f"a larger dataset.batch_size: {pauses:.0%} of a step are pauses between operators, which are too small"
    largest = _largest(analysis)
    if largest:
        share = largest[0].median / whole
        where = f"{share:.0%} of it in {_shortened(largest[0].name)}"
        tuned = "session.auto_tune_mode='RL,GA' or " if target.ranks == 1 else ""
        return f"{tuned}a narrower network: most of a step is computing, {where}"
    return "profiling.task_trace=on, to see the operators"


def _pauses(analysis: Analysis) -> float:
    """The share of a step in which no node is executed, without the overhead of the profile."""
    steps = analysis.record.profiled_steps
    if not steps:
        return 0.0
    executions = [execution for step in steps for execution in step.executions]
    between = sum(step.stop - step.start for step in steps) - sum(e.stop - e.start for e in executions)
    inside, pauses = sum(map(analysis.corrected, executions)), between * analysis.pause_factor
    return pauses / (pauses + inside)


def _largest(analysis: Analysis) -> list[OperatorTimes]:
    return sorted((t for t in analysis.operator_times if t.median), key=lambda times: -times.median)


def _name(times: OperatorTimes) -> str:
    others = [name.rpartition("/")[2] for name in times.shared_with]
    return _shortened(times.name) + (f" (with parts of {', '.join(others[:3])})" if others else "")


def _shortened(name: str) -> str:
    return name if len(name) <= WIDTH else "…" + name[1 - WIDTH :]

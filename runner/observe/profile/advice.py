"""The recommendation of a profile: one thing to try next.

There is none from fewer than `SAMPLES` timed steps, and a share of the step counts only if its lower quartile is large.
"""

from collections.abc import Sequence

from runner.observe.profile.analysis import Analysis
from runner.observe.profile.data_pipeline import LARGE, waits_often
from runner.observe.profile.distribution import Distribution, of_steps
from runner.observe.profile.ranking import RankedOperator
from runner.observe.profile.schedule import SAMPLES, WARM_UP
from runner.observe.profile.settings import ProfileTarget

OVERHEAD = 0.15  # a share of the step that is worth a recommendation


def advice(analysis: Analysis, target: ProfileTarget, ranked: Sequence[RankedOperator]) -> str:
    """One thing to try next."""
    if waits_often(analysis) and sum(call.steps for call in analysis.waiting_calls) >= SAMPLES:
        return "dataset.num_parallel_workers=2 or more: the run waits for data"
    if not analysis.settings.steps:
        return "profiling.task_trace=on, to see the operators"
    if (timed := len(analysis.record.profiled_steps)) < SAMPLES:
        enough = SAMPLES + WARM_UP
        return f"max_steps={enough} or more: {timed} timed steps are too few for advice, {SAMPLES} are needed"
    if target.mode == "pynative":
        return "mode=graph: the same numbers, in one call for each step or for many"
    return _of_the_graph(analysis, target, ranked)


def _of_the_graph(analysis: Analysis, target: ProfileTarget, ranked: Sequence[RankedOperator]) -> str:
    parts, whole = analysis.parts, analysis.step
    exchanges, callbacks, data = parts["aggregation"], parts["callbacks_and_python"], parts["data_preparation"]
    if exchanges.low / whole > LARGE:
        share = exchanges.value / whole
        return f"a larger dataset.batch_size: {share:.0%} of a step are exchanges, and waiting for other ranks in them"
    if (callbacks.low + data.low) / whole > OVERHEAD and not analysis.record.sunk and target.ranks == 1:
        outside = (callbacks.value + data.value) / whole
        return f"dataset_sink_mode=true: {outside:.0%} of a step is spent on the host"
    pauses = _pauses(analysis)
    if pauses.low > OVERHEAD:
        share = pauses.value
        return f"a larger dataset.batch_size: {share:.0%} of a step are pauses between operators, which are too small"
    tuned = "session.auto_tune_mode='RL,GA' or " if target.ranks == 1 else ""
    return f"{tuned}a narrower network: most of a step is computing{_where(ranked, whole)}"


def _where(ranked: Sequence[RankedOperator], whole: float) -> str:
    """The share of the most expensive operator, or of those that cannot be separated."""
    first = [one for one in ranked if one.first == 1]
    if not first:
        return ""
    share = sum(one.operator.median for one in first) / whole
    name = first[0].label if len(first) == 1 else f"the first {len(first)} operators"
    return f", {share:.0%} of it in {name}"


def _pauses(analysis: Analysis) -> Distribution:
    """The share of a step in which no node is executed, without the overhead of the profile."""
    shares = []
    for step in analysis.record.profiled_steps:
        inside = sum(map(analysis.corrected, step.executions))
        between = step.stop - step.start - sum(e.stop - e.start for e in step.executions)
        pauses = between * analysis.pause_factor
        shares.append(pauses / ((pauses + inside) or 1.0))
    return of_steps(shares)

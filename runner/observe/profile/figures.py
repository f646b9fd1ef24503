"""The figures of a profile: the one source of what people read of it, on the console and in `runner report`.

`profile_summary_{d}.json` holds them: times in microseconds, shares of a step from 0 to 1. A time has its median (of
waits for data, the mean), the quartiles, and the number of samples.
"""

from typing import Any, NamedTuple

from runner.observe.profile.advice import advice
from runner.observe.profile.analysis import Analysis
from runner.observe.profile.data_pipeline import sentence
from runner.observe.profile.distribution import Distribution
from runner.observe.profile.ranking import RankedOperator, ranking, remark
from runner.observe.profile.schedule import SAMPLES
from runner.observe.profile.settings import ProfileTarget

LISTED = 50  # operators in the file; the tables have all
LABELS = {
    "data_preparation": "data preparation",
    "forward": "forward",
    "backward": "backward",
    "aggregation": "gradient aggregation",
    "update": "update",
    "rest_of_the_device_call": "rest of the call",
    "callbacks_and_python": "callbacks and Python",
}


class ProfileFigures(NamedTuple):
    """The figures. `step` is the sum of all parts in nanoseconds, `spread` the distribution of this sum.

    `parts` are those that take time, by label; `operators` counts all that were timed, `ranked` are those that take
    time.
    """

    title: str
    steps: int
    timed: int
    warm_up: list[int]
    threads: int
    step: float
    spread: Distribution
    parts: dict[str, Distribution]
    operators: int
    ranked: list[RankedOperator]
    sentences: list[str]
    notes: list[str]
    next: str

    def as_json(self) -> dict[str, Any]:
        """The content of the file."""
        return {
            "title": self.title,
            "steps": self.steps,
            "timed_steps": self.timed,
            "warm_up_steps": self.warm_up,
            "threads": self.threads,
            "step_us": round(self.step / 1e3, 3),
            "step": _time(self.spread),
            "parts": [{"part": name, **self._with_share(part)} for name, part in self.parts.items()],
            "operators": self.operators,
            "ranking": [
                {
                    "places": one.places,
                    "full_op_name": one.operator.name,
                    "op_type": one.operator.kind,
                    **self._with_share(one.operator.distribution),
                    "shares_nodes_with": list(one.operator.shared_with),
                }
                for one in self.ranked[:LISTED]
            ],
            "sentences": self.sentences,
            "notes": self.notes,
            "next": self.next,
        }

    def _with_share(self, time: Distribution) -> dict[str, Any]:
        return {**_time(time), "share": round(time.value / (self.step or 1.0), 5)}


def figures(analysis: Analysis, target: ProfileTarget) -> ProfileFigures:
    """The figures of a profile."""
    record, ranked = analysis.record, ranking(analysis)
    label = f" of {target.label}" if target.label else ""
    return ProfileFigures(
        title=f"profile{label}",
        steps=sum(call.steps for call in record.calls),
        timed=len(record.profiled_steps),
        warm_up=[number + 1 for number in sorted(record.warm_up)],
        threads=record.threads,
        step=analysis.step,
        spread=analysis.step_distribution,
        parts={LABELS[name]: part for name, part in analysis.parts.items() if part.value},
        operators=len(record.operators),
        ranked=ranked,
        sentences=[text for text in (remark(analysis, ranked), sentence(analysis)) if text],
        notes=_notes(analysis),
        next=advice(analysis, target, ranked),
    )


def _notes(analysis: Analysis) -> list[str]:
    """Remarks, and the hardware metrics that this machine does not provide, by reason."""
    record = analysis.record
    notes = list(record.remarks)
    if record.profiled_steps and analysis.unprofiled_step is None:
        notes.append(f"fewer than {SAMPLES} steps ran without timed operators: the times include what the timing costs")
    reasons: dict[str, list[str]] = {}
    for name, reason in record.missing_counters.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        metric = analysis.settings.ai_core_metrics
        notes.append(f"ai_core_metrics={metric}: this machine does not provide {', '.join(names)}: {reason}")
    return notes


def _time(time: Distribution) -> dict[str, Any]:
    values = {
        "mean_us" if time.is_mean else "median_us": time.value,
        "lower_quartile_us": time.low,
        "upper_quartile_us": time.high,
    }
    return {**{name: round(value / 1e3, 3) for name, value in values.items()}, "samples": time.samples}

"""`minddata_pipeline_raw_{d}.csv` and `pipeline_profiling_{d}.json` (spec section 5.2): the operators of the data
pipeline, their queues, and whether the run waits for data.

The size of a queue is sampled whenever the training requests a batch. Only the last operator has a queue, and only
where threads prepare batches ahead; the others pass their rows on directly.
"""

import json
from collections.abc import Sequence
from typing import Any

from runner.dataset.stages import Stage
from runner.host.console import csv_text
from runner.observe.profile.analysis import Analysis

COLUMNS = (
    *("op_id", "op_type", "num_workers", "output_queue_size", "output_queue_average_size", "output_queue_length"),
    *("output_queue_usage_rate", "sample_interval", "parent_id", "children_id"),
)
NOTICEABLE, LARGE = 0.05, 0.25  # shares of the time


def raw(analysis: Analysis, stages: Sequence[Stage]) -> str:
    """The CSV table: a row for each operator, number 0 is the last one."""
    rows = []
    sizes = analysis.record.queue_sizes
    for number, stage in enumerate(stages):
        queue: tuple[object, ...] = ("", "", "", "")
        if stage.queue is not None and sizes:
            mean = sum(sizes) / len(sizes)
            queue = (json.dumps(sizes), f"{mean:.2f}", stage.queue, f"{mean / stage.queue:.4f}")
        parent = "" if number == 0 else number - 1
        children = json.dumps([number + 1] if number + 1 < len(stages) else [])
        rows.append((number, stage.kind, stage.workers, *queue, _interval(analysis), parent, children))
    return csv_text([COLUMNS, *rows])


def profile(analysis: Analysis, stages: Sequence[Stage]) -> dict[str, Any]:
    """The content of the JSON file: the same, the time of each operator, and the sentence."""
    listed = []
    for number, stage in enumerate(stages):
        one: dict[str, Any] = {
            "op_id": number,
            "op_type": stage.kind,
            "what": stage.detail,
            "num_workers": stage.workers,
        }
        metrics: dict[str, Any] = {}
        if stage.queue is not None:
            metrics["output_queue"] = {"size": analysis.record.queue_sizes, "length": stage.queue}
        if stage.microseconds is not None:
            metrics["time_us_per_batch"] = round(stage.microseconds, 3)
        listed.append(one | {"metrics": metrics or None, "children": [number + 1][: len(stages) - 1 - number] or None})
    waited = sum(call.waited for call in analysis.record.calls)
    return {
        "sampling_interval": _interval(analysis),
        "sampling": "the queue was sampled when a batch was requested; the interval is the mean, in milliseconds",
        "time_us_per_batch": "measured after the training, each operator alone",
        "waited_ms": round(waited / 1e6, 3),
        "waited_share": round(waiting_share(analysis), 5),
        "sentence": sentence(analysis),
        "op_info": listed,
    }


def waiting_share(analysis: Analysis) -> float:
    """The share of the time of a step that is spent on its data."""
    return analysis.parts["data_preparation"].value / (analysis.step or 1.0) if analysis.parts else 0.0


def waits_often(analysis: Analysis) -> bool:
    """Whether waits for data are a large share of the steps also without the longest wait, which another process may
    have caused.
    """
    calls = sorted(analysis.waiting_calls, key=lambda call: call.waited)[:-1]
    waited = sum(call.waited for call in calls) / max(1, sum(call.steps for call in calls))
    return waited > LARGE * (analysis.step - analysis.waits.value + waited)


def sentence(analysis: Analysis) -> str:
    """A sentence on whether the run waits for data."""
    share = waiting_share(analysis)
    time = f"{share:.1%} of its time"
    if share < NOTICEABLE:
        return f"The run does not wait for data: {time}."
    return f"The run {'waits' if share > LARGE and waits_often(analysis) else 'sometimes waits'} for data: {time}."


def _interval(analysis: Analysis) -> float:
    calls = analysis.record.calls
    if len(calls) < 2:
        return 0.0
    return round((calls[-1].start - calls[0].start) / (len(calls) - 1) / 1e6, 3)

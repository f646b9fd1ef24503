"""Tables: `{device}_op_detail_info_{d}.csv`, `{device}_op_type_info_{d}.csv`, `framework_raw_{d}.csv`.

The columns are those of the reference for CPU operators (spec section 5.2), on every device: times in milliseconds,
`total_proportion` the share of all operators (0 to 1), `percent` the share of a type in percent. Figures without a
column in the reference (operations, bytes, operators with shared nodes) are in the JSON of `op_info`.
"""

import json
import os
from collections import defaultdict
from typing import Any

from runner.host.console import csv_text
from runner.observe.profile.analysis import Analysis, OperatorTimes
from runner.observe.profile.record import ProfiledOperator
from runner.observe.profile.settings import ProfileTarget
from runner.types import TensorType

DETAIL = (
    *("op_side", "op_type", "op_name", "full_op_name", "op_occurrences", "op_total_time(ms)", "op_avg_time(ms)"),
    *("total_proportion", "subgraph", "pid"),
)
TYPES = (
    *("op_type", "type_occurrences", "execution_frequency(per-step)", "total_compute_time", "avg_time(ms)", "percent"),
)
FRAMEWORK = ("task_id", "stream_id", "block_dim", "full_op_name", "op_name", "op_type", "subgraph", "op_info")
MS = 1e6


def detail(analysis: Analysis, target: ProfileTarget) -> str:
    """A row for each operator, the longest first."""
    whole = sum(times.total for times in analysis.operator_times) or 1.0
    side = "HostCpu" if target.device == "cpu" else "Device"
    rows = [
        (
            side,
            times.kind,
            times.name.rpartition("/")[2],
            times.name,
            len(times.times),
            f"{times.total / MS:.6f}",
            f"{times.mean / MS:.6f}",
            f"{times.total / whole:.6f}",
            times.name.partition("/")[0],
            os.getpid(),
        )
        for times in analysis.longest_first
    ]
    return csv_text([DETAIL, *rows])


def types(analysis: Analysis) -> str:
    """A row for each type, the longest first."""
    groups: dict[str, list[OperatorTimes]] = defaultdict(list)
    for times in analysis.operator_times:
        groups[times.kind].append(times)
    whole = sum(times.total for times in analysis.operator_times) or 1.0
    rows = []
    for kind, group in sorted(groups.items(), key=lambda item: -sum(t.total for t in item[1])):
        total, count = sum(t.total for t in group), sum(len(t.times) for t in group)
        average = total / max(1, count) / MS
        percent = f"{total / whole * 100:.4f}"
        rows.append((kind, count, len(group), f"{total / MS:.6f}", f"{average:.6f}", percent))
    return csv_text([TYPES, *rows])


def framework(analysis: Analysis) -> str:
    """A row for each operator in the order of the graph: operands, results and cost."""
    rows = []
    for number, times in enumerate(t for t in analysis.operator_times if t.operator):
        operator = times.operator
        assert operator is not None
        info = json.dumps(_info(operator, times), separators=(",", ":"))
        names = operator.name, operator.short, operator.kind, operator.subgraph
        rows.append((number, 0, analysis.record.threads, *names, info))
    return csv_text([FRAMEWORK, *rows])


def _info(operator: ProfiledOperator, times: OperatorTimes) -> dict[str, Any]:
    sides = (("input", operator.inputs), ("output", operator.outputs))
    info: dict[str, Any] = {f"{side}_{k}": _value(x) for side, values in sides for k, x in enumerate(values)}
    info |= {**operator.cost._asdict(), "part": operator.part}
    if times.shared_with:
        info["shares_nodes_with"] = list(times.shared_with)
    if not times.total:
        info["note"] = "no time of its own: " + (
            "see shares_nodes_with" if times.shared_with else "nothing is executed"
        )
    return info


def _value(x: TensorType) -> dict[str, str]:
    """A value in the form of the reference."""
    kind, shape = f"NUMBER_TYPE_{x.dtype.numpy.name.upper()}", ",".join(map(str, x.shape))
    return {"format": "NCHW" if x.ndim == 4 else "DefaultFormat", "data_type": kind, "shape": shape}

"""Tables: `{device}_op_detail_info_{d}.csv`, `{device}_op_type_info_{d}.csv`, `framework_raw_{d}.csv`.

Columns as the reference has them for operators of the CPU (spec section 5.2), on every device: times in milliseconds,
`total_proportion` a share of all operators (0 to 1), `percent` the same by type in percent. What the reference has no
column for (operations, bytes, what an operator shares with others) is in the JSON of `op_info`.
"""

import json
import os
from collections import defaultdict
from typing import Any

from runner.host.csv_file import csv_text
from runner.observe.profile.analysis import Analysis, Measure
from runner.observe.profile.record import Operator
from runner.observe.profile.settings import Place
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


def detail(analysis: Analysis, place: Place) -> str:
    """A row for each operator, those that take most first."""
    whole = sum(measure.total for measure in analysis.measures) or 1.0
    side = "HostCpu" if place.device == "cpu" else "Device"
    rows = [
        (
            side,
            measure.kind,
            measure.name.rpartition("/")[2],
            measure.name,
            len(measure.times),
            f"{measure.total / MS:.6f}",
            f"{measure.mean / MS:.6f}",
            f"{measure.total / whole:.6f}",
            measure.name.partition("/")[0],
            os.getpid(),
        )
        for measure in _largest_first(analysis)
    ]
    return csv_text(DETAIL, rows)


def types(analysis: Analysis) -> str:
    """A row for each type, those that take most first."""
    groups: dict[str, list[Measure]] = defaultdict(list)
    for measure in analysis.measures:
        groups[measure.kind].append(measure)
    whole = sum(measure.total for measure in analysis.measures) or 1.0
    rows = []
    for kind, group in sorted(groups.items(), key=lambda item: -sum(m.total for m in item[1])):
        total, times = sum(m.total for m in group), sum(len(m.times) for m in group)
        average = total / max(1, times) / MS
        percent = f"{total / whole * 100:.4f}"
        rows.append((kind, times, len(group), f"{total / MS:.6f}", f"{average:.6f}", percent))
    return csv_text(TYPES, rows)


def framework(analysis: Analysis, place: Place) -> str:
    """A row for each operator in the order of the graph: what it takes and makes, and what that costs."""
    rows = []
    for number, measure in enumerate(m for m in analysis.measures if m.operator):
        operator = measure.operator
        assert operator is not None
        info = json.dumps(_info(operator, measure), separators=(",", ":"))
        names = operator.name, operator.short, operator.kind, operator.subgraph
        rows.append((number, 0, place.threads, *names, info))
    return csv_text(FRAMEWORK, rows)


def _largest_first(analysis: Analysis) -> list[Measure]:
    return sorted(analysis.measures, key=lambda measure: -measure.total)


def _info(operator: Operator, measure: Measure) -> dict[str, Any]:
    sides = (("input", operator.inputs), ("output", operator.outputs))
    made: dict[str, Any] = {f"{side}_{k}": _value(x) for side, values in sides for k, x in enumerate(values)}
    made |= {"flops": operator.cost.flops, "bytes": operator.cost.bytes, "part": operator.part}
    if measure.others:
        made["shares_nodes_with"] = list(measure.others)
    if not measure.total:
        made["note"] = "no time of its own: " + ("see shares_nodes_with" if measure.others else "nothing is executed")
    return made


def _value(x: TensorType) -> dict[str, str]:
    """As the reference describes a value."""
    kind = f"NUMBER_TYPE_{x.dtype.numpy.name.upper()}"
    return {"format": "NCHW" if x.ndim == 4 else "DefaultFormat", "data_type": kind, "shape": _shape(x)}


def _shape(x: TensorType) -> str:
    return ",".join(map(str, x.shape))

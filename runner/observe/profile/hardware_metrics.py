"""`ai_core_metrics_{d}.json`: the requested hardware metric.

ArithmeticUtilization    operations per second of each operator, relative to the measured peak of the machine
PipeUtilization          the minimum times for its operations and for its bytes, relative to its measured time
                         (a roofline of measured peak and bandwidth); `bound` names the longer one
Memory, MemoryL0,        counters of the processor, for whole steps; those that the kernel does not permit are listed
ResourceConflictRatio    with the reason and have no values
"""

from typing import Any

from runner.observe.profile.analysis import Analysis, OperatorTimes
from runner.observe.profile.counters import COUNTERS
from runner.observe.profile.peak import REPEATS, SIZE, Peak
from runner.observe.profile.record import ProfiledOperator

PRODUCTS = {"MatMul", "BatchMatMul", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
FROM_PEAK = {"ArithmeticUtilization", "PipeUtilization"}  # relative to the peak of the machine, not from counters


def table(analysis: Analysis, metric: str, peak: Peak | None) -> dict[str, Any]:
    """The content of the file. `peak` is required for the metrics in `FROM_PEAK`."""
    if metric in COUNTERS:
        return {"ai_core_metrics": metric, **_counted(analysis, metric)}
    assert peak is not None
    row = _arithmetic if metric == "ArithmeticUtilization" else _pipe
    return {
        "ai_core_metrics": metric,
        "peak_gflops_per_second": round(peak.flops / 1e9, 3),
        "peak_gbytes_per_second": round(peak.bytes / 1e9, 3),
        "peak_measured_by": f"the best of {REPEATS} float32 products of {SIZE} x {SIZE}, and of as many copies",
        "operators": [
            {"full_op_name": t.name, "op_type": t.kind, "time_us": round(t.median / 1e3, 3), **row(t, t.operator, peak)}
            for t in analysis.longest_first
            if t.operator is not None and t.median > 0
        ],
    }


def _arithmetic(times: OperatorTimes, operator: ProfiledOperator, peak: Peak) -> dict[str, Any]:
    """`mac_fp32_ratio` of products and convolutions, `vec_fp32_ratio` of all other operators."""
    speed = operator.cost.flops / times.median * 1e9
    name = "mac_fp32_ratio" if operator.kind in PRODUCTS else "vec_fp32_ratio"
    row = {"flops": operator.cost.flops, "gflops_per_second": round(speed / 1e9, 4)}
    return row | {name: round(speed / peak.flops, 5), **_shared(times)}


def _pipe(times: OperatorTimes, operator: ProfiledOperator, peak: Peak) -> dict[str, Any]:
    compute, move = operator.cost.flops / peak.flops * 1e9, operator.cost.bytes / peak.bytes * 1e9
    row: dict[str, Any] = {**operator.cost._asdict()}
    row |= {"compute_ratio": round(compute / times.median, 5), "move_ratio": round(move / times.median, 5)}
    return row | {"bound": "compute" if compute > move else "data movement", **_shared(times)}


def _shared(times: OperatorTimes) -> dict[str, Any]:
    """A node that implements several operators counts for the first one, so the ratio is that of all of them."""
    return {"shares_nodes_with": list(times.shared_with)} if times.shared_with else {}


def _counted(analysis: Analysis, metric: str) -> dict[str, Any]:
    record = analysis.record
    steps = max(1, sum(call.steps for call in record.calls))
    seconds = sum(call.stop - call.start for call in record.calls) / 1e9
    per_step = {name: round(count / steps, 1) for name, count in record.counters.items()}
    content: dict[str, Any] = {"counted_per_step": per_step, "missing": record.missing_counters}
    for counter in COUNTERS[metric]:
        if counter.bytes and counter.name in record.counters and seconds:
            rate = record.counters[counter.name] * counter.bytes / seconds
            content[f"{counter.name}_bw_gbytes_per_second"] = rate / 1e9
    cycles = record.counters.get("cycles")
    for name in ("stalled_cycles_frontend", "stalled_cycles_backend"):
        if cycles and name in record.counters:
            content[f"{name}_ratio"] = record.counters[name] / cycles
    content["note"] = (
        "counters of the processor count for all threads of the process, so for steps and not for operators"
    )
    return content

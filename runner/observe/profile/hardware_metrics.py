"""`ai_core_metrics_{d}.json`: the one measure of the hardware that was asked for.

ArithmeticUtilization    operations in a second of each operator, by the measured peak of the machine
PipeUtilization          the least time for its operations and the least time for its bytes, by the time it took
                         (a roofline of measured peak and bandwidth); `bound` says which is longer
Memory, MemoryL0,        counters of the processor, for whole steps; those that the kernel does not give are named
ResourceConflictRatio    with the reason, and nothing stands in their place
"""

from collections.abc import Iterator
from typing import Any

from runner.observe.profile.analysis import Analysis, Measure
from runner.observe.profile.counters import COUNTERS
from runner.observe.profile.peak import REPEATS, SIZE, Peak
from runner.observe.profile.record import Operator

PRODUCTS = {"MatMul", "BatchMatMul", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
MEASURED = {"ArithmeticUtilization", "PipeUtilization"}  # of the machine's peak, not of counters


def table(analysis: Analysis, metric: str, peak: Peak | None) -> dict[str, Any]:
    """The whole file. `peak` is needed for the first two measures."""
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
            {"full_op_name": m.name, "op_type": m.kind, "time_us": round(m.typical / 1e3, 3), **row(m, o, peak)}
            for m, o in _timed(analysis)
        ],
    }


def _timed(analysis: Analysis) -> Iterator[tuple[Measure, Operator]]:
    for measure in sorted(analysis.measures, key=lambda measure: -measure.total):
        if measure.operator is not None and measure.typical > 0:
            yield measure, measure.operator


def _arithmetic(measure: Measure, operator: Operator, peak: Peak) -> dict[str, Any]:
    """`mac_fp32_ratio` of products and convolutions, `vec_fp32_ratio` of all others."""
    speed = operator.cost.flops / measure.typical * 1e9
    name = "mac_fp32_ratio" if operator.kind in PRODUCTS else "vec_fp32_ratio"
    made = {"flops": operator.cost.flops, "gflops_per_second": round(speed / 1e9, 4)}
    return made | {name: round(speed / peak.flops, 5), **_shared(measure)}


def _pipe(measure: Measure, operator: Operator, peak: Peak) -> dict[str, Any]:
    compute, move = operator.cost.flops / peak.flops * 1e9, operator.cost.bytes / peak.bytes * 1e9
    made: dict[str, Any] = {"flops": operator.cost.flops, "bytes": operator.cost.bytes}
    made |= {"compute_ratio": round(compute / measure.typical, 5), "move_ratio": round(move / measure.typical, 5)}
    return made | {"bound": "compute" if compute > move else "data movement", **_shared(measure)}


def _shared(measure: Measure) -> dict[str, Any]:
    """A node that stands for several operators counts for the first of them, so ratios of those are of their sum."""
    return {"shares_nodes_with": list(measure.others)} if measure.others else {}


def _counted(analysis: Analysis, metric: str) -> dict[str, Any]:
    record = analysis.record
    steps = max(1, sum(call.steps for call in record.calls))
    seconds = sum(call.stop - call.start for call in record.calls) / 1e9
    counted = {name: round(count / steps, 1) for name, count in record.counted.items()}
    made: dict[str, Any] = {"counted_per_step": counted, "missing": record.missing}
    for counter in COUNTERS[metric]:
        if counter.bytes and counter.name in record.counted and seconds:
            made[f"{counter.name}_bw_gbytes_per_second"] = record.counted[counter.name] * counter.bytes / seconds / 1e9
    cycles = record.counted.get("cycles")
    for name in ("stalled_cycles_frontend", "stalled_cycles_backend"):
        if cycles and name in record.counted:
            made[f"{name}_ratio"] = record.counted[name] / cycles
    made["note"] = "counters of the processor count for all threads of the process, so for steps and not for operators"
    return made

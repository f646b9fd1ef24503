"""`op_trace`: measurement of a single operator, given in one of these forms:

{full name of an operator of the network}
MatMul(32x400,400x120)
Conv2D(32x1x32x32,6x1x5x5; out_channel=6, kernel_size=5)
Gather(256x64,32:int32; axis=0)
"""

import ast
import dataclasses
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from runner import dtype as dt
from runner.core.graph import Graph
from runner.core.operators import REGISTRY, Effect, Primitive, infer
from runner.errors import ConfigError, RunnerError, nearest
from runner.observe.profile.analysis import Analysis, OperatorTimes
from runner.observe.profile.fp_bp_points import check_point, find_operator
from runner.observe.profile.record import COUNTERS, REPEATS, SIZE, Peak, ProfiledOperator, cost
from runner.types import TensorType

WRITTEN = re.compile(r"\s*(\w+)\s*\(([^;()]*)(?:;(.*))?\)\s*", re.DOTALL)
ALLOWED = "the full name of an operator of the network, or a type with shapes, such as MatMul(32x400,400x120)"
WARM_UP, MIN_RUNS, MAX_RUNS, SECONDS = 5, 20, 1000, 1.0
TYPES = {kind.numpy.name: kind for kind in dt.ALL}


class SingleOperator(NamedTuple):
    """An operator with the types of its operands."""

    op: Primitive
    inputs: tuple[TensorType, ...]
    name: str

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Types of its results."""
        return infer(self.op, self.inputs)

    def operands(self) -> list[np.ndarray]:
        """Operands, always the same: floats between 0.5 and 1.5, and integers 0 and 1."""
        rng = np.random.default_rng(0)
        return [_filled(rng, kind) for kind in self.inputs]


class TimingStatistics(NamedTuple):
    """Statistics of the time of one execution, in microseconds."""

    runs: int
    median: float
    min: float
    p10: float
    p90: float

    @classmethod
    def of(cls, times: Sequence[float]) -> "TimingStatistics":
        """The statistics of these times in microseconds."""
        tenths = statistics.quantiles(times, n=10)
        return cls(len(times), statistics.median(times), min(times), tenths[0], tenths[-1])


def parse_operator(text: str, traced: Callable[[], Graph]) -> SingleOperator:
    """The operator in a text; `traced` returns the graph of the network, for full names.

    Raises ConfigError with the faulty part and the nearest name.
    """
    found = WRITTEN.fullmatch(text)
    if found is None:
        return _of_network(text, traced())
    kind, shapes, attributes = found.groups()
    if kind not in REGISTRY:
        raise _error("no operator has this type", text, nearest=nearest(kind, REGISTRY))
    inputs = tuple(_type(part, text) for part in shapes.split(",") if part.strip())
    try:
        op = REGISTRY[kind](**_attributes(kind, attributes or "", text))
        operator = SingleOperator(op, inputs, text)
        _ = operator.outputs
    except RunnerError as error:
        raise _error(error.what, text, **error.rows) from None
    except TypeError as error:
        needs = ", ".join(f"{name}=..." for name in REGISTRY[kind].fields)
        raise _error(str(error), text, hint=f"{kind}({shapes}; {needs})" if needs else None) from None
    return _computing(operator)


def measure_time(work: Callable[[], object]) -> TimingStatistics:
    """Time calls for a second: at least 20 and at most 1000, after five that warm up."""
    for _ in range(WARM_UP):
        work()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < MIN_RUNS or (len(times) < MAX_RUNS and time.perf_counter() < end):
        start = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return TimingStatistics.of(times)


def report(operator: SingleOperator, timings: dict[str, TimingStatistics]) -> dict[str, Any]:
    """The content of the file: the operator, its cost, and the times of each mode in microseconds."""
    work = cost(operator.op, operator.inputs, operator.outputs)
    return {
        "op_trace": operator.name,
        "op_type": operator.op.name,
        "attributes": {name: repr(value) for name, value in operator.op.attributes().items()},
        "inputs": list(map(str, operator.inputs)),
        "outputs": list(map(str, operator.outputs)),
        **work._asdict(),
        "time_us": {
            mode: {
                **{name: round(value, 3) for name, value in timing._asdict().items()},
                "gflops_per_second": round(work.flops / timing.median / 1e3, 3),
            }
            for mode, timing in timings.items()
        },
    }


def lines(operator: SingleOperator, timings: dict[str, TimingStatistics]) -> Iterator[str]:
    """The report for the console."""
    yield f"op_trace: {operator.name}"
    yield f"  {', '.join(map(str, operator.inputs))} -> {', '.join(map(str, operator.outputs))}"
    for mode, timing in timings.items():
        spread = f"{timing.p10:.1f} to {timing.p90:.1f} us in 8 of 10 runs"
        yield f"  {mode:9} {timing.median:10.1f} us  ({spread}, {timing.runs} runs)"


def _of_network(text: str, graph: Graph) -> SingleOperator:
    nodes = {node.name: node for node in (*graph.nodes, *graph.effects)}
    if "/" not in text:
        raise _error("neither a full name nor a type with shapes", text, nearest=nearest(text, REGISTRY))
    check_point(text, "op_trace", list(nodes))
    node = nodes[find_operator(text, nodes) or ""]
    return _computing(SingleOperator(node.op, tuple([x.type for x in node.inputs]), node.name))


def _computing(operator: SingleOperator) -> SingleOperator:
    if isinstance(operator.op, Effect):
        raise _error("this operator computes nothing", operator.name)
    return operator


def _type(part: str, text: str) -> TensorType:
    shape, _, kind = part.strip().partition(":")
    axes = [axis for axis in shape.split("x") if axis]
    if not all(axis.isdecimal() for axis in axes) or (kind or "float32") not in TYPES:
        raise _error("not a type of an operand", text, part=part.strip(), types=", ".join(TYPES))
    return TensorType(TYPES[kind or "float32"], tuple(map(int, axes)))


def _attributes(kind: str, written: str, text: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({written})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError(written)
        given = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        raise _error("attributes are written name=value, with commas", text, part=written.strip()) from None
    known = {field.name for field in dataclasses.fields(REGISTRY[kind])}
    for name in given:
        if name not in known:
            raise _error("no such attribute", text, part=name, allowed=", ".join(sorted(known)) or "none")
    return given


def _error(what: str, text: str, **rows: object) -> ConfigError:
    return ConfigError(what, **{"key": "op_trace", "value": text, "allowed": ALLOWED, **rows})


def _filled(rng: np.random.Generator, kind: TensorType) -> np.ndarray:
    if kind.dtype.is_float:
        return rng.uniform(0.5, 1.5, kind.shape).astype(kind.dtype.numpy)
    return rng.integers(0, 2, kind.shape).astype(kind.dtype.numpy)


# `ai_core_metrics_{d}.json`: the requested hardware metric.
#
# ArithmeticUtilization    operations per second of each operator, relative to the measured peak of the machine
# PipeUtilization          the minimum times for its operations and for its bytes, relative to its measured time
#                          (a roofline of measured peak and bandwidth); `bound` names the longer one
# Memory, MemoryL0,        counters of the processor, for whole steps; those that the kernel does not permit are listed
# ResourceConflictRatio    with the reason and have no values

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

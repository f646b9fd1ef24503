"""`op_trace`: measurement of a single operator instead of a training. `parse_operator` takes it in one of these forms:

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
from runner.observe.profile.record import cost
from runner.observe.profile.steps import check_point, find_operator
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

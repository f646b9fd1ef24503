"""`op_trace`: one operator alone, measured many times: what was asked for, and what came out.

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
from runner.core.effect import Effect
from runner.core.graph import Graph
from runner.core.primitive import REGISTRY, Primitive, infer
from runner.errors import ConfigError, RunnerError, nearest
from runner.observe.profile.cost import cost
from runner.observe.profile.fp_bp_points import check, executed
from runner.types import TensorType

WRITTEN = re.compile(r"\s*(\w+)\s*\(([^;()]*)(?:;(.*))?\)\s*", re.DOTALL)
ALLOWED = "the full name of an operator of the network, or a type with shapes, such as MatMul(32x400,400x120)"
WARM_UP, FEWEST, MOST, SECONDS = 5, 20, 1000, 1.0
TYPES = {kind.numpy.name: kind for kind in dt.ALL}


class Alone(NamedTuple):
    """An operator with the types of its operands."""

    op: Primitive
    inputs: tuple[TensorType, ...]
    name: str

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Types of its results."""
        return infer(self.op, self.inputs)

    def operands(self) -> list[np.ndarray]:
        """Operands, always the same: positive floats around 1, and class numbers 0 and 1."""
        rng = np.random.default_rng(0)
        return [_filled(rng, kind) for kind in self.inputs]


class Timing(NamedTuple):
    """Microseconds of one execution, of many."""

    runs: int
    median: float
    lowest: float
    tenth: float
    ninetieth: float

    @classmethod
    def of(cls, times: Sequence[float]) -> "Timing":
        """The figures of these microseconds."""
        tenths = statistics.quantiles(times, n=10)
        return cls(len(times), statistics.median(times), min(times), tenths[0], tenths[-1])


def wanted(text: str, traced: Callable[[], Graph]) -> Alone:
    """The operator that a text asks for; `traced` gives the graph of the network, for full names.

    Raises ConfigError with the place and the nearest name.
    """
    found = WRITTEN.fullmatch(text)
    if found is None:
        return _of_network(text, traced())
    kind, shapes, attributes = found.groups()
    if kind not in REGISTRY:
        raise _wrong("no operator has this type", text, nearest=nearest(kind, REGISTRY))
    inputs = tuple(_type(part, text) for part in shapes.split(",") if part.strip())
    try:
        op = REGISTRY[kind](**_attributes(kind, attributes or "", text))
        made = Alone(op, inputs, text)
        _ = made.outputs
    except RunnerError as error:
        raise _wrong(error.what, text, **error.rows) from None
    except TypeError as error:
        needs = ", ".join(f"{name}=..." for name in REGISTRY[kind].fields)
        raise _wrong(str(error), text, hint=f"{kind}({shapes}; {needs})" if needs else None) from None
    return _telling_something(made)


def measured(work: Callable[[], object]) -> Timing:
    """Call it until a second has gone by: at least 20, at most 1000 times, after five that warm up."""
    for _ in range(WARM_UP):
        work()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() < end):
        start = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return Timing.of(times)


def report(alone: Alone, timings: dict[str, Timing]) -> dict[str, Any]:
    """What is written: the operator, its cost, and the times of each mode in microseconds."""
    work = cost(alone.op, alone.inputs, alone.outputs)
    return {
        "op_trace": alone.name,
        "op_type": alone.op.name,
        "attributes": {name: repr(value) for name, value in alone.op.attributes().items()},
        "inputs": list(map(str, alone.inputs)),
        "outputs": list(map(str, alone.outputs)),
        "flops": work.flops,
        "bytes": work.bytes,
        "time_us": {
            mode: {
                "runs": timing.runs,
                "median": round(timing.median, 3),
                "min": round(timing.lowest, 3),
                "p10": round(timing.tenth, 3),
                "p90": round(timing.ninetieth, 3),
                "gflops_per_second": round(work.flops / timing.median / 1e3, 3),
            }
            for mode, timing in timings.items()
        },
    }


def lines(alone: Alone, timings: dict[str, Timing]) -> Iterator[str]:
    """The same for the console."""
    yield f"op_trace: {alone.name}"
    yield f"  {', '.join(map(str, alone.inputs))} -> {', '.join(map(str, alone.outputs))}"
    for mode, timing in timings.items():
        spread = f"{timing.tenth:.1f} to {timing.ninetieth:.1f} us in 8 of 10 runs"
        yield f"  {mode:9} {timing.median:10.1f} us  ({spread}, {timing.runs} runs)"


def _of_network(text: str, graph: Graph) -> Alone:
    nodes = {node.name: node for node in (*graph.nodes, *graph.effects)}
    if "/" not in text:
        raise _wrong("neither a full name nor a type with shapes", text, nearest=nearest(text, REGISTRY))
    check(text, "op_trace", list(nodes))
    node = nodes[executed(text, nodes) or ""]
    return _telling_something(Alone(node.op, tuple([x.type for x in node.inputs]), node.name))


def _telling_something(alone: Alone) -> Alone:
    if isinstance(alone.op, Effect):
        raise _wrong("this operator computes nothing", alone.name)
    return alone


def _type(part: str, text: str) -> TensorType:
    shape, _, kind = part.strip().partition(":")
    axes = [axis for axis in shape.split("x") if axis]
    if not all(axis.isdecimal() for axis in axes) or (kind or "float32") not in TYPES:
        raise _wrong("not a type of an operand", text, part=part.strip(), types=", ".join(TYPES))
    return TensorType(TYPES[kind or "float32"], tuple(map(int, axes)))


def _attributes(kind: str, written: str, text: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({written})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError(written)
        given = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise _wrong("attributes are written name=value, with commas", text, part=written.strip()) from None
    known = {field.name for field in dataclasses.fields(REGISTRY[kind])}
    for name in given:
        if name not in known:
            raise _wrong("no such attribute", text, part=name, allowed=", ".join(sorted(known)) or "none")
    return given


def _wrong(what: str, text: str, **rows: object) -> ConfigError:
    return ConfigError(what, **{"key": "op_trace", "value": text, "allowed": ALLOWED, **rows})


def _filled(rng: np.random.Generator, kind: TensorType) -> np.ndarray:
    if kind.dtype.is_float:
        return rng.uniform(0.5, 1.5, kind.shape).astype(kind.dtype.numpy)
    return rng.integers(0, 2, kind.shape).astype(kind.dtype.numpy)

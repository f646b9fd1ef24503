"""PyNative mode with a clock: it computes as ever, and notes when each operator began and ended."""

import time
from typing import NamedTuple

from runner.core.primitive import Primitive
from runner.core.value import Value
from runner.engine.eager import Eager
from runner.types import TensorType


class Timed(NamedTuple):
    """An operator that was computed, from `start` to `stop` (ns of `time.perf_counter_ns`). It holds no data."""

    op: Primitive
    scope: str
    number: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Full name, as of a `Node`."""
        return f"{self.scope}/{self.op.name}-op{self.number}"


class Timing(Eager):
    """`Eager` with `timed`: the operators in the order in which they were computed."""

    def __init__(self) -> None:
        super().__init__()
        self.timed: list[Timed] = []

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, and note when."""
        start = time.perf_counter_ns()
        made = super().apply(op, inputs, types)
        stop = time.perf_counter_ns()
        self.timed.append(Timed(op, self.where(), self.count, tuple([x.type for x in inputs]), types, start, stop))
        return made

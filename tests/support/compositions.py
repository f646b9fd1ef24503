"""What every composed operator promises: the numbers of an oracle in both modes, and their derivatives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from both_modes import MODES, step_of
from contract import FLOAT32, distance

from runner.core.gradients import gradients
from runner.core.values import Parameter, Tensor, Value, syntax
from runner.ops import ReduceSum

Arrays = tuple[np.ndarray, ...]
STEP, SLOPE = 1e-5, 1e-6


@dataclass(frozen=True)
class Composed:
    """A function of tensors, operands, and the same function in numpy, which may be a constant."""

    name: str
    apply: Callable[..., Any]
    arrays: Arrays
    oracle: Callable[..., Any]
    smooth: bool = True

    def __str__(self) -> str:
        return self.name


def as_tuple(made: Any) -> tuple[Any, ...]:
    return tuple(made) if isinstance(made, tuple | list) else (made,)


def wide(arrays: Arrays) -> Arrays:
    return tuple(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)


def check_values(row: Composed) -> None:
    """Both modes compute the oracle's numbers, in the same element types."""
    expected = tuple(map(np.asarray, as_tuple(row.oracle(*wide(row.arrays)))))
    results = [tuple(step_of(row.apply, mode)(*row.arrays)) for mode in MODES]
    assert [a.dtype for a in results[0]] == [a.dtype for a in results[1]]
    for made in results:
        assert len(made) == len(expected)
        for a, b in zip(made, expected, strict=True):
            assert (a.dtype.kind == "f") == (b.dtype.kind == "f"), f"{a.dtype} against {b.dtype}"
            assert distance((a,), (b,)) <= FLOAT32


def check_half(row: Composed) -> None:
    """Float16 operands give nearly the same numbers in both modes, of the same element types."""
    halves = tuple(a.astype(np.float16) if a.dtype.kind == "f" else a for a in row.arrays)
    eager, graph = (tuple(step_of(row.apply, mode)(*halves)) for mode in MODES)
    assert [a.dtype for a in eager] == [a.dtype for a in graph]
    assert distance(tuple(a.astype(np.float32) for a in graph), tuple(a.astype(np.float64) for a in eager)) <= 4e-3


def check_gradients(row: Composed) -> None:
    """Both modes have the gradients of central differences of the oracle in Float64."""
    floats = [k for k, a in enumerate(row.arrays) if a.dtype.kind == "f"]
    rng = np.random.default_rng(5)
    results = as_tuple(row.oracle(*wide(row.arrays)))
    adjoints = [rng.normal(size=np.shape(y)).astype(np.float32) for y in results]

    def slopes(*arrays: Value) -> tuple[Value, ...]:
        values = list(arrays)
        made = as_tuple(row.apply(*values))
        weighed = [ReduceSum()(y * Tensor(u)) for y, u in zip(made, adjoints, strict=True) if y.dtype.is_float]
        loss = weighed[0]
        for other in weighed[1:]:
            loss = syntax.add(loss, other)
        return tuple(gradients(loss, [values[k] for k in floats]))

    found = [step_of(slopes, mode)(*row.arrays) for mode in MODES]
    for place, k in enumerate(floats):
        direction = rng.normal(size=row.arrays[k].shape)
        expected = difference(row, k, direction, adjoints)
        for made in found:
            scale = max(float(np.abs(made[place] * direction).sum()), 1e-2)
            assert abs(float((made[place] * direction).sum()) - expected) <= 3e-5 * scale, f"operand {k}"


def difference(row: Composed, k: int, direction: np.ndarray, adjoints: list[np.ndarray]) -> float:
    """The derivative of the oracle along a direction of operand k."""
    ends = []
    for step in (STEP, -STEP):
        moved = tuple(a + step * direction if i == k else a for i, a in enumerate(wide(row.arrays)))
        results = as_tuple(row.oracle(*moved))
        pairs = [(u, y) for u, y in zip(adjoints, results, strict=True) if np.asarray(y).dtype.kind == "f"]
        ends.append(sum(float((u * y).sum()) for u, y in pairs))
    return (ends[0] - ends[1]) / (2 * STEP)


def parameter_after(op: Any, start: np.ndarray, *operands: np.ndarray, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """The result of an operator that updates a parameter, and the parameter after the step."""
    parameter = Parameter(Tensor(start), "weight")
    (made,) = step_of(lambda *xs: op(parameter, *xs), mode)(*operands)
    return made, parameter.asnumpy()

"""Second derivatives: the gradient of a gradient against central differences of the first one, in Float64."""

import numpy as np
from both_modes import MODES, step_of
from contract import Arrays, H, in_float64
from samples import NO_GRADIENT, NOT_DIFFERENTIABLE, ONCE_DIFFERENTIABLE
from unusual import check_agreement

from runner.core.gradients import gradients
from runner.core.interpreter import Eager
from runner.core.operators import Primitive
from runner.core.values import Parameter, Tensor, Value, syntax
from runner.errors import NotDifferentiable
from runner.ops import ReduceSum

SECOND = 1e-6  # as GRADIENT in contract.py, with a slope whose scale is that of a second derivative


class Point:
    """Where derivatives of an operator are taken: its operands, an adjoint for each result, and directions."""

    def __init__(self, op: Primitive, arrays: Arrays) -> None:
        rng = np.random.default_rng(2)
        with Eager():
            made = op(*map(Tensor, arrays))
        results = made if isinstance(made, tuple) else (made,)
        self.op, self.count = op, len(arrays)
        self.results = [k for k, y in enumerate(results) if y.dtype.is_float and k not in op.without_gradient]
        adjoints = [rng.normal(size=results[k].shape).astype(results[k].dtype.numpy) for k in self.results]
        self.at = [*arrays, *adjoints]
        still = NO_GRADIENT.get(op.name, ())
        self.first, self.second = ([self._direction(rng, k, k in still) for k in range(len(self.at))] for _ in range(2))

    def _direction(self, rng: np.random.Generator, k: int, is_still: bool) -> np.ndarray:
        direction = np.asarray(rng.normal(size=self.at[k].shape) * (not is_still))
        return direction.astype(self.at[k].dtype) if self.is_float(k) else np.zeros_like(self.at[k])

    def is_float(self, k: int) -> bool:
        return self.at[k].dtype.kind == "f"

    def slope(self, values: list[Tensor]) -> Value:
        """The derivative of the results, weighed with their adjoints, along the first direction of the operands."""
        made = self.op(*values[: self.count])
        results = made if isinstance(made, tuple) else (made,)
        loss = along([results[k] for k in self.results], values[self.count :])
        operands = [k for k in range(self.count) if self.is_float(k)]
        return along(gradients(loss, [values[k] for k in operands]), [Tensor(self.first[k]) for k in operands])

    def slope_at(self, step: float) -> float:
        """The slope after a step in the second direction."""
        with Eager():
            moved = [Tensor(a + a.dtype.type(step) * d) for a, d in zip(self.at, self.second, strict=True)]
            values = [Parameter(x) if self.is_float(k) else x for k, x in enumerate(moved)]
            return float(self.slope(values))

    def gradients(self, one: Value) -> tuple[Value, ...]:
        """The derivative of the slope by each operand and adjoint of floats; `one` is a factor."""
        values = [Parameter(a, name=f"x{k}") if self.is_float(k) else Tensor(a) for k, a in enumerate(self.at)]
        floats = [x for k, x in enumerate(values) if self.is_float(k)]
        return tuple(gradients(syntax.mul(self.slope(values), one), floats))


def along(values: list[Value], directions: list[Tensor]) -> Value:
    """The scalar product of values and directions."""
    products = [ReduceSum()(syntax.mul(x, d)) for x, d in zip(values, directions, strict=True)]
    total = products[0]
    for product in products[1:]:
        total = syntax.add(total, product)
    return total


def check_second_order(op: Primitive, arrays: Arrays) -> None:
    """The second derivative by operands and adjoints is right; without one, NotDifferentiable is raised."""
    once = {op, op.name} & (NOT_DIFFERENTIABLE | ONCE_DIFFERENTIABLE)
    point = Point(*in_float64(op, arrays))
    if not point.results:  # comparisons, positions
        return
    try:
        with Eager():
            found = point.gradients(Tensor(np.ones(())))
    except NotDifferentiable:
        assert once, f"{op} has no second derivative"
        return
    assert not once, f"{op} has a second derivative after all: strike it from the list"
    directions = [d for k, d in enumerate(point.second) if point.is_float(k)]
    terms = [g.asnumpy() * d for g, d in zip(found, directions, strict=True)]
    scale = max(sum(float(np.abs(t).sum()) for t in terms), 1e-3)
    slope, expected = sum(float(t.sum()) for t in terms), (point.slope_at(H) - point.slope_at(-H)) / (2 * H)
    assert abs(slope - expected) <= SECOND * scale, f"{slope} is not {expected}"


def check_second_order_modes(op: Primitive, arrays: Arrays) -> None:
    """Both modes have the same second derivative, or raise NotDifferentiable."""
    point = Point(op, arrays)
    if not point.results:
        return
    made: list[Arrays] = []
    for mode in MODES:
        try:
            made.append(tuple(step_of(point.gradients, mode)(np.ones((), np.float32))))
        except NotDifferentiable:
            made.append(())
    assert len(made[0]) == len(made[1])
    check_agreement(made[1], made[0], (*(a for a in point.at if a.dtype.kind == "f"), *made[0]), "zero")

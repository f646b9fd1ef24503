"""Second derivatives: the gradient of a gradient against central differences of the first one, in Float64."""

import numpy as np
from contract import Arrays, H, in_float64
from samples import NO_GRADIENT, NOT_DIFFERENTIABLE, ONCE_DIFFERENTIABLE

from runner.core.autodiff import gradients
from runner.core.eager import Eager
from runner.core.primitive import Primitive
from runner.core.value import OPERATORS, Parameter, Tensor, Value
from runner.errors import NotDifferentiable
from runner.ops import ReduceSum

SECOND = 1e-6  # as GRADIENT in contract.py, with a slope whose scale is that of a second derivative


def check_second_order(op: Primitive, arrays: Arrays) -> None:
    """The second derivative by operands and adjoints is right; without one, NotDifferentiable is raised."""
    once = {op, op.name} & (NOT_DIFFERENTIABLE | ONCE_DIFFERENTIABLE)
    rng = np.random.default_rng(2)
    op, arrays = in_float64(op, arrays)
    with Eager():
        made = op(*map(Tensor, arrays))
    shapes = [y.shape if y.dtype.is_float else None for y in (made if isinstance(made, tuple) else (made,))]
    adjoints = [
        rng.normal(size=shape) for k, shape in enumerate(shapes) if shape is not None and k not in op.without_gradient
    ]
    # Where the derivative is taken, and the directions of the first one (of the operands alone) and of the second one.
    at = [*arrays, *adjoints]
    still = NO_GRADIENT.get(op.name, ())
    first, second = ([rng.normal(size=a.shape) * (k not in still) for k, a in enumerate(at)] for _ in range(2))
    try:
        found = _slope(op, at, len(arrays), first, second)
    except NotDifferentiable:
        assert once, f"{op} has no second derivative"
        return
    assert not once, f"{op} has a second derivative after all: strike it from the list"
    ends = [
        _slope(op, [_moved(a, h * d) for a, d in zip(at, second, strict=True)], len(arrays), first) for h in (H, -H)
    ]
    expected = (ends[0][0] - ends[1][0]) / (2 * H)
    assert abs(found[0] - expected) <= SECOND * found[1], f"{found[0]} is not {expected}"


def _moved(a: np.ndarray, by: np.ndarray) -> np.ndarray:
    return a + by if a.dtype.kind == "f" else a


def _slope(
    op: Primitive, at: list[np.ndarray], count: int, first: list[np.ndarray], second: list[np.ndarray] | None = None
) -> tuple[float, float]:
    """The derivative of `op`, weighed with the adjoints, along `first`; or that of this one along `second`.

    Also the sum of the absolute terms.
    """
    with Eager():
        floats = [k for k, a in enumerate(at) if a.dtype.kind == "f"]
        values: list[Tensor] = [Parameter(a) if k in floats else Tensor(a) for k, a in enumerate(at)]
        made = op(*values[:count])
        outputs = [y for y in (made if isinstance(made, tuple) else (made,)) if y.dtype.is_float]
        outputs = [y for k, y in enumerate(outputs) if k not in op.without_gradient]
        loss = _along(outputs, values[count:])
        of_operands = [k for k in floats if k < count]
        slopes = gradients(loss, [values[k] for k in of_operands])
        slope = _along(slopes, [Tensor(first[k]) for k in of_operands])
        if second is None:
            return float(slope), 0.0
        terms = [
            (g.data * second[k]) for k, g in zip(floats, gradients(slope, [values[k] for k in floats]), strict=True)
        ]
    return sum(float(t.sum()) for t in terms), max(sum(float(np.abs(t).sum()) for t in terms), 1e-3)


def _along(values: list[Value], directions: list[Tensor]) -> Value:
    """The scalar product of values and directions."""
    total: Value = Tensor(np.zeros((), np.float64))
    for value, direction in zip(values, directions, strict=True):
        total = OPERATORS["Add"](total, ReduceSum()(OPERATORS["Mul"](value, direction)))
    return total

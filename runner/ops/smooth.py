"""Bases of elementwise functions whose gradient is the adjoint times a derivative that is written in operators."""

from collections.abc import Callable, Sequence

from runner.core.operators import Gradient
from runner.core.values import Operand, Tensor, Value
from runner.ops.compare import Select
from runner.ops.elementwise import Binary, Unary
from runner.ops.reduce import unbroadcast

__all__: list[str] = []

Slope = Callable[[], Operand]


class Smooth(Unary):
    """Base: a function of one operand; `slope` is its derivative."""

    def slope(self, x: Value, y: Value) -> Value:
        """The derivative at the operand x, whose result is y."""
        raise NotImplementedError

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * self.slope(inputs[0], outputs[0]),)


class SmoothBinary(Binary):
    """Base: a function of two operands that are broadcast; `slopes` are its partial derivatives."""

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        """Functions that compute the derivatives with respect to x and y; `out` is the result."""
        raise NotImplementedError

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, y), dout = inputs, douts[0]
        by_x, by_y = self.slopes(x, y, outputs[0])
        return lambda: unbroadcast(dout * by_x(), x), lambda: unbroadcast(dout * by_y(), y)


def without_zeros(y: Value) -> Value:
    """The value with 1 in place of 0, a divisor whose quotient has a derivative where it is not selected."""
    result: Value = Select()(y != 0.0, y, Tensor(1.0, y.dtype))
    return result

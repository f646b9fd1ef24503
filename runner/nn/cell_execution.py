"""How a cell with a precision or a hook of its own computes: `to_float`, `register_backward_hook`."""

from collections.abc import Callable
from typing import Any

from runner import dtype as dt
from runner.core.eager import Eager
from runner.core.operators import current
from runner.core.precision import OF_CELL
from runner.core.values import Value
from runner.errors import ConfigError
from runner.ops.gradient import InsertGradientOf

Construct = Callable[..., Any]


def in_precision(dtype: dt.DType, construct: Construct) -> Construct:
    """`construct` with its inputs and the parameters that it uses cast to Float16 or Float32."""

    def cast(given: Any) -> Any:
        if isinstance(given, tuple | list):
            return type(given)([cast(each) for each in given])
        is_cast = isinstance(given, Value) and given.dtype.is_float and given.dtype is not dtype
        return current().with_dtype(current().lift(given), dtype) if is_cast else given

    def computed(*inputs: Any, **options: Any) -> Any:
        inputs = tuple(map(cast, inputs))
        with current().use_precision(OF_CELL[dtype]):
            return construct(*inputs, **options)

    return computed


class BackwardHook:
    """Calls `function(cell_id, grad_input, grad_output)` when gradients have passed through a cell, in PyNative mode.

    `grad_input` has the gradients of the cell's outputs, `grad_output` that of its input. The function may return
    another gradient of the input; None keeps it. Raises ConfigError in graph mode, where no Python runs in a step.
    """

    def __init__(self, cell_id: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError("a hook is a function", given=type(function).__name__, cell=cell_id)
        self.cell_id, self.function = cell_id, function

    def around(self, construct: Construct) -> Construct:
        """`construct` whose gradients the hook receives."""

        def computed(*inputs: Any, **options: Any) -> Any:
            if not isinstance(current(), Eager):
                repair = "context.set_context(mode=context.PYNATIVE_MODE)"
                raise ConfigError("graph mode does not support hooks", cell=self.cell_id, repair=repair)
            passed: list[Value] = []
            watched = [_with_gradient(x, lambda dx: self._called(passed, dx)) for x in inputs]
            outputs = construct(*watched, **options)

            def remember(dout: Value) -> Value:
                passed.append(dout)
                return dout

            if isinstance(outputs, tuple | list):
                return type(outputs)([_with_gradient(y, remember) for y in outputs])
            return _with_gradient(outputs, remember)

        return computed

    def _called(self, passed: list[Value], gradient: Value) -> Value:
        other = self.function(self.cell_id, tuple(passed), (gradient,))
        other = other[0] if isinstance(other, tuple | list) and len(other) == 1 else other
        return other if isinstance(other, Value) else gradient


def _with_gradient(x: Any, function: Callable[[Value], Value]) -> Any:
    return InsertGradientOf(function)(x) if isinstance(x, Value) and x.dtype.is_float else x

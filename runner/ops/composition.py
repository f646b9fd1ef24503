"""Operands of composed operators: as values, and what composed operators require of them."""

from typing import Any

from runner.core.values import Parameter, Value, as_constant, require_writable
from runner.ops.array import require


def as_value(operand: Any) -> Value:
    """A tensor of a number, an array or a list; values unchanged."""
    return operand if isinstance(operand, Value) else as_constant(operand, None)


def as_tensors(operands: tuple[Any, ...]) -> list[Value]:
    """Operands that are given one by one, or as one tuple or list, as in the reference. Raises ShapeError for none."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    require(len(given) > 0, "needs at least one tensor")
    return [as_value(operand) for operand in given]


def require_floats(**values: Value) -> None:
    """Raise ShapeError unless all values are floats of one element type."""
    dtypes = {value.dtype for value in values.values()}
    types = {name: value.type for name, value in values.items()}
    require(len(dtypes) == 1 and dtypes.pop().is_float, "needs floats of one element type", **types)


def as_written(parameter: Parameter, value: Any) -> Value:
    """A value in the element type of the parameter that it changes. Raises ShapeError when it is not converted."""
    given = value if isinstance(value, Value) else as_constant(value, parameter)
    require_writable(parameter.name, parameter.type, given.type)
    return given.astype(parameter.dtype, copy=False)


def require_parameter(operand: Any) -> Parameter:
    """The parameter that an operator updates. Raises ShapeError for other operands."""
    given = getattr(operand, "type", type(operand).__name__)
    require(isinstance(operand, Parameter), "the first operand must be a Parameter, which it updates", given=given)
    assert isinstance(operand, Parameter)
    return operand

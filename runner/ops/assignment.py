"""Assignments of parameters, and the order of what a step does.

Operators run in the order of the program, so a read after an assignment sees the new value
(`runner/core/assignments.py`). `depend` is for scripts that state this order themselves.
"""

from typing import Any

import numpy as np

from runner.core.operators import current
from runner.core.values import Operand, Parameter, Value, require_writable
from runner.errors import ConfigError, ShapeError
from runner.ops.array import Cast
from runner.ops.gradient import StopGradient

__all__ = ["Assign", "AssignAdd", "AssignSub", "ControlDepend", "Depend", "assign", "control_depend", "depend"]


class Assign:
    """(variable, value) to the new value of the variable, a Parameter, which the call assigns: the value itself.

    The value is a tensor of the variable's shape, or a number; its element type is converted to that of the variable.
    No gradient passes through an assignment. Raises ConfigError when the variable is no Parameter, ShapeError for a
    value of another shape, or of an element type that is not converted, such as Float32 for Float16.
    """

    def __call__(self, variable: Parameter, value: Operand) -> Value:
        if not isinstance(variable, Parameter):
            repair = "pass the Parameter itself, such as self.weight"
            what = f"{type(self).__name__} takes a Parameter and its value"
            raise ConfigError(what, given=type(variable).__name__, repair=repair)
        with current().use_precision(None):
            new: Value = StopGradient()(self.new_value(variable, _like(variable, value)))
        if new.shape != variable.shape:
            rows = {"parameter": variable.name, "has": variable.type, "given": getattr(value, "type", value)}
            raise ShapeError(f"{type(self).__name__} keeps the shape of the parameter", **rows)
        current().assign(variable, new)
        return new

    def new_value(self, variable: Value, value: Operand) -> Operand:
        """The value that is assigned."""
        return value


class AssignAdd(Assign):
    """As `Assign`: variable + value."""

    def new_value(self, variable: Value, value: Operand) -> Operand:
        """The sum."""
        return variable + value


class AssignSub(Assign):
    """As `Assign`: variable - value."""

    def new_value(self, variable: Value, value: Operand) -> Operand:
        """The difference."""
        return variable - value


def _like(variable: Parameter, value: Operand) -> Any:
    """The value in the type of the variable, a number in its shape too."""
    if isinstance(value, Value):
        require_writable(variable.name, variable.type, value.type)
        return value if value.dtype is variable.dtype else Cast(variable.dtype)(value)
    array = np.asarray(value, variable.dtype.numpy)
    return array if array.shape else np.full(variable.shape, array)


def assign(variable: Parameter, value: Operand) -> Value:
    """Assign a parameter, and return its new value."""
    return Assign()(variable, value)


class Depend:
    """(value, expr) to the value. What `expr` has computed or assigned was done before: Python evaluates it first."""

    def __call__(self, value: Any, *expr: Any) -> Any:
        return value


class ControlDepend:
    """(src, dst) to True: `src` was executed before `dst`, because the program has them in this order."""

    def __init__(self, depend_mode: int = 0) -> None:
        self.depend_mode = depend_mode

    def __call__(self, src: Any, dst: Any) -> bool:
        return True


depend = Depend()
control_depend = ControlDepend()

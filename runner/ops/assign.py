"""Operators that assign parameters, and the order of what a step does.

Operators run in the order of the program, so a read after an assignment sees the new value
(`runner/core/assignments.py`). `depend` is for scripts that state this order themselves.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.precision import Needs
from runner.core.primitive import Primitive, current, primitive
from runner.core.value import Operand, Parameter, Value
from runner.errors import ConfigError
from runner.ops.array import Cast, require
from runner.types import TensorType

__all__ = ["Assign", "AssignAdd", "AssignSub", "ControlDepend", "Depend", "assign", "control_depend", "depend"]


class Assignment(Primitive):
    """Base: (variable, value) to the new value of the variable, a Parameter, which the call assigns.

    The value is a tensor that broadcasts to the shape of the variable, or a number; it is cast to the type of the
    variable. No gradient passes through an assignment. Raises ConfigError when the variable is no Parameter.
    """

    is_flat: ClassVar = True
    needs: ClassVar = Needs.MASTER

    def infer(self, variable: TensorType, value: TensorType) -> TensorType:
        """The type of the variable."""
        require(value.shape == variable.shape, "the value must have the variable's shape", variable=variable, value=value)
        return variable

    def __call__(self, *operands: Any) -> Any:
        if len(operands) != 2 or not isinstance(operands[0], Parameter):
            given = ", ".join(type(x).__name__ for x in operands)
            repair = "pass the Parameter itself, such as self.weight"
            raise ConfigError(f"{self.name} takes a Parameter and its value", given=given or "nothing", repair=repair)
        variable, value = operands
        with current().use_precision(None):
            new: Value = super().__call__(variable, _like(variable, value))
        current().assign(variable, new)
        return new


def _like(variable: Parameter, value: Operand) -> Operand:
    """The value in the type of the variable, a number in its shape too."""
    if not isinstance(value, Value | np.ndarray | np.generic):
        return np.full(variable.shape, value, variable.dtype.numpy)
    if isinstance(value, Value) and value.dtype is not variable.dtype:
        return Cast(variable.dtype)(value)
    return value if isinstance(value, Value) else np.asarray(value, variable.dtype.numpy)


@primitive
class Assign(Assignment):
    """variable = value."""

    computes: ClassVar = False

    def kernel(self, variable: np.ndarray, value: np.ndarray) -> np.ndarray:
        return value

    def lower(self, b: Builder, variable: str, value: str) -> str:
        return b.node("Identity", (value,))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Always the value."""
        return 1


@primitive
class AssignAdd(Assignment):
    """variable = variable + value."""

    onnx: ClassVar = "Add"

    def kernel(self, variable: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.add(variable, value)

    def lower(self, b: Builder, variable: str, value: str) -> str:
        return b.node(self.onnx, (variable, value))


@primitive
class AssignSub(Assignment):
    """variable = variable - value."""

    onnx: ClassVar = "Sub"

    def kernel(self, variable: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.subtract(variable, value)

    def lower(self, b: Builder, variable: str, value: str) -> str:
        return b.node(self.onnx, (variable, value))


def assign(variable: Parameter, value: Operand) -> Value:
    """Assign a parameter, and return its new value."""
    new: Value = Assign()(variable, value)
    return new


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

"""The operators behind Python's syntax for values, and behind numpy's functions of them: what fills `syntax`.

Operators that few networks need are loaded when a value first needs them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runner.core.interpreter import is_nested
from runner.core.values import Tensor, Value, syntax
from runner.errors import ConfigError
from runner.ops.array import Cast, Identity
from runner.ops.elementwise.arithmetic import Add, Mul, Neg, Pow, RealDiv, Sub
from runner.ops.elementwise.compare import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    NotEqual,
    Select,
)
from runner.ops.indexing.slices import assign, assigned, located, subscript
from runner.ops.matrices import matmul

# numpy's names of the operators that Python's syntax has: `array * tensor` calls numpy first.
ARITHMETIC = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "real_div",
    "floor_divide": "floor_div",
    "remainder": "floor_mod",
    "power": "pow",
    "matmul": "matmul",
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "less",
    "less_equal": "less_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
}


def numpy_function(function: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
    """What numpy's functions give for tensors: operators for arithmetic, arrays otherwise.

    Raises ConfigError inside of a network: an array would have no gradient, and a graph has no arrays.
    """
    if method == "__call__" and not settings and function.__name__ in ARITHMETIC:
        return getattr(syntax, ARITHMETIC[function.__name__])(*operands)
    return getattr(function, method)(*_arrays(operands, function), **settings)


def numpy_reduction(function: Callable[..., Any], operands: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    """As `numpy_function`, for functions that are no ufuncs: `numpy.mean(x)`, `numpy.stack([x, y])`."""
    return function(*_arrays(operands, function), **_arrays(settings, function))


def _arrays(given: Any, function: Any) -> Any:
    """Tensors as arrays, also those in lists, tuples and dictionaries."""
    if isinstance(given, list | tuple):
        return type(given)([_arrays(each, function) for each in given])
    if isinstance(given, Mapping):
        return {key: _arrays(each, function) for key, each in given.items()}
    if not isinstance(given, Value):
        return given
    if is_nested() or not isinstance(given, Tensor):
        name = f"numpy.{function.__name__}"
        repair = "the operator of runner.ops; .asnumpy() for a value that needs no gradient, with mode=pynative"
        raise located(ConfigError("numpy's functions are not part of a network", function=name, repair=repair), given)
    return given.asnumpy()


def fill(operator: Callable[[str], Any]) -> None:
    """Fill `syntax`; `operator` gives the class of a name."""
    syntax.operator = operator
    syntax.add, syntax.sub, syntax.mul, syntax.real_div, syntax.pow = Add(), Sub(), Mul(), RealDiv(), Pow()
    syntax.neg, syntax.matmul, syntax.cast, syntax.identity = Neg(), matmul, Cast(), Identity()
    syntax.select = Select()
    syntax.equal, syntax.not_equal, syntax.less = Equal(), NotEqual(), Less()
    syntax.less_equal, syntax.greater, syntax.greater_equal = LessEqual(), Greater(), GreaterEqual()
    syntax.floor_div = lambda x, y: operator("FloorDiv")()(x, y)
    syntax.floor_mod = lambda x, y: operator("FloorMod")()(x, y)
    syntax.logical_not = lambda x: operator("LogicalNot")()(x)
    syntax.subscript, syntax.assign, syntax.assigned = subscript, assign, assigned
    syntax.numpy_function, syntax.numpy_reduction = numpy_function, numpy_reduction

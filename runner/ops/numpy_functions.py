"""numpy's functions of values: operators for arithmetic; arrays otherwise, outside of networks."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runner.core.operators import is_nested
from runner.core.values import OPERATORS, Tensor, Value
from runner.errors import ConfigError
from runner.ops.indexing.slices import located

# numpy's names of the operators that Python's syntax has: `array * tensor` calls numpy first.
ARITHMETIC = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "RealDiv",
    "floor_divide": "FloorDiv",
    "remainder": "FloorMod",
    "power": "Pow",
    "matmul": "MatMul",
    "equal": "Equal",
    "not_equal": "NotEqual",
    "less": "Less",
    "less_equal": "LessEqual",
    "greater": "Greater",
    "greater_equal": "GreaterEqual",
}


def numpy_function(function: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
    """What numpy's functions give for tensors: operators for arithmetic, arrays otherwise.

    Raises ConfigError inside of a network: an array would have no gradient, and a graph has no arrays.
    """
    if method == "__call__" and not settings and function.__name__ in ARITHMETIC:
        return OPERATORS[ARITHMETIC[function.__name__]](*operands)
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


OPERATORS["numpy"], OPERATORS["numpy reduction"] = numpy_function, numpy_reduction

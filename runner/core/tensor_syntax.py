"""Python's syntax for values: `x + y`, `x < y`, `x[0]`, `x[0] = y`, loops, and numpy's functions of them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from runner.core.tensor_methods import TensorMethods, V


def _comparison(name: str) -> Callable[[Any, object], Any]:
    """A method that compares each element (Bool); NotImplemented for what is no operand, such as None.

    Python calls that of a Parameter first, also in `tensor < parameter`, because its class is derived from the other's.
    It leaves the comparison to the other operand, so that both modes apply the same operator to the same operands.
    """

    def method(self: Any, other: object) -> Any:
        is_operand = isinstance(other, TensorMethods | np.ndarray | np.generic | bool | int | float)
        is_left_to_other = isinstance(other, TensorMethods) and self.is_derived and not other.is_derived
        return self._apply(name, self, other) if is_operand and not is_left_to_other else NotImplemented

    return method


class TensorSyntax(TensorMethods[V]):
    """Base of values: each method applies the operator that Python's syntax stands for."""

    __slots__ = ()

    def __add__(self, other: Any) -> V:
        return self._apply("Add", self, other)

    def __radd__(self, other: Any) -> V:
        return self._apply("Add", other, self)

    def __sub__(self, other: Any) -> V:
        return self._apply("Sub", self, other)

    def __rsub__(self, other: Any) -> V:
        return self._apply("Sub", other, self)

    def __mul__(self, other: Any) -> V:
        return self._apply("Mul", self, other)

    def __rmul__(self, other: Any) -> V:
        return self._apply("Mul", other, self)

    def __truediv__(self, other: Any) -> V:
        return self._apply("RealDiv", self, other)

    def __rtruediv__(self, other: Any) -> V:
        return self._apply("RealDiv", other, self)

    def __floordiv__(self, other: Any) -> V:
        return self._apply("FloorDiv", self, other)

    def __rfloordiv__(self, other: Any) -> V:
        return self._apply("FloorDiv", other, self)

    def __mod__(self, other: Any) -> V:
        return self._apply("FloorMod", self, other)

    def __rmod__(self, other: Any) -> V:
        return self._apply("FloorMod", other, self)

    def __pow__(self, other: Any) -> V:
        return self._apply("Pow", self, other)

    def __rpow__(self, other: Any) -> V:
        return self._apply("Pow", other, self)

    def __matmul__(self, other: Any) -> V:
        return self._apply("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> V:
        return self._apply("MatMul", other, self)

    def __neg__(self) -> V:
        return self._apply("Neg", self)

    def __pos__(self) -> V:
        return self._itself()

    def __abs__(self) -> V:
        return self.abs()

    def __invert__(self) -> V:
        return self._apply("LogicalNot", self)

    def __getitem__(self, key: object) -> V:
        return self._apply("Subscript", self, key)

    def __setitem__(self, key: object, value: object) -> None:
        self._apply("assign", self, key, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a value without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[V]:
        return iter([self[k] for k in range(len(self))])

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        return self._apply("numpy", function, method, *operands, **settings)

    def __array_function__(self, function: Any, types: Any, operands: Any, settings: Any) -> Any:
        return self._apply("numpy reduction", function, operands, settings)

    __hash__ = object.__hash__  # values are keys by identity, although `==` compares elements

    __eq__ = _comparison("Equal")
    __ne__ = _comparison("NotEqual")
    __lt__ = _comparison("Less")
    __le__ = _comparison("LessEqual")
    __gt__ = _comparison("Greater")
    __ge__ = _comparison("GreaterEqual")

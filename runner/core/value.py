"""Values: a `Tensor` has data, a `Symbol` is a value of a graph, a `Parameter` is a named tensor of a cell.

Operators accept any of them. `x + y`, `x < y` and `x[0]` use `OPERATORS`, which `runner.ops` fills.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError, ShapeError
from runner.types import Shape, TensorType

Scalar = bool | int | float
Operand: TypeAlias = "Value | np.ndarray | Scalar"
OPERATORS: dict[str, Callable[..., Any]] = {}


Method = Callable[["Value", Operand], "Value"]


def _binary(name: str) -> tuple[Method, Method]:
    """The methods of an operator of two operands, for the first and for the second of them."""

    def method(self: "Value", other: Operand) -> "Value":
        result: Value = OPERATORS[name](self, other)
        return result

    def reflected(self: "Value", other: Operand) -> "Value":
        result: Value = OPERATORS[name](other, self)
        return result

    return method, reflected


def _comparison(name: str) -> Callable[[Any, object], Any]:
    """A method that compares each element (Bool); NotImplemented for what is no operand, such as None."""

    def method(self: Any, other: object) -> Any:
        is_operand = isinstance(other, Value | np.ndarray | np.generic | Scalar)
        return OPERATORS[name](self, other) if is_operand else NotImplemented

    return method


class Value:
    """Base of operands and outputs of operators; it has a `TensorType`."""

    __slots__ = ("type",)
    type: TensorType

    @property
    def shape(self) -> Shape:
        """Length of each axis."""
        return self.type.shape

    @property
    def dtype(self) -> dt.DType:
        """Element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.type.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    def astype(self, dtype: dt.DType) -> "Value":
        """The value cast to another element type."""
        return _apply("Cast", self, dtype)

    __add__, __radd__ = _binary("Add")
    __sub__, __rsub__ = _binary("Sub")
    __mul__, __rmul__ = _binary("Mul")
    __truediv__, __rtruediv__ = _binary("RealDiv")
    __pow__ = _binary("Pow")[0]
    __matmul__ = _binary("MatMul")[0]

    def __neg__(self) -> "Value":
        return _apply("Neg", self)

    def __getitem__(self, key: object) -> "Value":
        return _apply("Subscript", self, key)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a value without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator["Value"]:
        return iter([self[k] for k in range(len(self))])

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        return OPERATORS["numpy"](function, method, *operands, **settings)

    __hash__ = object.__hash__  # values are keys by identity, although `==` compares elements

    __eq__ = _comparison("Equal")
    __ne__ = _comparison("NotEqual")
    __lt__ = _comparison("Less")
    __le__ = _comparison("LessEqual")
    __gt__ = _comparison("Greater")
    __ge__ = _comparison("GreaterEqual")


class Symbol(Value):
    """A value of a graph: a type and a name, without data."""

    __slots__ = ("name",)

    def __init__(self, type: TensorType, name: str) -> None:
        self.type, self.name = type, name

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"

    def __bool__(self) -> bool:
        """The outcome of a branch in the trace that is being made. Raises as `Tracer.decide`."""
        outcome: bool = OPERATORS["decide"](self)
        return outcome

    def asnumpy(self) -> np.ndarray:
        """The elements, where they do not depend on data. Raises ConfigError for others."""
        elements: np.ndarray = OPERATORS["elements"](self)
        return elements

    def __float__(self) -> float:
        return float(self.asnumpy())

    def __int__(self) -> int:
        return int(self.asnumpy())


class Tensor(Value):
    """An array with an element type of `runner.dtype`.

    Takes an array, a number, nested lists, or another tensor; Python floats become Float32, Python ints Int32.
    """

    __slots__ = ("_data",)

    def __init__(self, input_data: Any, dtype: dt.DType | None = None) -> None:
        array = input_data.asnumpy() if isinstance(input_data, Tensor) else np.asarray(input_data)
        if dtype is None and not isinstance(input_data, Tensor | np.ndarray | np.generic):
            dtype = {"f": dt.float32, "i": dt.int32}.get(array.dtype.kind)
        data = array.astype(dtype.numpy) if dtype else array
        if dtype and array.dtype.kind in "iu" and data.dtype.kind in "iu" and not np.array_equal(array, data):
            raise ConfigError("a number does not fit its element type", value=input_data, dtype=dtype)
        self.type, self._data = TensorType.of(data), data

    @classmethod
    def of(cls, array: np.ndarray, type: TensorType) -> "Tensor":
        """Wrap an array whose type is already known, without a copy or a check."""
        tensor = object.__new__(Tensor)
        tensor.type, tensor._data = type, array
        return tensor

    @property
    def data(self) -> np.ndarray:
        """The elements."""
        return self._data

    def asnumpy(self) -> np.ndarray:
        """The elements as an array."""
        return self.data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.data, dtype=dtype, copy=copy) if copy else np.asarray(self.data, dtype=dtype)

    def __float__(self) -> float:
        return float(self.data)

    def __int__(self) -> int:
        return int(self.data)

    def __bool__(self) -> bool:
        return bool(self.data)

    def __repr__(self) -> str:
        elements = np.array2string(self.data, separator=", ")
        return f"Tensor(shape={list(self.shape)}, dtype={self.dtype}, value=\n{elements})"


class Parameter(Tensor):
    """A named tensor of a cell; optimizers update it when `requires_grad` is true.

    After a graph has run, the new value stays on the device; reading `data` fetches it.
    """

    __slots__ = ("_fetch", "name", "requires_grad", "resident")
    _data: np.ndarray | None  # type: ignore[assignment]

    def __init__(self, default_input: Any, name: str = "", requires_grad: bool = True) -> None:
        super().__init__(default_input)
        self._data = np.array(self._data)
        self._fetch: Callable[[Any], np.ndarray] | None = None
        self.resident: Any = None  # the value on the device, or None when only the host has it
        self.name, self.requires_grad = name, requires_grad

    @property
    def data(self) -> np.ndarray:
        """The elements, fetched from the device if they are newer there."""
        if self._data is None:
            assert self._fetch is not None
            self._data = self._fetch(self.resident)
        return self._data

    def set_resident(self, resident: Any, fetch: Callable[[Any], np.ndarray]) -> None:
        """Set a value that is on the device; `fetch` copies it to the host when `data` is read."""
        self.resident, self._fetch, self._data = resident, fetch, None

    def snapshot(self) -> Callable[[], None]:
        """A function that restores the current value. Nothing is copied: values are never changed in place."""
        saved = self._data, self._fetch, self.resident

        def restore() -> None:
            self._data, self._fetch, self.resident = saved

        return restore

    def set_data(self, data: Any) -> None:
        """Replace the value. Raises ShapeError when shape or element type differs."""
        array = data.data if isinstance(data, Tensor) else np.array(data)
        if TensorType.of(array) != self.type:
            raise ShapeError(
                "a parameter keeps its type", parameter=self.name, has=self.type, given=TensorType.of(array)
            )
        self._data, self.resident = array, None

    def __repr__(self) -> str:
        return f"Parameter (name={self.name}, {self.type}, requires_grad={self.requires_grad})"


def as_values(operands: tuple[Operand, ...]) -> tuple[Value, ...]:
    """Operands as values; a Python number takes the element type of the first tensor among the operands."""
    for operand in operands:
        if not isinstance(operand, Value):
            break
    else:
        return operands  # type: ignore[return-value]
    like = next((x for x in operands if isinstance(x, Value)), None)
    return tuple([x if isinstance(x, Value) else as_constant(x, like) for x in operands])


def as_constant(value: Operand, like: Value | None) -> Tensor:
    """A tensor of a number or an array; a number takes the element type of `like` if that can represent it."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, list | tuple) and any(isinstance(element, Value) for element in value):
        what, repair = "an operator takes tensors, not a list or tuple of them", "unpack it, or use ops.Stack"
        raise ShapeError(what, given=", ".join(str(getattr(x, "type", x)) for x in value), repair=repair)
    if like is None or not isinstance(value, int | float) or not _holds(like.dtype, value):
        return Tensor(value)
    return Tensor(np.asarray(value, like.dtype.numpy))


def _holds(dtype: dt.DType, number: Scalar) -> bool:
    if dtype.is_float or isinstance(number, bool):
        return True
    if dtype.numpy.kind == "b" or isinstance(number, float):
        return False
    limits = np.iinfo(dtype.numpy)
    return int(limits.min) <= number <= int(limits.max)


def _apply(name: str, *operands: Any) -> Value:
    result: Value = OPERATORS[name](*operands)
    return result

"""Values: a `Tensor` has data, a `Symbol` is a value of a graph, a `Parameter` is a named tensor of a cell.

Operators accept any of them. `x + y`, `x < y` and `x[0]` use `OPERATORS`, which `runner.ops` fills.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from runner import dtype as dt
from runner.core.conversion import require_writable
from runner.core.parameter_settings import ParameterSettings
from runner.core.tensor_syntax import TensorSyntax
from runner.core.tensor_text import elements_text
from runner.errors import ConfigError, ShapeError
from runner.types import Shape, TensorType
from runner.validation.arguments import flag

Scalar = bool | int | float
Operand: TypeAlias = "Value | np.ndarray | Scalar"
OPERATORS: dict[str, Callable[..., Any]] = {}
_WITH_INTS = {dt.bool_: dt.int64}  # the element type of a whole number beside one that cannot hold it


class Value(TensorSyntax["Value"]):
    """Base of operands and outputs of operators; it has a `TensorType`."""

    __slots__ = ("type",)
    type: TensorType

    def _operator(self, name: str) -> Callable[..., Callable[..., "Value"]]:
        operator: Callable[..., Callable[..., Value]] = OPERATORS["class"](name)
        return operator

    def _apply(self, name: str, *operands: Any) -> "Value":
        result: Value = OPERATORS[name](*operands)
        return result


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

    def __index__(self) -> int:
        return int(self.asnumpy())


class Tensor(Value):
    """An array with an element type of `runner.dtype`.

    Takes an array, a number, nested lists, or another tensor; Python floats become Float32, Python ints Int32. Or an
    initializer fills it: `Tensor(shape=(2, 3), dtype=dtype.float32, init=One())`, immediately.
    """

    __slots__ = ("_array", "symbol")  # `symbol` in the record of a step of PyNative mode, which sets it

    def __init__(
        self, input_data: Any = None, dtype: Any = None, shape: int | Shape | None = None, init: Any = None
    ) -> None:
        if init is not None:
            if input_data is not None or shape is None or dtype is None:
                raise ConfigError("a tensor is made of data, or of an initializer with shape and dtype", init=init)
            lengths = (shape,) if isinstance(shape, int) else tuple(shape)
            input_data = OPERATORS["initializer"](init, lengths, dt.of(dtype))
        elif shape is not None:
            raise ConfigError("data has its own shape", shape=shape, repair="no shape, or init with shape and dtype")
        array = input_data.asnumpy() if isinstance(input_data, Tensor) else np.asarray(input_data)
        if dtype is not None:
            dtype = dt.of(dtype)
        elif not isinstance(input_data, Tensor | np.ndarray | np.generic):
            dtype = {"f": dt.float32, "i": dt.int32}.get(array.dtype.kind)
        elements = array.astype(dtype.numpy) if dtype else array
        if dtype and array.dtype.kind in "iu" and elements.dtype.kind in "iu" and not np.array_equal(array, elements):
            raise ConfigError("a number does not fit its element type", value=input_data, dtype=dtype)
        self.type, self._array = TensorType.of(elements), elements

    @classmethod
    def of(cls, array: np.ndarray, type: TensorType) -> "Tensor":
        """Wrap an array whose type is already known, without a copy or a check."""
        tensor = object.__new__(Tensor)
        tensor.type, tensor._array = type, array
        return tensor

    @property
    def array(self) -> np.ndarray:
        """The elements, for the code of runner; `asnumpy` is the method of scripts."""
        return self._array

    def asnumpy(self) -> np.ndarray:
        """The elements as an array."""
        return self.array

    def replace_array(self, array: np.ndarray) -> None:
        """Replace the elements by others of the same type."""
        self._array = array

    def set_dtype(self, dtype: Any) -> None:
        """Cast this tensor to another element type."""
        array = self.array.astype(dt.of(dtype).numpy)
        self.type = TensorType.of(array)
        self.replace_array(array)

    @staticmethod
    def from_numpy(array: np.ndarray) -> "Tensor":
        """A tensor that shares the memory of an array."""
        return Tensor(np.asarray(array))

    has_init = False  # a tensor has its elements from the start

    def init_data(self, slice_index: Any = None, shape: Any = None, opt_shard_group: Any = None) -> "Tensor":
        """The tensor, which has its elements from the start. The arguments are those of sharded tensors."""
        return self

    to_tensor = init_data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.array, dtype=dtype, copy=copy) if copy else np.asarray(self.array, dtype=dtype)

    def __float__(self) -> float:
        return float(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __index__(self) -> int:
        if self.dtype.numpy.kind not in "iub" or self.size != 1:
            raise TypeError(f"only one whole number is an index or a count, not {self.type}")
        return int(self.array.item())

    def __bool__(self) -> bool:
        return bool(self.array)

    def __repr__(self) -> str:
        before = "\n" if self.ndim > 1 else " "
        return f"Tensor(shape={list(self.shape)}, dtype={self.dtype}, value={before}{elements_text(self.array)})"

    def __str__(self) -> str:
        return str(self.array)

    def __format__(self, spec: str) -> str:
        """As text; with a format, such as `.4f`, that of the number in a tensor with one element."""
        return format(self.array.item() if spec and self.size == 1 else str(self), spec)


class Parameter(ParameterSettings, Tensor):
    """A named tensor of a cell; optimizers update it when `requires_grad` is true.

    After a graph has run, the new value stays on the device; reading `array` fetches it. `layerwise_parallel` and
    `parallel_optimizer` are kept, and change nothing.
    """

    __slots__ = ("_fetch", "name", "requires_grad", "resident", "settings")
    is_derived = True
    _array: np.ndarray | None  # type: ignore[assignment]

    def __init__(
        self,
        default_input: Any,
        name: str | None = None,
        requires_grad: bool = True,
        layerwise_parallel: bool = False,
        parallel_optimizer: bool = True,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise ConfigError("the name of a parameter is a text", given=repr(name), allowed="a text, or None")
        self.name, self.requires_grad = (name or "").strip(), requires_grad
        flag({"parameter": name}, requires_grad=requires_grad)
        if isinstance(default_input, bool):
            raise ConfigError("a parameter has numbers as elements", parameter=name or None, given=default_input)
        super().__init__(default_input)
        self._array = np.array(self._array)
        self._fetch: Callable[[Any], np.ndarray] | None = None
        self.resident: Any = None  # the value on the device, or None when only the host has it
        self.settings: dict[str, Any] = {}
        self.layerwise_parallel, self.parallel_optimizer = layerwise_parallel, parallel_optimizer

    @property
    def array(self) -> np.ndarray:
        """The elements, fetched from the device if they are newer there."""
        if self._array is None:
            assert self._fetch is not None
            self._array = self._fetch(self.resident)
        return self._array

    def replace_array(self, array: np.ndarray) -> None:
        """Replace the elements, also those on the device."""
        self._array, self.resident = array, None

    def set_resident(self, resident: Any, fetch: Callable[[Any], np.ndarray]) -> None:
        """Set a value that is on the device; `fetch` copies it to the host when `array` is read."""
        self.resident, self._fetch, self._array = resident, fetch, None

    def snapshot(self) -> Callable[[], None]:
        """A function that restores the current value. Nothing is copied: values are never changed in place."""
        saved = self._array, self._fetch, self.resident

        def restore() -> None:
            self._array, self._fetch, self.resident = saved

        return restore

    def set_data(self, data: Any, slice_shape: bool = False) -> "Parameter":
        """Replace the value, and return the parameter. A number fills it; with `slice_shape` the shape may differ.

        Raises ShapeError for another shape, and for an element type that is not converted to that of the parameter.
        """
        array = data.array if isinstance(data, Tensor) else np.array(data)
        if isinstance(data, int | float) and _holds(self.dtype, data):
            array = np.full(self.shape, data, self.dtype.numpy)
        given = TensorType.of(array)
        if given != self.type:
            require_writable(self.name, self.type, given)
            if given.shape != self.shape and not slice_shape:
                raise ShapeError("a parameter keeps its type", parameter=self.name, has=self.type, given=given)
            array, given = array.astype(self.dtype.numpy, copy=False), given.with_dtype(self.dtype)
        self.type, self.sliced = given, slice_shape
        self.replace_array(array)
        return self

    def init_data(self, layout: Any = None, set_sliced: bool = False) -> "Parameter":  # type: ignore[override]
        """The parameter, which has its elements from the start; `layout` is that of sharded parameters."""
        self.sliced = set_sliced
        return self

    def clone(self, init: Any = "same") -> "Parameter":
        """A parameter with the same name and settings; its value is a copy, or `init`: a tensor, an initializer, its
        name or a number."""
        value = self if init == "same" else OPERATORS["initializer"](init, self.shape, self.dtype)
        copy = Parameter(value, self.name, self.requires_grad)
        copy.settings = {**self.settings, "is_init": False}
        return copy

    def __repr__(self) -> str:
        return (
            f"Parameter (name={self.name or 'Parameter'}, shape={self.shape}, dtype={self.dtype}, "
            f"requires_grad={self.requires_grad})"
        )

    __str__ = __repr__


def as_values(operands: tuple[Operand, ...]) -> tuple[Value, ...]:
    """Operands as values; a Python number takes the element type of the first tensor, rather one that is not Bool."""
    for operand in operands:
        if not isinstance(operand, Value):
            break
    else:
        return operands  # type: ignore[return-value]
    like = min((x for x in operands if isinstance(x, Value)), key=lambda x: x.dtype is dt.bool_, default=None)
    return tuple([x if isinstance(x, Value) else as_constant(x, like) for x in operands])


def as_constant(value: Operand, like: Value | None) -> Tensor:
    """A tensor of a number or an array; a number takes the element type of `like`, or the one `like` is converted to.

    Raises ConfigError for a number that the whole numbers of this type do not reach.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, list | tuple) and any(isinstance(element, Value) for element in value):
        what, repair = "an operator takes tensors, not a list or tuple of them", "unpack it, or use ops.Stack"
        raise ShapeError(what, given=", ".join(str(getattr(x, "type", x)) for x in value), repair=repair)
    if like is None or not isinstance(value, int | float):
        return Tensor(value)
    if not _holds(like.dtype, value):
        return Tensor(value, dt.float32 if isinstance(value, float) else _WITH_INTS.get(like.dtype, like.dtype))
    return Tensor(np.asarray(value, like.dtype.numpy))


def _holds(dtype: dt.DType, number: Scalar) -> bool:
    if dtype.is_float or isinstance(number, bool):
        return True
    if dtype.numpy.kind == "b" or isinstance(number, float):
        return False
    limits = np.iinfo(dtype.numpy)
    return int(limits.min) <= number <= int(limits.max)

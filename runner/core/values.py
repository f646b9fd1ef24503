"""Values: what operators take and return, with the methods and the syntax of tensors.

A `Tensor` has data, a `Symbol` is a value of a graph, a `Parameter` is a named tensor of a cell. Operators accept any
of them, and numbers and arrays, which `as_values` makes tensors. `x + y`, `x[0]` and `x.sum()` apply operators too:
those of `syntax`, which `runner/ops/syntax.py` fills. No method changes its tensor, `fill` and `itemset` included; only
`x[0] = y` does. At the end: implicit conversion, the text of tensors, and structures of values.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from runner import dtype as dt
from runner.core.current import INTERPRETER
from runner.core.parts import DividedArray
from runner.errors import ConfigError, ShapeError
from runner.types import Shape, TensorType, resolve_axes
from runner.validation.arguments import flag
from runner.validation.rules import KeywordNames

Scalar = bool | int | float
Operand: TypeAlias = "Value | np.ndarray | Scalar"
Axis = int | Sequence[int] | None
_WITH_INTS = {dt.bool_: dt.int64}  # the element type of a whole number beside one that cannot hold it


class Syntax:
    """The operators behind Python's syntax for values, and behind their methods.

    Operators take values, so their modules stand above this one: a call of a higher module that is declared here, and
    filled in one place, `runner/ops/syntax.py`; `initial` in `runner/common/__init__.py`.
    """

    add: Callable[[Any, Any], "Value"]
    sub: Callable[[Any, Any], "Value"]
    mul: Callable[[Any, Any], "Value"]
    real_div: Callable[[Any, Any], "Value"]
    floor_div: Callable[[Any, Any], "Value"]
    floor_mod: Callable[[Any, Any], "Value"]
    pow: Callable[[Any, Any], "Value"]
    matmul: Callable[[Any, Any], "Value"]
    neg: Callable[[Any], "Value"]
    logical_not: Callable[[Any], "Value"]
    equal: Callable[[Any, Any], "Value"]
    not_equal: Callable[[Any, Any], "Value"]
    less: Callable[[Any, Any], "Value"]
    less_equal: Callable[[Any, Any], "Value"]
    greater: Callable[[Any, Any], "Value"]
    greater_equal: Callable[[Any, Any], "Value"]
    select: Callable[[Any, Any, Any], "Value"]
    identity: Callable[[Any], "Value"]
    cast: Callable[[Any, dt.DType], "Value"]
    subscript: Callable[[Any, Any], "Value"]  # x[key]
    assign: Callable[[Any, Any, Any], None]  # x[key] = value
    assigned: Callable[[Any, Any, Any], "Value"]  # a copy of x in which x[key] is value
    operator: Callable[[str], Callable[..., Callable[..., "Value"]]]  # the class of this name, loaded when it is needed
    numpy_function: Callable[..., Any]  # numpy.add(array, x), array + x
    numpy_reduction: Callable[..., Any]  # numpy.mean(x)
    initial: Callable[[Any, Shape, dt.DType], Any]  # elements that an initializer, its name or a number gives


syntax = Syntax()


def _comparison(name: str) -> Callable[[Any, object], Any]:
    """A method that compares each element (Bool); NotImplemented for what is no operand, such as None.

    Python calls that of a Parameter first, also in `tensor < parameter`, because its class is derived from the other's.
    It leaves the comparison to the other operand, so that both modes apply the same operator to the same operands.
    """

    def method(self: Any, other: object) -> Any:
        is_operand = isinstance(other, Value | np.ndarray | np.generic | bool | int | float)
        is_left_to_other = isinstance(other, Value) and self.is_derived and not other.is_derived
        return getattr(syntax, name)(self, other) if is_operand and not is_left_to_other else NotImplemented

    return method


class Value(KeywordNames):
    """Base of operands and outputs of operators; it has a `TensorType`.

    Methods have the names and arguments of r1.2. They work in both modes, and while a graph is traced.
    """

    __slots__ = ("type",)
    type: TensorType
    is_derived: ClassVar[bool] = False  # whether its class is derived from that of other values: a parameter

    @property
    def data(self) -> "Value":
        """The value itself, with all its methods, as in MindSpore: `parameter.data.asnumpy()`."""
        return self

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

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.type.nbytes

    @property
    def strides(self) -> Shape:
        """Bytes from one element to the next along each axis, in row-major order."""
        return tuple(math.prod(self.shape[k + 1 :]) * self.itemsize for k in range(self.ndim))

    @property
    def T(self) -> "Value":
        """The value with its axes in reverse order."""
        return self.transpose()

    def astype(self, dtype: Any, copy: bool = True) -> "Value":
        """The value cast to an element type, or to the type of that name; without `copy`, itself if it has it."""
        wanted = dt.of(dtype.lower() if isinstance(dtype, str) else dtype)
        return self if not copy and wanted is self.dtype else syntax.cast(self, wanted)

    # Bool and arithmetic

    def all(self, axis: Axis = (), keep_dims: bool = False) -> "Value":
        """Whether all elements (Bool) over `axis`, all axes by default, are true."""
        return self._reduced("ReduceAll", axis, keep_dims)

    def any(self, axis: Axis = (), keep_dims: bool = False) -> "Value":
        """Whether any element (Bool) over `axis`, all axes by default, is true."""
        return self._reduced("ReduceAny", axis, keep_dims)

    def abs(self) -> "Value":
        """The absolute value of each element."""
        return syntax.operator("Abs")()(self)

    def mean(self, axis: Axis = (), keep_dims: bool = False) -> "Value":
        """The mean over `axis`, all axes by default."""
        return self._reduced("ReduceMean", axis, keep_dims)

    def sum(
        self, axis: Axis = None, dtype: Any = None, keepdims: bool = False, initial: float | None = None
    ) -> "Value":
        """The sum over `axis`, all axes by default, plus `initial`, cast to `dtype`; of Bool, a count."""
        x = self.astype(dt.int32) if self.dtype is dt.bool_ else self
        total = x._reduced("ReduceSum", axis, keepdims)
        total = total if initial is None else syntax.add(total, initial)
        return total if dtype is None else total.astype(dtype, copy=False)

    def max(self, axis: Axis = None, keepdims: bool = False, initial: float | None = None) -> "Value":
        """The largest element over `axis`, all axes by default; at least `initial`."""
        largest = self._reduced("ReduceMax", axis, keepdims)
        return largest if initial is None else syntax.operator("Maximum")()(largest, initial)

    def min(self, axis: Axis = None, keepdims: bool = False, initial: float | None = None) -> "Value":
        """The smallest element over `axis`, all axes by default; at most `initial`."""
        smallest = self._reduced("ReduceMin", axis, keepdims)
        return smallest if initial is None else syntax.operator("Minimum")()(smallest, initial)

    def argmax(self, axis: int | None = None) -> "Value":
        """The position of the largest element along `axis`, or in the flattened value."""
        return syntax.operator("Argmax")(0 if axis is None else axis)(self.ravel() if axis is None else self)

    def argmin(self, axis: int | None = None) -> "Value":
        """The position of the smallest element along `axis`, or in the flattened value."""
        return syntax.operator("Argmin")(0 if axis is None else axis)(self.ravel() if axis is None else self)

    def var(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> "Value":
        """The variance over `axis`, all axes by default: the sum of squares over the number of elements - `ddof`."""
        centred = syntax.sub(self, self.mean(axis, keep_dims=True))
        squares = syntax.operator("Square")()(centred)._reduced("ReduceSum", axis, keepdims)
        count = math.prod(self.shape[k] for k in resolve_axes(_frozen(axis), self.ndim))
        factor = 1.0 / (count - ddof) if count > ddof else np.inf  # as in numpy, of too few elements
        return syntax.mul(squares, factor)

    def std(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> "Value":
        """The square root of `var`."""
        return syntax.operator("Sqrt")()(self.var(axis, ddof, keepdims))

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> "Value":
        """The sum of all elements up to each one along `axis`, or in the flattened value."""
        x = self.ravel() if axis is None else self
        x = x.astype(dt.int32) if x.dtype in (dt.bool_, dt.int8, dt.int16, dt.uint8, dt.uint16) else x
        sums: Value = syntax.operator("CumSum")(axis=axis or 0)(x)
        return sums if dtype is None else sums.astype(dtype, copy=False)

    def ptp(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        """The largest minus the smallest element over `axis`, all axes by default."""
        return syntax.sub(self.max(axis, keepdims), self.min(axis, keepdims))

    def clip(self, xmin: Any, xmax: Any, dtype: Any = None) -> "Value":
        """The value limited to a range; a bound may be None."""
        x = self if xmin is None else syntax.operator("Maximum")()(self, xmin)
        x = x if xmax is None else syntax.operator("Minimum")()(x, xmax)
        return x if dtype is None else x.astype(dtype, copy=False)

    def _reduced(self, name: str, axis: Axis, keep_dims: bool) -> "Value":
        result: Value = syntax.operator(name)(bool(keep_dims), () if axis is None else _frozen(axis))(self)
        return result

    # Shape

    def view(self, *shape: Any) -> "Value":
        """The same elements in another shape: ints, or one tuple; one -1 is inferred."""
        return self.reshape(*shape)

    def reshape(self, *shape: Any) -> "Value":
        """The same elements in another shape: ints, or one tuple or list; one -1 is inferred."""
        return syntax.operator("Reshape")(_listed(shape, "a shape"))(self)

    def ravel(self) -> "Value":
        """All elements along one axis."""
        return self.reshape(-1)

    def flatten(self, order: str = "C") -> "Value":
        """All elements along one axis, in row-major order ("C") or in column-major order ("F")."""
        if order not in ("C", "F"):
            raise ShapeError("unknown order of elements", given=order, allowed="C, F")
        return (self.transpose() if order == "F" else self).reshape(-1)

    def transpose(self, *axes: Any) -> "Value":
        """The value with its axes in another order: ints, or one tuple or list; in reverse order without any."""
        given = tuple(range(self.ndim))[::-1] if axes in ((), (None,)) else _listed(axes, "an order of axes")
        return syntax.operator("Transpose")(
            tuple(axis % self.ndim if -self.ndim <= axis < 0 else axis for axis in given)
        )(self)

    def swapaxes(self, axis1: int, axis2: int) -> "Value":
        """The value with two axes exchanged."""
        (first,), (second,) = resolve_axes(axis1, self.ndim), resolve_axes(axis2, self.ndim)
        order = list(range(self.ndim))
        order[first], order[second] = second, first
        return self.transpose(order)

    def squeeze(self, axis: Axis = None) -> "Value":
        """The value without the given axes, which must have length 1; by default, without all axes of length 1."""
        return syntax.operator("Squeeze")(() if axis is None else _frozen(axis))(self)

    def expand_as(self, x: "Value") -> "Value":
        """The value broadcast to the shape of x."""
        return syntax.operator("BroadcastTo")(x.shape)(self)

    def repeat(self, repeats: int, axis: int | None = None) -> "Value":
        """Each element `repeats` times along `axis`, or in the flattened value."""
        x = self.ravel() if axis is None else self
        (at,) = resolve_axes(axis or 0, x.ndim)
        positions = np.repeat(np.arange(x.shape[at]), repeats)
        return syntax.operator("Gather")(at)(x, positions)

    # Elements

    def copy(self) -> "Value":
        """A value with the same elements in memory of its own."""
        return syntax.operator("Cast")(self.dtype)(self)

    def fill(self, value: float | None) -> "Value":
        """A value of the same type with this number for every element; None is NaN."""
        return syntax.operator("BroadcastTo")(self.shape)(
            np.asarray(np.nan if value is None else value, self.dtype.numpy)
        )

    def item(self, index: int | tuple[int, ...] | None = None) -> "Value":
        """The element at an index, a number counting in row-major order, as a value without axes."""
        element: Value = self._element(index, "item")[index if isinstance(index, tuple) else index or 0]
        return element

    def itemset(self, *args: Any) -> "Value":
        """A copy with another element: `itemset(number)` for one element, else `itemset(index, number)`."""
        index, number = args if len(args) == 2 else (None, args[0])
        x = self._element(index, "itemset").copy()
        changed = syntax.assigned(x, index if isinstance(index, tuple) else index or 0, number)
        return syntax.operator("Reshape")(self.shape)(changed)

    def _element(self, index: object, method: str) -> Any:
        """What an index of one element applies to: the value, or the flattened value for a number."""
        if index is None and self.size != 1:
            rows = {"elements": self.size, "repair": f"{method} with an index: a number, or one for each axis"}
            raise ShapeError("only a value of one element has an element without an index", **rows)
        if isinstance(index, tuple) and len(index) != self.ndim:
            raise ShapeError("an element needs one number for each axis", given=index, shape=self.shape)
        return self if isinstance(index, tuple) else self.ravel()

    # Python's syntax

    def __add__(self, other: Any) -> "Value":
        return syntax.add(self, other)

    def __radd__(self, other: Any) -> "Value":
        return syntax.add(other, self)

    def __sub__(self, other: Any) -> "Value":
        return syntax.sub(self, other)

    def __rsub__(self, other: Any) -> "Value":
        return syntax.sub(other, self)

    def __mul__(self, other: Any) -> "Value":
        return syntax.mul(self, other)

    def __rmul__(self, other: Any) -> "Value":
        return syntax.mul(other, self)

    def __truediv__(self, other: Any) -> "Value":
        return syntax.real_div(self, other)

    def __rtruediv__(self, other: Any) -> "Value":
        return syntax.real_div(other, self)

    def __floordiv__(self, other: Any) -> "Value":
        return syntax.floor_div(self, other)

    def __rfloordiv__(self, other: Any) -> "Value":
        return syntax.floor_div(other, self)

    def __mod__(self, other: Any) -> "Value":
        return syntax.floor_mod(self, other)

    def __rmod__(self, other: Any) -> "Value":
        return syntax.floor_mod(other, self)

    def __pow__(self, other: Any) -> "Value":
        return syntax.pow(self, other)

    def __rpow__(self, other: Any) -> "Value":
        return syntax.pow(other, self)

    def __matmul__(self, other: Any) -> "Value":
        return syntax.matmul(self, other)

    def __rmatmul__(self, other: Any) -> "Value":
        return syntax.matmul(other, self)

    def __neg__(self) -> "Value":
        return syntax.neg(self)

    def __pos__(self) -> "Value":
        return self

    def __abs__(self) -> "Value":
        return self.abs()

    def __invert__(self) -> "Value":
        return syntax.logical_not(self)

    def __getitem__(self, key: object) -> "Value":
        return syntax.subscript(self, key)

    def __setitem__(self, key: object, value: object) -> None:
        syntax.assign(self, key, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a value without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator["Value"]:
        return iter([self[k] for k in range(len(self))])

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        return syntax.numpy_function(function, method, *operands, **settings)

    def __array_function__(self, function: Any, types: Any, operands: Any, settings: Any) -> Any:
        return syntax.numpy_reduction(function, operands, settings)

    __hash__ = object.__hash__  # values are keys by identity, although `==` compares elements

    __eq__ = _comparison("equal")
    __ne__ = _comparison("not_equal")
    __lt__ = _comparison("less")
    __le__ = _comparison("less_equal")
    __gt__ = _comparison("greater")
    __ge__ = _comparison("greater_equal")


def _frozen(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _listed(given: tuple[Any, ...], what: str) -> tuple[int, ...]:
    """Ints, or the only tuple or list."""
    numbers = tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given
    if not given or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers):
        raise ShapeError(f"{what} is ints, or one tuple or list of them", given=given)
    return tuple(map(int, numbers))


class Symbol(Value):
    """A value of a graph: a type and a name, without data."""

    __slots__ = ("name",)

    def __init__(self, type: TensorType, name: str) -> None:
        self.type, self.name = type, name

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"

    def __bool__(self) -> bool:
        """The outcome of a branch in the trace that is being made. Raises as `Interpreter.decide`."""
        outcome: bool = INTERPRETER.get().decide(self)
        return outcome

    def asnumpy(self) -> np.ndarray:
        """The elements, where they do not depend on data. Raises ConfigError for others."""
        elements: np.ndarray = INTERPRETER.get().elements(self)
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

    # `symbol` in the record of a step of PyNative mode, and `divided` in one whose batch has parts, which set them.
    __slots__ = ("_array", "divided", "symbol")
    _array: np.ndarray | None
    divided: DividedArray | None

    def __init__(
        self, input_data: Any = None, dtype: Any = None, shape: int | Shape | None = None, init: Any = None
    ) -> None:
        if init is not None:
            if input_data is not None or shape is None or dtype is None:
                raise ConfigError("a tensor is made of data, or of an initializer with shape and dtype", init=init)
            lengths = (shape,) if isinstance(shape, int) else tuple(shape)
            input_data = syntax.initial(init, lengths, dt.of(dtype))
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
    def of(cls, array: np.ndarray | None, type: TensorType) -> "Tensor":
        """Wrap an array whose type is already known, without a copy or a check; None for one that is `divided`."""
        tensor = object.__new__(Tensor)
        tensor.type, tensor._array = type, array
        return tensor

    @property
    def array(self) -> np.ndarray:
        """The elements, for the code of runner; `asnumpy` is the method of scripts."""
        if self._array is None:
            assert self.divided is not None
            self._array = self.divided.joined()
        return self._array

    def asnumpy(self) -> np.ndarray:
        """The elements as an array."""
        return self.array

    def replace_array(self, array: np.ndarray) -> None:
        """Replace the elements by others of the same type."""
        self._array, self.divided = array, None

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


class Flag:
    """A setting that is true or false. Raises ConfigError for other values."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, parameter: Any, owner: type | None = None) -> Any:
        return self if parameter is None else parameter.settings.get(self.name, False)

    def __set__(self, parameter: Any, value: bool) -> None:
        if not isinstance(value, bool):
            rows = {"parameter": parameter.name, "given": value, "allowed": "True, False"}
            raise ConfigError(f"{self.name} is true or false", **rows)
        parameter.settings[self.name] = value


class Parameter(Tensor):
    """A named tensor of a cell; optimizers update it when `requires_grad` is true.

    After a graph has run, the new value stays on the device; reading `array` fetches it. `layerwise_parallel` and
    `parallel_optimizer` are kept, and change nothing.
    """

    __slots__ = ("_fetch", "name", "requires_grad", "resident", "settings")
    is_derived = True

    frozen = Flag()  # a training keeps its value (`network.freeze`); a normalization reads it too
    layerwise_parallel = Flag()
    parallel_optimizer = Flag()
    cache_enable = Flag()
    sliced = Flag()
    unique = Flag()
    is_init = Flag()
    is_param_ps = False  # there is no parameter server
    inited_param = None  # a parameter has its elements from the start

    @property
    def comm_fusion(self) -> int:
        """The number of the group whose gradients are reduced at once; here `all_reduce_fusion_config` chooses it."""
        return int(self.settings.get("comm_fusion", 1))

    @comm_fusion.setter
    def comm_fusion(self, number: int) -> None:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError("comm_fusion is a whole number", parameter=self.name, given=number, allowed="0 and more")
        self.settings["comm_fusion"] = number

    def set_param_ps(self, init_in_server: bool = False) -> None:
        """Raises ConfigError: there is no parameter server."""
        repair = "data parallel training: context.set_auto_parallel_context(parallel_mode='data_parallel')"
        raise ConfigError("runner has no parameter server", parameter=self.name, repair=repair)

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
        value = self if init == "same" else syntax.initial(init, self.shape, self.dtype)
        copy = Parameter(value, self.name, self.requires_grad)
        copy.settings = {**self.settings, "is_init": False}
        return copy

    def __repr__(self) -> str:
        return (
            f"Parameter (name={self.name or 'Parameter'}, shape={self.shape}, dtype={self.dtype}, "
            f"requires_grad={self.requires_grad})"
        )

    __str__ = __repr__


class ParameterTuple(tuple[Parameter, ...]):
    """A tuple of parameters. As in MindSpore, names that occur twice are numbered: `w_0`, `w_1`.

    Raises ConfigError for other elements.
    """

    __slots__ = ()

    def __new__(cls, iterable: Iterable[Parameter]) -> Self:
        parameters = tuple(iterable)
        for place, parameter in enumerate(parameters):
            if not isinstance(parameter, Parameter):
                rows = {"given": type(parameter).__name__, "at": place}
                raise ConfigError("a ParameterTuple takes parameters", **rows, repair="Parameter(tensor, name=...)")
        _number_names(parameters)
        return super().__new__(cls, parameters)

    def clone(self, prefix: str, init: Any = "same") -> "ParameterTuple":
        """Copies with names below `prefix`; `init` is as for `Parameter.clone`."""
        copies = [parameter.clone(init) for parameter in self]
        for copy in copies:
            copy.name = f"{prefix}.{copy.name}"
        return ParameterTuple(copies)


def _number_names(parameters: tuple[Parameter, ...]) -> None:
    by_name: dict[str, list[Parameter]] = {}
    for parameter in dict.fromkeys(parameters):
        if parameter.name:
            by_name.setdefault(parameter.name, []).append(parameter)
    for name, several in by_name.items():
        for number, parameter in enumerate(several if len(several) > 1 else ()):
            parameter.name = f"{name}_{number}"


# Operands as values, and the element type that operands of different ones get, as in r1.2.


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


ORDER = (dt.bool_, dt.int8, dt.uint8, dt.int16, dt.int32, dt.int64, dt.float16, dt.float32, dt.float64)


def common_dtype(kinds: Iterable[dt.DType]) -> dt.DType | None:
    """The element type for operands of these; None when one of them has no implicit conversion."""
    found = set(kinds)
    if len(found) == 1:
        return found.pop()
    if not found.issubset(ORDER):
        return None
    last = max(found, key=ORDER.index)
    return dt.int16 if last is dt.uint8 and dt.int8 in found else last


@lru_cache(maxsize=8192)
def conversions(x: TensorType, y: TensorType) -> dt.DType | None:
    """The element type to which operands of these types are converted; None when they are not."""
    return common_dtype((x.dtype, y.dtype))


def can_write(parameter: dt.DType, value: dt.DType) -> bool:
    """Whether a value of one element type is implicitly converted to that of the parameter that it is written to."""
    return value is parameter or ({value, parameter} <= set(ORDER) and ORDER.index(value) < ORDER.index(parameter))


def require_writable(parameter: str, has: TensorType, value: TensorType) -> None:
    """Raise ShapeError when the element type of a value is not converted to that of a parameter."""
    if not can_write(has.dtype, value.dtype):
        allowed = ", ".join(str(kind) for kind in dt.ALL if can_write(has.dtype, kind))
        rows = {"parameter": parameter or None, "has": has, "given": value, "allowed": allowed}
        repair = f"value.astype({str(has.dtype).lower()!r})"
        raise ShapeError("a parameter keeps its type", **rows, repair=repair)


# `repr` of a tensor as r1.2 prints it: elements in scientific notation, long axes abbreviated.

SHOWN = 6  # along each axis of a tensor with several axes; longer axes show the first and last three
PER_LINE = {"f": 12, "b": 12}  # elements in a line of a tensor with one axis; 24 whole numbers


def elements_text(array: np.ndarray) -> str:
    """The elements of an array of any type that tensors have."""
    if array.ndim == 0:
        return f"{float(array):g}" if array.dtype.kind == "f" else str(array)
    if array.size == 0:
        return ""
    if array.ndim == 1:
        return _line(array, _texts(array, array))
    return _block(array, array, 0)


def _shown(array: np.ndarray) -> np.ndarray:
    """The elements that are printed: the first and last three along each long axis."""
    half = SHOWN // 2
    for axis, length in enumerate(array.shape if array.ndim > 1 else ()):
        if length > SHOWN:
            array = np.take(array, [*range(half), *range(length - half, length)], axis)
    return array


def _texts(row: np.ndarray, whole: np.ndarray) -> list[str]:
    """Elements of equal width: that of the longest number shown, or that of any float of the type."""
    kind = row.dtype.kind
    if kind == "f":
        digits, width = (4, 11) if row.dtype == np.float16 else (8, 15)
        return [f"{float(x):{width}.{digits}e}" for x in row]
    if kind == "b":
        return [f"{x!s:>5}" for x in row.tolist()]
    width = max(len(str(x)) for x in _shown(whole).ravel().tolist())
    return [f"{x:>{width}}" for x in row.tolist()]


def _line(array: np.ndarray, texts: list[str]) -> str:
    """A tensor with one axis is printed whole."""
    most = PER_LINE.get(array.dtype.kind, 24)
    parts = list[str]()
    for k, text in enumerate(texts, start=1):
        parts.append(text if k == len(texts) else f"{text}, ")
        if k % most == 0:
            parts.append("\n ")
    return f"[{''.join(parts)}]"


def _block(array: np.ndarray, whole: np.ndarray, depth: int) -> str:
    half = SHOWN // 2
    is_long = len(array) > SHOWN
    if array.ndim == 1:
        texts = _texts(array[:half] if is_long else array, whole)
        tail = f" ... {', '.join(_texts(array[-half:], whole))}" if is_long else ""
        return f"[{', '.join(texts)}{tail}]"
    separator = ",\n" + " " * (depth + 1)
    if not is_long:
        return f"[{separator.join(_block(inner, whole, depth + 1) for inner in array)}]"
    first, last = (separator.join(_rows(part, whole, depth)) for part in (array[:half], array[-half:]))
    return f"[{first}{separator}...{separator[1:]}{last}]"


def _rows(part: np.ndarray, whole: np.ndarray, depth: int) -> Iterator[str]:
    return (_block(inner, whole, depth + 1) for inner in part)


# Structures of values: tuples, lists and dicts, as functions and cells take and return them.


class Leaf(NamedTuple):
    """The place of a value in the layout of a structure."""

    position: int


class Static(NamedTuple):
    """What is no value: a number, a text, None, a function. True, 1 and 1.0 differ."""

    kind: type
    value: Any


class FlatStructure(NamedTuple):
    """A structure as its values, in order, and its layout, which is comparable and hashable where its parts are."""

    values: tuple[Value, ...]
    layout: Any

    def rebuild(self, values: Sequence[Any]) -> Any:
        """The structure with other values."""
        return rebuilt(self.layout, values)


def flatten(structure: Any) -> FlatStructure:
    """The values of a structure, of which each array of numpy is one. A tuple of any class is rebuilt as a tuple."""
    values: list[Value] = []
    layout = _layout(structure, values)
    return FlatStructure(tuple(values), layout)


def values_of(structure: Any) -> tuple[Value, ...]:
    """The values of a structure, in order."""
    return flatten(structure).values


def map_values(function: Callable[[Value], Any], structure: Any) -> Any:
    """The structure with `function(value)` for each of its values."""
    flat = flatten(structure)
    return flat.rebuild([function(value) for value in flat.values])


def rebuilt(layout: Any, values: Sequence[Any]) -> Any:
    """The structure of this layout with these values."""
    if isinstance(layout, Leaf):
        return values[layout.position]
    if isinstance(layout, Static):
        return layout.value
    kind, *parts = layout
    if kind == "dict":
        return {key: rebuilt(part, values) for key, part in parts}
    elements = [rebuilt(part, values) for part in parts]
    return elements if kind == "list" else tuple(elements)


def static_parts(layout: Any) -> list[Any]:
    """What is no value in a layout."""
    if isinstance(layout, Leaf):
        return []
    if isinstance(layout, Static):
        return [layout.value]
    kind, *parts = layout
    each = [part for _, part in parts] if kind == "dict" else parts
    return [value for part in each for value in static_parts(part)]


def _layout(part: Any, values: list[Value]) -> Any:
    if isinstance(part, np.ndarray | np.generic):
        part = Tensor(part)
    if isinstance(part, Value):
        values.append(part)
        return Leaf(len(values) - 1)
    if isinstance(part, dict):
        return "dict", *[(key, _layout(each, values)) for key, each in part.items()]
    if isinstance(part, list | tuple):
        return "list" if isinstance(part, list) else "tuple", *[_layout(each, values) for each in part]
    return Static(type(part), part)

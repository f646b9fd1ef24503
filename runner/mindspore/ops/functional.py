"""MindSpore's `ops.functional`: operators as functions, functions of Python values, and second names.

Scripts import them as `F`. `assign`, `depend`, `partial` and `stop_gradient` are with their operators. What is known
while a network is built, such as shapes and types, is computed then and leaves no node in the graph.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Symbol, Tensor, Value, map_values, values_of
from runner.errors import ConfigError, ShapeError
from runner.mindspore.ops.indexing import ScatterNdUpdate, ScatterUpdate
from runner.mindspore.ops.reductions import AddN
from runner.ops.activation import FastGeLU, GeLU, Tanh
from runner.ops.arrangement import Eye, Fill, Range
from runner.ops.array import (
    Cast,
    ExpandDims,
    Identity,
    Reshape,
    Slice,
    Squeeze,
    Stack,
    Transpose,
    Unstack,
    as_value,
    require,
)
from runner.ops.effects import Print
from runner.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Exp,
    Floor,
    Log,
    Mul,
    Neg,
    Pow,
    RealDiv,
    Reciprocal,
    Sqrt,
    Square,
    Sub,
)
from runner.ops.elementwise.compare import (
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Equal,
    Greater,
    GreaterEqual,
    Invert,
    IsFinite,
    IsNan,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    NotEqual,
    Select,
)
from runner.ops.elementwise.division import FloorDiv, FloorMod
from runner.ops.elementwise.functions import (
    ACos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atan2,
    Atanh,
    Cos,
    Cosh,
    Erf,
    Erfc,
    Expm1,
    Sin,
    Sinh,
    Tan,
)
from runner.ops.indexing.gather import Gather, GatherD, GatherNd, ScatterNd, Sort
from runner.ops.indexing.scatter import TensorScatterUpdate
from runner.ops.indexing.slices import StridedSlice
from runner.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceSum, Tile
from runner.types import resolve_axes

# What is known while a network is traced: operators and functions of Python values, shapes and types.
#
# Networks compute with these values while they are traced, so they leave no operators in graphs. Source: the part of
# MindSpore's `ops.operations` and `ops.functional` that is about numbers, tuples, dictionaries and types.

# Operators with such results, of shapes and types. Shapes are static, so what they return are Python values.

PYTHON = {"b": bool, "i": int, "u": int, "f": float}  # by kind of element type


@dataclass(frozen=True)
class Shape:
    """The lengths of the axes of a tensor, as a tuple of ints."""

    def __call__(self, x: Any) -> tuple[int, ...]:
        return as_value(x).shape


@dataclass(frozen=True)
class DType:
    """The element type of a tensor."""

    def __call__(self, x: Any) -> dt.DType:
        return as_value(x).dtype


@dataclass(frozen=True)
class Rank:
    """The number of axes of a tensor, as an int."""

    def __call__(self, x: Any) -> int:
        return as_value(x).ndim


@dataclass(frozen=True)
class Size:
    """The number of elements of a tensor, as an int."""

    def __call__(self, x: Any) -> int:
        return as_value(x).size


@dataclass(frozen=True)
class IsSubClass:
    """Whether a type is another one, or belongs to a kind of types: `dtype.tensor`, `dtype.number`, a class."""

    def __call__(self, sub_type: Any, type_: Any) -> bool:
        if isinstance(type_, type) and issubclass(type_, np.generic) and isinstance(sub_type, dt.DType):
            return issubclass(sub_type.numpy.type, type_)
        if isinstance(sub_type, type) and isinstance(type_, type):
            return issubclass(sub_type, type_)
        return sub_type is type_ or (isinstance(type_, dt.Type) and dt.issubclass_(sub_type, type_))


@dataclass(frozen=True)
class IsInstance:
    """Whether a value is of a type: a class of Python, or an element type, to which tensors and numbers belong."""

    def __call__(self, inst: Any, type_: Any) -> bool:
        if isinstance(type_, list | tuple):
            return any(self(inst, one) for one in type_)
        if isinstance(type_, dt.DType):
            return isinstance(inst, Value | bool | int | float) and as_value(inst).dtype is type_
        return isinstance(inst, type_)


@dataclass(frozen=True)
class SameTypeShape:
    """x, after a check that y has its element type and shape. Raises ShapeError when it has not."""

    def __call__(self, x: Value, y: Value) -> Value:
        require(x.type == y.type, "element type and shape must be the same", x=x.type, y=y.type)
        return x


@dataclass(frozen=True)
class ScalarCast:
    """A number converted to the Python type of an element type: int, float or bool."""

    def __call__(self, input_x: Any, input_y: Any) -> bool | int | float:
        number = input_x.asnumpy().item() if isinstance(input_x, Value) else input_x  # type: ignore[attr-defined]
        result: bool | int | float = PYTHON[dt.of(input_y).numpy.kind](number)
        return result


@dataclass(frozen=True)
class ScalarToTensor:
    """A tensor without axes of a number, Float32 by default."""

    def __call__(self, input_x: Any, dtype: dt.DType = dt.float32) -> Tensor:
        return Tensor(np.asarray(input_x, dt.of(dtype).numpy))


@dataclass(frozen=True)
class ScalarToArray:
    """A tensor without axes of a number: Float32 for a float, Int64 for an int."""

    def __call__(self, input_x: Any) -> Tensor:
        require(isinstance(input_x, bool | int | float), "needs a number", given=type(input_x).__name__)
        return Tensor(np.asarray(input_x, np.float32 if isinstance(input_x, float) else None))


@dataclass(frozen=True)
class TupleToArray:
    """A tensor of a tuple of numbers of one type: Float32 for floats, Int64 for ints."""

    def __call__(self, input_x: Any) -> Tensor:
        kinds = {type(number) for number in input_x} if isinstance(input_x, list | tuple) else set()
        if len(kinds) != 1 or not kinds <= {int, float, bool}:
            raise ShapeError("needs a tuple of numbers of one type", given=input_x, allowed="(1, 2), (0.5, 1.0)")
        return Tensor(np.asarray(input_x, np.float32 if kinds == {float} else None))


@dataclass(frozen=True)
class InvertPermutation:
    """The inverse of a permutation: a tuple of ints for a tuple of ints."""

    def __call__(self, input_x: Any) -> tuple[int, ...]:
        given = input_x.asnumpy().tolist() if isinstance(input_x, Tensor) else list(input_x)
        valid = sorted(given) == list(range(len(given)))
        require(valid, "needs each number from 0 once", given=input_x, allowed=f"0 to {len(given) - 1}, each once")
        return tuple(given.index(number) for number in range(len(given)))


# The functions of `ops.functional`: of numbers, tuples, dictionaries, types.

bool_eq = operator.eq
bool_not = operator.not_
dict_getitem = operator.getitem
is_ = operator.is_
is_not = operator.is_not
list_equal = operator.eq
list_getitem = operator.getitem
list_len = len
make_slice = slice
scalar_add = operator.add
scalar_div = operator.truediv
scalar_eq = operator.eq
scalar_floordiv = operator.floordiv
scalar_ge = operator.ge
scalar_gt = operator.gt
scalar_le = operator.le
scalar_log = math.log
scalar_lt = operator.lt
scalar_mod = operator.mod
scalar_mul = operator.mul
scalar_ne = operator.ne
scalar_pow = operator.pow
scalar_sub = operator.sub
scalar_uadd = operator.pos
scalar_usub = operator.neg
shape_mul = math.prod
string_concat = operator.add
string_eq = operator.eq
tuple_equal = operator.eq
tuple_getitem = operator.getitem
tuple_len = len


def typeof(x: Any) -> dt.Type:
    """The type of a value: `Tensor[Float32]`, `Int64` for a whole number of Python, `String`, ..."""
    return dt.get_py_obj_dtype(x)


def hastype(x: Any, type_: Any) -> bool:
    """Whether the type of a value is an element type, or a class of Python."""
    return IsInstance()(x, type_)


def array_to_scalar(x: Tensor) -> bool | int | float:
    """The number of a tensor of one element. Raises ConfigError in graph mode, which has no numbers yet."""
    number: bool | int | float = x.asnumpy().item()
    return number


def mixed_precision_cast(dst_type: dt.DType, x: Any) -> Any:
    """Floats cast to an element type, also in tuples and dictionaries; other values unchanged."""
    if isinstance(x, list | tuple):
        return tuple(mixed_precision_cast(dst_type, one) for one in x)
    if isinstance(x, Mapping):
        return {key: mixed_precision_cast(dst_type, one) for key, one in x.items()}
    return Cast(dst_type)(x) if isinstance(x, Value) and x.dtype.is_float else x


def reduced_shape(x_shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    """The shape of a reduction that keeps its axes with length 1."""
    axes = resolve_axes(axis, len(x_shape))
    return tuple(1 if k in axes else n for k, n in enumerate(x_shape))


def bool_and(x: bool, y: bool) -> bool:
    """x and y."""
    return x and y


def bool_or(x: bool, y: bool) -> bool:
    """x or y."""
    return x or y


def make_tuple(*values: Any) -> tuple[Any, ...]:
    """A tuple of values."""
    return values


def make_list(*values: Any) -> list[Any]:
    """A list of values."""
    return list(values)


def make_dict(keys: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """A dictionary of keys and values."""
    return dict(zip(keys, values, strict=True))


def make_range(*limits: int) -> tuple[int, ...]:
    """The numbers of `range`, as a tuple."""
    return tuple(range(*limits))


def tuple_div(x: Sequence[int], y: Sequence[int]) -> tuple[int, ...]:
    """The quotients of whole numbers. Raises ConfigError when one is not whole."""
    if any(a % b for a, b in zip(x, y, strict=True)):
        raise ConfigError("the quotients must be whole numbers", x=x, y=y)
    return tuple(a // b for a, b in zip(x, y, strict=True))


def tuple_reversed(x: Sequence[Any]) -> tuple[Any, ...]:
    """The elements in reverse order."""
    return tuple(reversed(x))


def tuple_setitem(x: Sequence[Any], index: int, value: Any) -> tuple[Any, ...]:
    """A tuple with one element replaced."""
    return tuple(list_setitem(x, index, value))


def list_setitem(x: Sequence[Any], index: int, value: Any) -> list[Any]:
    """A list with one element replaced."""
    changed = list(x)
    changed[index] = value
    return changed


def dict_setitem(x: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A dictionary with one value replaced or added."""
    return {**x, key: value}


def in_dict(key: str, x: Mapping[str, Any]) -> bool:
    """Whether a dictionary has a key."""
    return key in x


def not_in_dict(key: str, x: Mapping[str, Any]) -> bool:
    """Whether a dictionary does not have a key."""
    return key not in x


# Functions of what is known while a network is built: constants like a tensor, and functions of constants.


def zeros_like(x: Any) -> Any:
    """Zeros in the shape and type of a tensor, or of each tensor of a tuple or list; 0 for a number."""
    return _filled(x, 0)


def ones_like(x: Any) -> Any:
    """Ones in the shape and type of a tensor, or of each tensor of a tuple or list; 1 for a number."""
    return _filled(x, 1)


def _filled(x: Any, number: int) -> Any:
    if isinstance(x, bool | int | float):
        return type(x)(number)
    return map_values(lambda value: Tensor(np.full(value.shape, number, value.dtype.numpy)), x)


def constexpr(
    fn: Callable[..., Any] | None = None, get_instance: bool = True, name: str | None = None
) -> Callable[..., Any]:
    """Decorator of a function of constants, which is computed while a network is built: a plain call of `fn`.

    With `get_instance=False` the result is a function without arguments that returns the decorated one, as the class of
    an operator. `name` is its name in errors. A call raises ConfigError for a tensor that has numbers only when the
    graph runs.
    """
    if fn is None:
        return lambda function: constexpr(function, get_instance, name)
    called = name or str(getattr(fn, "__name__", "constexpr"))

    def computed(*args: Any, **kwargs: Any) -> Any:
        unknown = [value for value in values_of((args, kwargs)) if isinstance(value, Symbol)]
        if unknown:
            repair = "pass its shape or another constant, or use operators"
            raise ConfigError(f"{called} takes constants, not the values of a graph", given=unknown[0], repair=repair)
        return fn(*args, **kwargs)

    computed.__name__, computed.__doc__ = called, fn.__doc__
    return computed if get_instance else lambda: computed


def core(fn: Callable[..., Any] | None = None, **flags: Any) -> Any:
    """Decorator `core(loop_can_uroll=True)`: notes flags of MindSpore's compiler, which have no effect here."""
    return add_flags(fn, core=True, **flags)


def add_flags(fn: Callable[..., Any] | None = None, **flags: Any) -> Any:
    """Decorator that notes flags of MindSpore's compiler at a function, which have no effect here."""

    def noting(function: Any) -> Any:
        noted = {**getattr(function, "_mindspore_flags", {}), **flags}
        function._mindspore_flags = noted
        return function

    return noting if fn is None else noting(fn)


# Operators as functions.

absolute = Abs()
acos = ACos()
acosh = Acosh()
add = Add()
addn = AddN()
asin = Asin()
asinh = Asinh()
atan = Atan()
atan2 = Atan2()
atanh = Atanh()
bitwise_and = BitwiseAnd()
bitwise_or = BitwiseOr()
bitwise_xor = BitwiseXor()
cast = Cast()
cos = Cos()
cosh = Cosh()
cumsum = CumSum()
div = RealDiv()
dtype = DType()
equal = Equal()
erf = Erf()
erfc = Erfc()
exp = Exp()
expand_dims = ExpandDims()
eye = Eye()
fill = Fill()
floor = Floor()
floordiv = FloorDiv()
gather = Gather()
gather_d = GatherD()
gather_nd = GatherNd()
ge = GreaterEqual()
gt = Greater()
invert = Invert()
isfinite = IsFinite()
isinstance_ = IsInstance()
isnan = IsNan()
issubclass_ = IsSubClass()
le = LessEqual()
less = Less()
log = Log()
logical_and = LogicalAnd()
logical_not = LogicalNot()
logical_or = LogicalOr()
maximum = Maximum()
minimum = Minimum()
mul = Mul()
neg_tensor = Neg()
not_equal = NotEqual()
pack = Stack()
pows = Pow()
print_ = Print()
rank = Rank()
reduce_max = ReduceMax()
reduce_mean = ReduceMean()
reduce_min = ReduceMin()
reduce_sum = ReduceSum()
reshape = Reshape()
same_type_shape = SameTypeShape()
scalar_cast = ScalarCast()
scalar_to_array = ScalarToArray()
scalar_to_tensor = ScalarToTensor()
scatter_nd = ScatterNd()
scatter_nd_update = ScatterNdUpdate()
scatter_update = ScatterUpdate()
select = Select()
shape = Shape()
sin = Sin()
sinh = Sinh()
size = Size()
sort = Sort()
sqrt = Sqrt()
square = Square()
squeeze = Squeeze()
stack = Stack()
strided_slice = StridedSlice()
sub = Sub()
tan = Tan()
tanh = Tanh()
tensor_add = Add()
tensor_div = RealDiv()
tensor_exp = Exp()
tensor_expm1 = Expm1()
tensor_floordiv = FloorDiv()
tensor_ge = GreaterEqual()
tensor_gt = Greater()
tensor_le = LessEqual()
tensor_lt = Less()
tensor_mod = FloorMod()
tensor_mul = Mul()
tensor_pow = Pow()
tensor_range = Range()
tensor_scatter_update = TensorScatterUpdate()
tensor_slice = Slice()
tensor_sub = Sub()
tile = Tile()
transpose = Transpose()
tuple_to_array = TupleToArray()


# Second names of operators that MindSpore keeps for older scripts.

TensorAdd = Add
GatherV2 = SparseGatherV2 = Gather
Pack, Unpack = Stack, Unstack
Inv = Reciprocal
Gelu, FastGelu = GeLU, FastGeLU
identity = Identity

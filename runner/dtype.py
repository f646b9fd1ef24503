"""Element types under the names of MindSpore (`runner.dtype.float32` prints `Float32`), and its other types.

Source: the `mindspore.dtype` module of r1.2, and the dump files of CANN.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runner.errors import ConfigError, nearest

__all__ = [
    "Int",
    "Type",
    "bool_",
    "byte",
    "double",
    "dtype_to_nptype",
    "dtype_to_pytype",
    "float16",
    "float32",
    "float64",
    "float_",
    "get_py_obj_dtype",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "int_",
    "intc",
    "intp",
    "issubclass_",
    "list_",
    "number",
    "pytype_to_dtype",
    "short",
    "single",
    "string",
    "tensor",
    "tensor_type",
    "tuple_",
    "type_none",
    "ubyte",
    "uint",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uintc",
    "uintp",
    "ushort",
]


@dataclass(frozen=True, eq=False, repr=False)
class Type:
    """A type of MindSpore: of elements (`DType`), a family of those (`number`, `float_`), or of other values.

    There is one object per type, so equality is identity.
    """

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class DType(Type):
    """An element type."""

    numpy: np.dtype

    def __reduce__(self) -> tuple[Callable[[str], "DType"], tuple[str]]:
        return of, (self.numpy.name,)  # copies and unpickled types are the same object

    @property
    def is_float(self) -> bool:
        """Whether values of this type carry gradients."""
        return self.numpy.kind == "f"

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize


bool_ = DType("Bool", np.dtype(np.bool_))
int8 = byte = DType("Int8", np.dtype(np.int8))
int16 = short = DType("Int16", np.dtype(np.int16))
int32 = intc = DType("Int32", np.dtype(np.int32))
int64 = intp = DType("Int64", np.dtype(np.int64))
uint8 = ubyte = DType("UInt8", np.dtype(np.uint8))
uint16 = ushort = DType("UInt16", np.dtype(np.uint16))
uint32 = uintc = DType("UInt32", np.dtype(np.uint32))
uint64 = uintp = DType("UInt64", np.dtype(np.uint64))
float16 = half = DType("Float16", np.dtype(np.float16))
float32 = single = DType("Float32", np.dtype(np.float32))
float64 = double = DType("Float64", np.dtype(np.float64))

number, int_, uint, float_ = Type("Number"), Type("Int"), Type("UInt"), Type("Float")  # families of element types
string, list_, tuple_, type_none, tensor = map(Type, ("String", "List", "Tuple", "None", "Tensor"))
function, type_type = Type("Func"), Type("TypeType")

int_type = (int8, int16, int32, int64)
uint_type = (uint8, uint16, uint32, uint64)
float_type = (float16, float32, float64)
number_type = (*int_type, *uint_type, *float_type)
ALL = (bool_, *number_type)

_FAMILIES: dict[Type, tuple[DType, ...]] = {number: number_type, int_: int_type, uint: uint_type, float_: float_type}
_TENSORS = {t: Type(f"Tensor[{t}]") for t in ALL}
_BY_KIND = {(t.numpy.kind, t.numpy.itemsize): t for t in ALL}
# C has several names for one integer type, and numpy distinguishes them (`l` and `q` are both Int64).
_BY_CHAR = {c: _BY_KIND[np.dtype(c).kind, np.dtype(c).itemsize] for c in "?bBhHiIlLqQefd"}
_BY_NAME = {t.numpy.name: t for t in ALL}
_OF_PYTHON: dict[type, Type] = {
    bool: bool_,
    int: int64,
    float: float64,
    str: string,
    list: list_,
    tuple: tuple_,
    type(None): type_none,
}
_TO_PYTHON: dict[Type, type] = {
    bool_: bool,
    string: str,
    list_: list,
    tuple_: tuple,
    type_none: type(None),
    **dict.fromkeys((int_, *int_type, *uint_type), int),
    **dict.fromkeys((float_, *float_type), float),
}


def of(kind: "DType | np.dtype | type | str") -> DType:
    """The element type of a numpy dtype, a Python or numpy scalar type, or a name such as `"float32"`.

    Raises ConfigError for a type that tensors cannot have (text, objects, complex numbers).
    """
    if isinstance(kind, DType):
        return kind
    try:
        return _BY_CHAR[np.dtype(kind).char]
    except (KeyError, TypeError):
        raise ConfigError(
            "not an element type of tensors",
            value=kind,
            allowed=", ".join(_BY_NAME),
            nearest=nearest(str(kind), _BY_NAME),
        ) from None


def dtype_to_nptype(type_: DType) -> type:
    """numpy's scalar type of an element type: `numpy.float32` for Float32."""
    return of(type_).numpy.type


def dtype_to_pytype(type_: Type) -> type:
    """Python's type of a type: `float` for all floats. Raises ConfigError for one that Python does not have."""
    if type_ not in _TO_PYTHON:
        raise ConfigError("Python has no such type", value=type_, allowed=", ".join(map(str, _TO_PYTHON)))
    return _TO_PYTHON[type_]


def pytype_to_dtype(obj: "Type | np.dtype | type") -> Type:
    """The type of a Python or numpy type: Int64 for `int`, Float64 for `float`. Raises ConfigError for others."""
    if isinstance(obj, Type):
        return obj
    return _OF_PYTHON[obj] if isinstance(obj, type) and obj in _OF_PYTHON else of(obj)


def Int(bits: int = 0) -> Type:
    """The signed integer type of 8, 16, 32 or 64 bits; without a number, their family. Raises ConfigError."""
    return int_ if bits == 0 else of(f"int{bits}")


def tensor_type(element: DType) -> Type:
    """The type of tensors with this element type; it prints as `Tensor[Float32]`."""
    return _TENSORS[of(element)]


def get_py_obj_dtype(obj: object) -> Type:
    """The type of a value, as `pytype_to_dtype` of its class; of a tensor, `tensor_type` of its element type."""
    if isinstance(element := getattr(obj, "dtype", None), DType):
        return tensor_type(element)
    if isinstance(obj, Type):
        return type_type
    return function if callable(obj) and not isinstance(obj, type) else pytype_to_dtype(_class(obj))


def _class(obj: object) -> type:
    return obj if isinstance(obj, type) else type(obj)


def issubclass_(type_: object, dtype: Type) -> bool:
    """Whether a type is `dtype`, belongs to that family, or, for `tensor`, is one of tensors."""
    if not isinstance(type_, Type):
        return False
    is_tensor = dtype is tensor and type_ in _TENSORS.values()
    return type_ is dtype or type_ in _FAMILIES.get(dtype, ()) or is_tensor or (dtype is number and type_ in _FAMILIES)

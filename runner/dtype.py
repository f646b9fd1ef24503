"""Element types under the names of the reference (`runner.dtype.float32` prints `Float32`).

Source: spec section 3.8 and the `mindspore.dtype` module of r1.2.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runner.errors import ConfigError, nearest


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """An element type. There is one object per type, so equality is identity."""

    name: str
    numpy: np.dtype

    def __repr__(self) -> str:
        return self.name

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
int8 = DType("Int8", np.dtype(np.int8))
int16 = DType("Int16", np.dtype(np.int16))
int32 = DType("Int32", np.dtype(np.int32))
int64 = DType("Int64", np.dtype(np.int64))
uint8 = DType("UInt8", np.dtype(np.uint8))
uint16 = DType("UInt16", np.dtype(np.uint16))
uint32 = DType("UInt32", np.dtype(np.uint32))
uint64 = DType("UInt64", np.dtype(np.uint64))
float16 = DType("Float16", np.dtype(np.float16))
float32 = DType("Float32", np.dtype(np.float32))
float64 = DType("Float64", np.dtype(np.float64))

ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64)
_BY_KIND = {(t.numpy.kind, t.numpy.itemsize): t for t in ALL}
# C has several names for one integer type, and numpy distinguishes them (`l` and `q` are both Int64).
_BY_CHAR = {c: _BY_KIND[np.dtype(c).kind, np.dtype(c).itemsize] for c in "?bBhHiIlLqQefd"}
_BY_NAME = {t.numpy.name: t for t in ALL}


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

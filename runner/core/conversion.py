"""Implicit conversion: operands of different element types, as in the reference.

An operator that takes two operands of one element type gets them in the later one of `ORDER`; Int8 with UInt8 in Int16.
The other unsigned types are not converted. A Python number takes the type of the tensor beside it; a float beside whole
numbers makes both Float32, a whole number beside Bool makes both Int64 (`runner.core.value.as_constant`).

`Interpreter.bind` binds a `Cast` for what is converted, in both modes, so gradients have the types of the operands. A
parameter that an operator writes keeps its type: what is written is converted to it, and refused when it is later in
`ORDER`.
"""

from collections.abc import Iterable
from functools import lru_cache

from runner import dtype as dt
from runner.errors import ShapeError
from runner.types import TensorType

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

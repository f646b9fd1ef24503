"""`TensorType`: element type and shape of a tensor, known before it has data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runner import dtype as dt
from runner.errors import ShapeError

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, init=False)
class TensorType:
    """Element type and shape of a tensor; prints as `Float32[32, 1, 28, 28]`.

    There is one object per type, so equality is identity: types are compared and looked up for every operator.
    """

    dtype: dt.DType
    shape: Shape

    def __new__(cls, dtype: dt.DType, shape: Shape) -> "TensorType":
        instance = _INSTANCES.get((dtype, shape))
        if instance is None:
            instance = object.__new__(cls)
            instance.__dict__.update(dtype=dtype, shape=shape)
            instance = _INSTANCES.setdefault((dtype, shape), instance)  # another thread may have been faster
        return instance

    def __reduce__(self) -> tuple[type["TensorType"], tuple[dt.DType, Shape]]:
        return TensorType, (self.dtype, self.shape)

    @classmethod
    def of(cls, array: np.ndarray) -> "TensorType":
        """The type of an array."""
        return cls(dt.of(array.dtype), array.shape)

    def with_shape(self, *shape: int) -> "TensorType":
        """The same element type in another shape."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: dt.DType) -> "TensorType":
        """The same shape with another element type."""
        return TensorType(dtype, self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.size

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


_INSTANCES: dict[tuple[dt.DType, Shape], TensorType] = {}


def broadcast(*types: TensorType) -> Shape:
    """The common shape of operands that are broadcast.

    Raises ShapeError when an axis has two different lengths other than 1.
    """
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*(t.shape for t in types)))
    except ValueError:
        raise ShapeError("shapes do not broadcast", operands=" against ".join(map(str, types))) from None


def resolve_axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; None and () mean all axes, as in MindSpore.

    Raises ShapeError for an axis that is out of range or named twice.
    """
    given = tuple(range(ndim)) if axis is None or axis == () else (axis,) if isinstance(axis, int) else tuple(axis)
    axes = sorted(a + ndim if a < 0 else a for a in given)
    if any(not 0 <= a < ndim for a in axes) or len(set(axes)) != len(axes):
        raise ShapeError("axis out of range or named twice", axis=axis, allowed=f"{-ndim} to {ndim - 1}, each once")
    return tuple(axes)

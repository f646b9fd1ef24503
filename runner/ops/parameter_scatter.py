"""Operators that change rows or elements of a parameter, or of a tensor, at positions that are operands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner.core.primitive import current
from runner.core.value import Tensor, Value
from runner.ops.array import ExpandDims, Transpose, require
from runner.ops.composition import ComposedOperator, as_value, as_written, require_parameter
from runner.ops.scatter import ScatterReduce

__all__ = [
    "IndexAdd",
    "InplaceAdd",
    "InplaceSub",
    "InplaceUpdate",
    "ScatterAdd",
    "ScatterDiv",
    "ScatterMax",
    "ScatterMin",
    "ScatterMul",
    "ScatterNdAdd",
    "ScatterNdSub",
    "ScatterNdUpdate",
    "ScatterNonAliasingAdd",
    "ScatterSub",
    "ScatterUpdate",
]


@dataclass(frozen=True)
class ScatterNd(ComposedOperator):
    """Base: the blocks of a parameter at `indices` (..., K) changed, and its new value.

    `use_locking` has no effect: updates are never lost.
    """

    mode: ClassVar[str]

    use_locking: bool = False

    def compose(self, input_x: Any, indices: Any, updates: Any) -> Value:
        parameter = require_parameter(input_x)
        new: Value = ScatterReduce(self.mode)(parameter, self.places(as_value(indices)), as_written(parameter, updates))
        current().assign(parameter, new)
        return new

    def places(self, indices: Value) -> Value:
        """The positions as blocks of the first K axes."""
        return indices


@dataclass(frozen=True)
class ScatterRows(ScatterNd):
    """Base: the rows of a parameter with the numbers `indices`, of any shape, changed."""

    def places(self, indices: Value) -> Value:
        """The numbers of rows as positions in the first axis."""
        places: Value = ExpandDims(indices.ndim)(indices)
        return places


@dataclass(frozen=True)
class ScatterUpdate(ScatterRows):
    """The rows of a parameter at `indices` replaced by `updates` (*indices.shape, *row), and its new value."""

    mode: ClassVar[str] = "update"
    use_locking: bool = True


@dataclass(frozen=True)
class ScatterNdUpdate(ScatterNd):
    """The blocks of a parameter at `indices` (..., K) replaced by `updates`, and its new value."""

    mode: ClassVar[str] = "update"
    use_locking: bool = True


@dataclass(frozen=True)
class ScatterAdd(ScatterRows):
    """`updates` added to the rows of a parameter at `indices`, and its new value."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class ScatterSub(ScatterRows):
    """`updates` subtracted from the rows of a parameter at `indices`, and its new value."""

    mode: ClassVar[str] = "sub"


@dataclass(frozen=True)
class ScatterMul(ScatterRows):
    """The rows of a parameter at `indices` times `updates`, and its new value."""

    mode: ClassVar[str] = "mul"


@dataclass(frozen=True)
class ScatterDiv(ScatterRows):
    """The rows of a parameter of floats at `indices` divided by `updates`, and its new value."""

    mode: ClassVar[str] = "div"


@dataclass(frozen=True)
class ScatterMax(ScatterRows):
    """The larger one of the rows of a parameter at `indices` and of `updates`, and its new value."""

    mode: ClassVar[str] = "max"


@dataclass(frozen=True)
class ScatterMin(ScatterRows):
    """The smaller one of the rows of a parameter at `indices` and of `updates`, and its new value."""

    mode: ClassVar[str] = "min"


@dataclass(frozen=True)
class ScatterNdAdd(ScatterNd):
    """`updates` added to the blocks of a parameter at `indices` (..., K), and its new value."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class ScatterNdSub(ScatterNd):
    """`updates` subtracted from the blocks of a parameter at `indices` (..., K), and its new value."""

    mode: ClassVar[str] = "sub"


@dataclass(frozen=True)
class ScatterNonAliasingAdd(ScatterNd):
    """As ScatterNdAdd."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class Inplace(ComposedOperator):
    """Base: a tensor with the rows `indices`, a number or a tuple, changed by v; as in the reference's examples, the
    new tensor is the result, and x is not changed."""

    mode: ClassVar[str]

    indices: int | Sequence[int]

    def compose(self, input_x: Value, input_v: Value) -> Value:
        numbers = (self.indices,) if isinstance(self.indices, int) else tuple(self.indices)
        require(len(numbers) > 0, "needs the number of a row", indices=self.indices)
        places = Tensor(np.asarray(numbers, np.int32).reshape(-1, 1))
        result: Value = ScatterReduce(self.mode)(input_x, places, input_v)
        return result


@dataclass(frozen=True)
class InplaceAdd(Inplace):
    """x with v (rows, ...) added to its rows `indices`."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class InplaceSub(Inplace):
    """x with v (rows, ...) subtracted from its rows `indices`."""

    mode: ClassVar[str] = "sub"


@dataclass(frozen=True)
class InplaceUpdate(Inplace):
    """x with its rows `indices` replaced by v (rows, ...)."""

    mode: ClassVar[str] = "update"


@dataclass(frozen=True)
class IndexAdd(ComposedOperator):
    """y added to the slices of a parameter with the numbers `indices` (Int32 vector) along `axis`, and its new value.

    `use_lock` and `check_index_bound` have no effect: updates are never lost, and numbers are always checked.
    """

    axis: int
    use_lock: bool = True
    check_index_bound: bool = True

    def compose(self, input_x: Any, indices: Value, input_y: Value) -> Value:
        parameter = require_parameter(input_x)
        axis = self.axis % parameter.ndim
        order = (axis, *(k for k in range(parameter.ndim) if k != axis))
        back = tuple(order.index(k) for k in range(parameter.ndim))
        turn = Transpose(order)
        summed = ScatterReduce("add")(turn(parameter), ExpandDims(1)(indices), turn(input_y))
        new: Value = Transpose(back)(summed)
        current().assign(parameter, new)
        return new

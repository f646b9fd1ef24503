"""The methods of values that operators compute, with the names and arguments of the reference.

They work in both modes and while a graph is traced. None of them changes its tensor, `fill` and `itemset` included.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from runner import dtype as dt
from runner.errors import ShapeError
from runner.types import Shape, TensorType, resolve_axes
from runner.validation.keywords import KeywordNames

V = TypeVar("V", bound="TensorMethods[Any]")  # Value
Axis = int | Sequence[int] | None


class TensorMethods(KeywordNames, Generic[V]):
    """Base of values: what they compute about themselves."""

    __slots__ = ()
    type: TensorType
    is_derived: ClassVar[bool] = False  # whether its class is derived from that of other values: a parameter

    def _operator(self, name: str) -> Callable[..., Callable[..., V]]:
        """The operator class of this name."""
        raise NotImplementedError

    def _apply(self, name: str, *operands: Any) -> V:
        """The result of a registered operator of values."""
        raise NotImplementedError

    def _itself(self) -> V:
        return self  # type: ignore[return-value]

    @property
    def data(self) -> V:
        """The value itself, with all its methods, as in the reference: `parameter.data.asnumpy()`."""
        return self._itself()

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
    def T(self) -> V:
        """The value with its axes in reverse order."""
        return self.transpose()

    def astype(self, dtype: Any, copy: bool = True) -> V:
        """The value cast to an element type, or to the type of that name; without `copy`, itself if it has it."""
        wanted = dt.of(dtype.lower() if isinstance(dtype, str) else dtype)
        return self._itself() if not copy and wanted is self.dtype else self._apply("Cast", self, wanted)

    # Bool and arithmetic

    def all(self, axis: Axis = (), keep_dims: bool = False) -> V:
        """Whether all elements (Bool) over `axis`, all axes by default, are true."""
        return self._reduced("ReduceAll", axis, keep_dims)

    def any(self, axis: Axis = (), keep_dims: bool = False) -> V:
        """Whether any element (Bool) over `axis`, all axes by default, is true."""
        return self._reduced("ReduceAny", axis, keep_dims)

    def abs(self) -> V:
        """The absolute value of each element."""
        return self._operator("Abs")()(self)

    def mean(self, axis: Axis = (), keep_dims: bool = False) -> V:
        """The mean over `axis`, all axes by default."""
        return self._reduced("ReduceMean", axis, keep_dims)

    def sum(self, axis: Axis = None, dtype: Any = None, keepdims: bool = False, initial: float | None = None) -> V:
        """The sum over `axis`, all axes by default, plus `initial`, cast to `dtype`; of Bool, a count."""
        x = self.astype(dt.int32) if self.dtype is dt.bool_ else self
        total = x._reduced("ReduceSum", axis, keepdims)
        total = total if initial is None else self._apply("Add", total, initial)
        return total if dtype is None else total.astype(dtype, copy=False)

    def max(self, axis: Axis = None, keepdims: bool = False, initial: float | None = None) -> V:
        """The largest element over `axis`, all axes by default; at least `initial`."""
        largest = self._reduced("ReduceMax", axis, keepdims)
        return largest if initial is None else self._operator("Maximum")()(largest, initial)

    def min(self, axis: Axis = None, keepdims: bool = False, initial: float | None = None) -> V:
        """The smallest element over `axis`, all axes by default; at most `initial`."""
        smallest = self._reduced("ReduceMin", axis, keepdims)
        return smallest if initial is None else self._operator("Minimum")()(smallest, initial)

    def argmax(self, axis: int | None = None) -> V:
        """The position of the largest element along `axis`, or in the flattened value."""
        return self._operator("Argmax")(0 if axis is None else axis)(self.ravel() if axis is None else self)

    def argmin(self, axis: int | None = None) -> V:
        """The position of the smallest element along `axis`, or in the flattened value."""
        return self._operator("Argmin")(0 if axis is None else axis)(self.ravel() if axis is None else self)

    def var(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> V:
        """The variance over `axis`, all axes by default: the sum of squares over the number of elements - `ddof`."""
        centred = self._apply("Sub", self, self.mean(axis, keep_dims=True))
        squares = self._operator("Square")()(centred)._reduced("ReduceSum", axis, keepdims)
        count = math.prod(self.shape[k] for k in resolve_axes(_frozen(axis), self.ndim))
        factor = 1.0 / (count - ddof) if count > ddof else np.inf  # as in numpy, of too few elements
        return self._apply("Mul", squares, factor)

    def std(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> V:
        """The square root of `var`."""
        return self._operator("Sqrt")()(self.var(axis, ddof, keepdims))

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> V:
        """The sum of all elements up to each one along `axis`, or in the flattened value."""
        x = self.ravel() if axis is None else self._itself()
        x = x.astype(dt.int32) if x.dtype in (dt.bool_, dt.int8, dt.int16, dt.uint8, dt.uint16) else x
        sums: V = self._operator("CumSum")(axis=axis or 0)(x)
        return sums if dtype is None else sums.astype(dtype, copy=False)

    def ptp(self, axis: Axis = None, keepdims: bool = False) -> V:
        """The largest minus the smallest element over `axis`, all axes by default."""
        return self._apply("Sub", self.max(axis, keepdims), self.min(axis, keepdims))

    def clip(self, xmin: Any, xmax: Any, dtype: Any = None) -> V:
        """The value limited to a range; a bound may be None."""
        x = self._itself() if xmin is None else self._operator("Maximum")()(self, xmin)
        x = x if xmax is None else self._operator("Minimum")()(x, xmax)
        return x if dtype is None else x.astype(dtype, copy=False)

    def _reduced(self, name: str, axis: Axis, keep_dims: bool) -> V:
        result: V = self._operator(name)(bool(keep_dims), () if axis is None else _frozen(axis))(self)
        return result

    # Shape

    def view(self, *shape: Any) -> V:
        """The same elements in another shape: ints, or one tuple; one -1 is inferred."""
        return self.reshape(*shape)

    def reshape(self, *shape: Any) -> V:
        """The same elements in another shape: ints, or one tuple or list; one -1 is inferred."""
        return self._operator("Reshape")(_listed(shape, "a shape"))(self)

    def ravel(self) -> V:
        """All elements along one axis."""
        return self.reshape(-1)

    def flatten(self, order: str = "C") -> V:
        """All elements along one axis, in row-major order ("C") or in column-major order ("F")."""
        if order not in ("C", "F"):
            raise ShapeError("unknown order of elements", given=order, allowed="C, F")
        return (self.transpose() if order == "F" else self).reshape(-1)

    def transpose(self, *axes: Any) -> V:
        """The value with its axes in another order: ints, or one tuple or list; in reverse order without any."""
        given = tuple(range(self.ndim))[::-1] if axes in ((), (None,)) else _listed(axes, "an order of axes")
        return self._operator("Transpose")(
            tuple(axis % self.ndim if -self.ndim <= axis < 0 else axis for axis in given)
        )(self)

    def swapaxes(self, axis1: int, axis2: int) -> V:
        """The value with two axes exchanged."""
        (first,), (second,) = resolve_axes(axis1, self.ndim), resolve_axes(axis2, self.ndim)
        order = list(range(self.ndim))
        order[first], order[second] = second, first
        return self.transpose(order)

    def squeeze(self, axis: Axis = None) -> V:
        """The value without the given axes, which must have length 1; by default, without all axes of length 1."""
        return self._operator("Squeeze")(() if axis is None else _frozen(axis))(self)

    def expand_as(self, x: V) -> V:
        """The value broadcast to the shape of x."""
        return self._operator("BroadcastTo")(x.shape)(self)

    def repeat(self, repeats: int, axis: int | None = None) -> V:
        """Each element `repeats` times along `axis`, or in the flattened value."""
        x = self.ravel() if axis is None else self._itself()
        (at,) = resolve_axes(axis or 0, x.ndim)
        positions = np.repeat(np.arange(x.shape[at]), repeats)
        return self._operator("Gather")(at)(x, positions)

    # Elements

    def copy(self) -> V:
        """A value with the same elements in memory of its own."""
        return self._operator("Cast")(self.dtype)(self)

    def fill(self, value: float | None) -> V:
        """A value of the same type with this number for every element; None is NaN."""
        return self._operator("BroadcastTo")(self.shape)(
            np.asarray(np.nan if value is None else value, self.dtype.numpy)
        )

    def item(self, index: int | tuple[int, ...] | None = None) -> V:
        """The element at an index, a number counting in row-major order, as a value without axes."""
        element: V = self._element(index, "item")[index if isinstance(index, tuple) else index or 0]
        return element

    def itemset(self, *args: Any) -> V:
        """A copy with another element: `itemset(number)` for one element, else `itemset(index, number)`."""
        index, number = args if len(args) == 2 else (None, args[0])
        x = self._element(index, "itemset").copy()
        changed = self._apply("assigned", x, index if isinstance(index, tuple) else index or 0, number)
        return self._operator("Reshape")(self.shape)(changed)

    def _element(self, index: object, method: str) -> Any:
        """What an index of one element applies to: the value, or the flattened value for a number."""
        if index is None and self.size != 1:
            rows = {"elements": self.size, "repair": f"{method} with an index: a number, or one for each axis"}
            raise ShapeError("only a value of one element has an element without an index", **rows)
        if isinstance(index, tuple) and len(index) != self.ndim:
            raise ShapeError("an element needs one number for each axis", given=index, shape=self.shape)
        return self if isinstance(index, tuple) else self.ravel()


def _frozen(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _listed(given: tuple[Any, ...], what: str) -> tuple[int, ...]:
    """Ints, or the only tuple or list."""
    numbers = tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given
    if not given or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers):
        raise ShapeError(f"{what} is ints, or one tuple or list of them", given=given)
    return tuple(map(int, numbers))

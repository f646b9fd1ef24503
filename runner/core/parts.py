"""How operators compute a part of a batch, so that threads and ranks can compute the parts at once.

A value is divided along one axis: part p of P has the rows i with i mod P = p, as MindSpore deals samples to ranks. An
axis may have several rows for each sample, one after the other, as (N * T, C) has. An operator says what it computes of
divided operands (`Primitive.part`): a part of its results, or terms that make a result when those of all parts are
added. It never looks at who computes a part, or how many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from runner.types import Shape, TensorType, broadcast

T = TypeVar("T")
Operator = Any  # a Primitive, which has such rules
Axis = int | None  # along which a value is divided; None: every part has the whole value
Axes = Sequence[Axis]


MOST_PARTS = 8
PART_SAMPLES = 16  # at least: with fewer, products and rows of memory are so short that a part takes longer for each


def most_parts(batch: int) -> int:
    """The largest number of parts that a batch can have.

    >>> [most_parts(batch) for batch in (16, 32, 48, 64, 100, 256, 4096)]
    [1, 2, 2, 4, 4, 8, 8]
    """
    count = 1
    while 2 * count <= MOST_PARTS and batch % (2 * count) == 0 and batch // (2 * count) >= PART_SAMPLES:
        count *= 2
    return count


@dataclass(frozen=True)
class Parts:
    """`count` parts, a power of two, of a batch of `batch` samples; `ranks` processes have as many each."""

    count: int
    batch: int
    ranks: int = 1

    def divides(self, length: int) -> bool:
        """Whether an axis of this length can be divided: it has the same number of rows for each sample."""
        return length % self.batch == 0 and length > 0

    def of(self, x: TensorType, axis: int) -> TensorType:
        """The type of a part of a value.

        >>> from runner import dtype
        >>> Parts(4, 32).of(TensorType(dtype.float32, (32, 3)), 0).shape
        (8, 3)
        """
        return x.with_shape(*x.shape[:axis], x.shape[axis] // self.count, *x.shape[axis + 1 :])

    def rows(self, length: int) -> int:
        """How many rows of an axis of this length one sample has; a row for each part counts as one."""
        return max(1, length // self.batch)

    def split(self, x: np.ndarray, axis: int) -> list[np.ndarray]:
        """The parts of an array, in order.

        >>> [part.tolist() for part in Parts(2, 4).split(np.arange(8), 0)]
        [[0, 1, 4, 5], [2, 3, 6, 7]]
        """
        dealt, shape = x.reshape(self.dealt(x.shape, axis)), list(x.shape)
        shape[axis] //= self.count
        return [np.take(dealt, part, axis + 1).reshape(shape) for part in range(self.count)]

    def join(self, parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
        """The array of which these are the parts."""
        shape = list(parts[0].shape)
        shape[axis] *= self.count
        first, _, rows, *rest = self.dealt(tuple(shape), axis)[axis:]
        return np.stack([x.reshape(*shape[:axis], first, rows, *rest) for x in parts], axis + 1).reshape(shape)

    def dealt(self, shape: Shape, axis: int) -> Shape:
        """The shape in which the parts have an axis of their own, `axis` + 1."""
        rows = self.rows(shape[axis])
        return (*shape[:axis], shape[axis] // (self.count * rows), self.count, rows, *shape[axis + 1 :])


def parts_of_rank(batch: int, ranks: int, is_even: bool = True) -> Parts:
    """The parts of a process that has `batch` samples, as each of `ranks` processes has if the batch `is_even`.

    The size of the whole batch says how many parts there are, so that each number of ranks has the same ones.
    """
    return Parts(max(1, most_parts(batch * ranks) // ranks if is_even else 1), batch, ranks)


@dataclass
class DividedArray:
    """An array of which each part has its own: the rows along `axis` that belong to it, once they are asked for."""

    parts: Parts
    axis: int
    own: Sequence[np.ndarray] | None = None

    def joined(self) -> np.ndarray:
        """The whole array."""
        assert self.own is not None
        return self.parts.join(self.own, self.axis)


@dataclass(frozen=True)
class PartRule:
    """What an operator computes of one part of a batch: `op`, of operands and with results divided along these axes.

    A result without an axis is a term: the whole result is the sum of those of all parts. Results and sums are then
    multiplied by `scale`, a power of two. Of the results in `same`, every part has the whole.
    """

    op: Operator
    operands: tuple[Axis, ...]
    results: tuple[Axis, ...]
    scale: float = 1.0
    same: tuple[int, ...] = ()


@dataclass(frozen=True)
class Replacement:
    """Operators that compute another one where its batch is divided, for one that needs the whole batch in between.

    Operands are numbered from 0, then the results of the `steps`, each an operator and the numbers of its operands, in
    order; `results` are the numbers of the results.
    """

    steps: tuple[tuple[Operator, tuple[int, ...]], ...]
    results: tuple[int, ...]

    def compute(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The results by the kernels of the operators."""
        values = list(arrays)
        for op, places in self.steps:
            made = op.kernel(*[values[k] for k in places])
            values += made if isinstance(made, tuple) else (made,)
        return tuple([values[k] for k in self.results])


class Steps:
    """Collects the operators of a `Replacement` for operands of these types; values have numbers."""

    def __init__(self, types: Sequence[TensorType]) -> None:
        self.types = list(types)
        self._steps: list[tuple[Operator, tuple[int, ...]]] = []

    def add(self, op: Operator, *operands: int) -> tuple[int, ...]:
        """Add an operator; the numbers of its results."""
        self._steps.append((op, operands))
        inferred = op.infer(*[self.types[k] for k in operands])
        made = inferred if isinstance(inferred, tuple) else (inferred,)
        self.types += made
        return tuple(range(len(self.types) - len(made), len(self.types)))

    def end(self, *results: int) -> Replacement:
        """All of them, with the numbers of the results."""
        return Replacement(tuple(self._steps), results)


def rule_of(
    op: Operator, types: Sequence[TensorType], now: Axes, possible: Axes, parts: Parts
) -> Replacement | PartRule | None:
    """How an operator is computed of operands that are divided along the axes `now`, or else where others are divided
    too, along `possible` ones; None if it is computed once, for the whole batch."""
    for axes in (now, possible):
        if all(axis is None for axis in axes):
            continue
        found: Replacement | PartRule | None = op.divided(types, axes, parts)
        if found is None:
            found = op.part(types, axes, parts)
        if found is not None:
            return found
    return None


def each_element(op: Operator, types: Sequence[TensorType], axes: Axes) -> PartRule | None:
    """The part of an operator that computes every element of operands that are broadcast separately."""
    shape = broadcast(*types)
    places = {axis + len(shape) - x.ndim for x, axis in zip(types, axes, strict=True) if axis is not None}
    if len(places) != 1:
        return None
    (place,) = places
    own = [place - len(shape) + x.ndim for x in types]
    operands = [k if k >= 0 and x.shape[k] == shape[place] else None for x, k in zip(types, own, strict=True)]
    fits = all(axis is None or axis == k for axis, k in zip(axes, operands, strict=True))
    return PartRule(op, tuple(operands), (place,)) if fits else None


def each_sample(op: Operator, axes: Axes, operands: Axes, results: Axes, scale: float = 1.0) -> PartRule | None:
    """The part of an operator that computes samples along these axes of operands separately; a result without an axis
    is a sum over the samples. None where an operand is divided along another axis."""
    fits = all(axis is None or axis == own for axis, own in zip(axes, operands, strict=True))
    return PartRule(op, tuple(operands), tuple(results), scale) if fits else None


def apart_from(
    op: Operator, types: Sequence[TensorType], axes: Axes, used: Sequence[int], results: int = 1
) -> PartRule | None:
    """The part of an operator whose results have the axes of its operand, which it computes separately but for `used`
    ones, counted from the end where they are negative."""
    axis = next(axis for axis in axes if axis is not None)
    if axis in [k % types[0].ndim for k in used]:
        return None
    return each_sample(op, axes, (axis,) * len(axes), (axis,) * results)


def replaced(shape: Shape, axis: int, parts: Parts) -> Shape:
    """A shape in which an axis has the length of a part."""
    return (*shape[:axis], shape[axis] // parts.count, *shape[axis + 1 :])


def added(terms: Sequence[T], add: Callable[[T, T], T]) -> T:
    """The sum of terms, added in pairs with half of their number between them.

    >>> added(["a", "b", "c", "d"], lambda x, y: f"({x} + {y})")
    '((a + c) + (b + d))'
    """
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        pairs = [add(x, y) for x, y in zip(terms, terms[half:], strict=False)]
        terms = [*pairs, *terms[len(pairs) : half]]
    return terms[0]

"""Aligns two sequences of operators: the pairs in order, without crossing, whose likeness has the largest sum.

The table of dynamic programming is computed a row at a time: 5,000 operators against 5,000 take a second and 25 MB.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from runner.observe.dump.operator_traits import Traits

# The weights of what two operators of the same kind have in common. An operand weighs more than an operator: one pair
# with the same operands is better than two pairs without.
PAIR, SHAPES, DTYPES, OPERAND = 2, 3, 1, 8
MAX_OPERANDS = 4
_LEFT, _UP, _PAIR = 0, 1, 2


class _Codes(NamedTuple):
    """Traits as numbers, one row for each operator."""

    kinds: np.ndarray
    parameters: np.ndarray  # 0: none
    shapes: np.ndarray
    dtypes: np.ndarray
    operands: np.ndarray  # [operator, MAX_OPERANDS]; negative: none


def align(a: Sequence[Traits], b: Sequence[Traits]) -> list[tuple[int, int]]:
    """The pairs as indices. Operators that alone have their parameters are pairs wherever they are.

    >>> x, y = Traits("Conv2D"), Traits("ReLU")
    >>> align([x, y, x], [x, x])
    [(0, 0), (2, 1)]
    """
    known = _by_parameters(a, b)
    x, y = ([k for k in range(len(side)) if k not in used] for side, used in ((a, known), (b, set(known.values()))))
    found = [(x[i], y[j]) for i, j in _trimmed([a[k] for k in x], [b[k] for k in y])]
    return sorted([*known.items(), *found])


def _by_parameters(a: Sequence[Traits], b: Sequence[Traits]) -> dict[int, int]:
    ours: dict[Hashable, list[int]] = {}
    theirs: dict[Hashable, list[int]] = {}
    for found, side in ((ours, a), (theirs, b)):
        for k, one in enumerate(side):
            if one.parameters:
                found.setdefault((one.kind, one.parameters), []).append(k)
    return {ours[key][0]: theirs[key][0] for key in ours if len(ours[key]) == len(theirs.get(key, ())) == 1}


def _trimmed(a: Sequence[Traits], b: Sequence[Traits]) -> list[tuple[int, int]]:
    """Pair equal operators at both ends, and align the others."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle = _align(a[start : len(a) - end], b[start : len(b) - end])
    head = [(k, k) for k in range(start)]
    tail = [(len(a) - k, len(b) - k) for k in range(end, 0, -1)]
    return [*head, *((start + i, start + j) for i, j in middle), *tail]


def _align(a: Sequence[Traits], b: Sequence[Traits]) -> list[tuple[int, int]]:
    numbers: dict[Hashable, int] = {(): 0}
    x, y = _codes(a, numbers, -1), _codes(b, numbers, -2)
    moves = np.empty((len(a), len(b)), np.int8)
    best = np.zeros(len(b) + 1, np.int64)  # of the operators of A so far with the first k of B
    for i in range(len(a)):
        likeness = _likeness(x, i, y)
        paired = np.where(likeness > 0, best[:-1] + likeness, 0)
        above = np.maximum(best[1:], paired)
        row = np.concatenate(([0], np.maximum.accumulate(above)))
        moves[i] = np.where(row[1:] == row[:-1], _LEFT, np.where(row[1:] == best[1:], _UP, _PAIR))
        best = row
    return _pairs(moves)


def _pairs(moves: np.ndarray) -> list[tuple[int, int]]:
    found = []
    i, j = (size - 1 for size in moves.shape)
    while i >= 0 and j >= 0:
        move = moves[i, j]
        if move == _PAIR:
            found.append((i, j))
        i -= move != _LEFT
        j -= move != _UP
    return found[::-1]


def _likeness(x: _Codes, i: int, y: _Codes) -> np.ndarray:
    """How much operator `i` of X has in common with each one of Y; 0 if they cannot be paired.

    Operators with other parameters of other shapes are not the same: a layer was removed and another one added.
    """
    same_shapes = x.shapes[i] == y.shapes
    found = PAIR + SHAPES * same_shapes + DTYPES * (x.dtypes[i] == y.dtypes)
    found = found + OPERAND * (x.operands[i] == y.operands).sum(1)
    has_parameters = (x.parameters[i] != 0) & (y.parameters != 0)
    is_other = has_parameters & (x.parameters[i] != y.parameters) & ~same_shapes
    result: np.ndarray = np.where((x.kinds[i] == y.kinds) & ~is_other, found, 0)
    return result


def _codes(traits: Sequence[Traits], numbers: dict[Hashable, int], none: int) -> _Codes:
    def encoded(values: Sequence[Hashable]) -> np.ndarray:
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)

    operands = np.full((len(traits), MAX_OPERANDS), none, np.int64)
    for k, one in enumerate(traits):
        found = encoded(one.operands[:MAX_OPERANDS])
        operands[k, : len(found)] = found
    parameters = encoded([one.parameters for one in traits])
    kinds, shapes, dtypes = (
        encoded([(name, getattr(x, name)) for x in traits]) for name in ("kind", "shapes", "dtypes")
    )
    return _Codes(kinds, parameters, shapes, dtypes, operands)

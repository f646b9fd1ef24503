"""Batches of another size than the one that a file fixes, as files have it that were exported without free axes.

Shapes in such a file are those of its own batch. `OtherBatch` has the shapes of all values of the file for that size;
where a value has another shape now, the axis that carries the batch is known.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runner.types import Shape


@dataclass(frozen=True, eq=False)
class OtherBatch:
    """The batch size of the file, that of the batch, and shapes of values by name, for the size of the file."""

    length: int
    rows: int
    shapes: Mapping[str, Shape]
    # For axes in which a batch is joined with others, by their lengths in the file and now: how many of the elements
    # of the axis differ before the batch does.
    _joined: dict[tuple[int, int], int] = field(default_factory=dict)

    def reshaped(self, source: str, result: str, now: Shape) -> Shape | None:
        """The shape that a value gets by reshaping it, or None if it carries no batch; `now` is its shape."""
        before, wanted = self.shapes.get(source, now), self.shapes.get(result)
        axis = _changed(before, now)
        if axis is None or wanted is None:
            return None
        lengths = before[axis], now[axis]
        start = math.prod(before[:axis]) * self._joined.get(lengths, 1)
        place = self._place(wanted, start, before[axis + 1 :], lengths)
        new = wanted[place] * now[axis] // before[axis]
        self._joined[wanted[place], new] = max(1, start // math.prod(wanted[:place]))
        return tuple(new if k == place else n for k, n in enumerate(wanted))

    def expanded(self, source: str, result: str, now: Shape) -> Shape | None:
        """The shape to which a value is broadcast, or None if it is that of the file."""
        before, wanted = self.shapes.get(source, now), self.shapes.get(result)
        axis = _changed(before, now)
        if not wanted or (axis is None and (wanted[0] != self.length or (len(now) == len(wanted) and now[0] != 1))):
            return None
        place = 0 if axis is None else axis + len(wanted) - len(now)
        rows = self.rows if axis is None else now[axis]
        return tuple(rows if k == place else n for k, n in enumerate(wanted))

    def _place(self, wanted: Shape, start: int, rest: Shape, lengths: tuple[int, int]) -> int:
        """The axis of a new shape that gets the batch, which begins after `start` elements; `rest` are the axes after
        it.
        """
        fits = [k for k, n in enumerate(wanted) if n * lengths[1] % lengths[0] == 0]
        exact = [k for k in fits if math.prod(wanted[:k]) == start]
        alone = [k for k in exact if wanted[k] == self.length]
        inside = [k for k in fits if math.prod(wanted[:k]) <= start < math.prod(wanted[: k + 1])]
        if exact and not alone and exact[0] > 0 and self.length == 1 and len(wanted) - exact[0] <= len(rest):
            return exact[0] - 1  # (positions, 1, features) as (positions, features)
        return (alone or exact or inside or [0])[0]

    def is_lost(self, sources: Iterable[tuple[str, Shape]], result: str, now: Shape) -> bool:
        """Whether a result has no batch although one of the values of which it is made has one."""
        before = self.shapes.get(result)
        return before == now != () and any(self.shapes.get(name, shape) != shape for name, shape in sources)

    def is_constant(self, name: str, now: Shape) -> bool:
        """Whether a value has the batch size of the file in its first axis, and no batch."""
        return bool(now) and now[0] == self.length and self.shapes.get(name) == now


def _changed(before: Shape, now: Shape) -> int | None:
    """The axis that carries the batch: the one whose length is another one."""
    if len(before) != len(now):
        return None
    axes = [k for k, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
    return axes[0] if len(axes) == 1 else None

"""Sums over all ranks in the order of ranks: the same bits on every rank and in every run.

MPI libraries may add in any order, and do so differently (three libraries give two results for the sum of four ranks).
Here every rank receives the parts of all others and adds them in the order of ranks, with messages from rank to rank:
of a small bucket all of it, of a larger one a piece, whose sum it sends to all. Among very many ranks those messages
would take longer than their bytes; then ranks are rows of a grid, and the sums of rows are added in the order of rows.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np

PIECE_BYTES = 4 << 20  # of a segment; 1 to 8 MiB take the same time here, and fewer are fewer messages
WHOLE_BYTES = 256 << 10  # that a rank sends of a small bucket
GRID_RANKS = 64  # from here on the model of docs/design/ranks.md expects more than a tenth for messages
TAGS = 1 << 14  # of messages; MPI has at least twice as many


class Messages(Protocol):
    """What carries the messages."""

    rank: int
    size: int

    def exchange(self, name: str, *buffers: np.ndarray, **how: int) -> Any:
        """Start a non-blocking MPI call on arrays as bytes."""

    def finish(self, request: Any) -> bool:
        """Wait for it."""


class Scratch:
    """Memory for received parts, kept from step to step: fresh pages would cost as much as the sums."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, np.dtype[Any]], list[np.ndarray]] = {}

    def take(self, count: int, kind: np.dtype[Any]) -> np.ndarray:
        """An array of so many elements, whose values are undefined."""
        free = self._free.get((count, kind))
        return free.pop() if free else np.empty(count, kind)

    def give(self, array: np.ndarray) -> None:
        """Return an array that was taken."""
        self._free.setdefault((array.size, array.dtype), []).append(array)


class OrderedSum:
    """The sum of a bucket; the constructor starts to send this rank's parts.

    `members` are the ranks that add, in order. `number` is the same on all of them, and no other sum that has begun has
    it. The arrays may not change before the result is there.
    """

    def __init__(
        self,
        messages: Messages,
        scratch: Scratch,
        arrays: Sequence[np.ndarray],
        number: int,
        members: Sequence[int],
    ) -> None:
        self.messages, self.scratch, self.number, self.members = messages, scratch, number, members
        self.place, self.size = members.index(messages.rank), len(members)
        self.of_parts = 1 + 2 * number % TAGS
        self.of_sums = self.of_parts + 1
        self.arrays = list(arrays)  # referenced, so that their ids stay unique
        # From the next place on, so that not all send to the same one at the same time.
        self.others = [(self.place + k) % self.size for k in range(1, self.size)]
        self.sent = np.concatenate([a.ravel() for a in arrays]) if len(arrays) > 1 else arrays[0].reshape(-1)
        self.total = np.empty_like(self.sent)
        self._start()

    def result(self) -> list[np.ndarray]:
        """Wait for all parts; the sums."""
        with np.errstate(all="ignore"):  # overflow is detected by the step
            self._finish()
        ends = accumulate(a.size for a in self.arrays)
        return [self.total[end - a.size : end].reshape(a.shape) for end, a in zip(ends, self.arrays, strict=True)]

    def _start(self) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _receive(self, tag: int, parts: Sequence[np.ndarray]) -> list[Any]:
        """Start to receive from each other member; `parts` has an entry per member."""
        exchange, members = self.messages.exchange, self.members
        return [exchange("Irecv", parts[k], source=members[k], tag=tag) for k in self.others]

    def _send(self, tag: int, parts: Sequence[np.ndarray]) -> list[Any]:
        exchange, members = self.messages.exchange, self.members
        return [exchange("Isend", parts[k], dest=members[k], tag=tag) for k in self.others]

    def _wait(self, requests: Sequence[Any]) -> None:
        for request in requests:
            self.messages.finish(request)


class WholeSum(OrderedSum):
    """Every rank sends its whole bucket to all others and adds for itself, so there is one wait."""

    def _start(self) -> None:
        self.parts = list(np.empty((self.size, self.sent.size), self.sent.dtype))
        self.requests = self._receive(self.of_parts, self.parts) + self._send(self.of_parts, [self.sent] * self.size)
        self.parts[self.place] = self.sent

    def _finish(self) -> None:
        self._wait(self.requests)
        add(self.parts, self.total)


class PiecewiseSum(OrderedSum):
    """A reduce-scatter and an all-gather, which move 2 n numbers for any number of ranks.

    The bucket is cut into segments of one piece per rank: while one is added, others arrive.
    """

    def _start(self) -> None:
        place, size = self.place, self.size
        self.sums = list(segments(self.total, size))
        self.memory = self.scratch.take(size * sum(pieces[place].size for pieces in self.sums), self.sent.dtype)
        self.parts: list[list[np.ndarray]] = []
        self.requests: list[list[Any]] = []
        self.last: list[Any] = []
        start = 0
        for sent, sums in zip(segments(self.sent, size), self.sums, strict=True):
            count = sums[place].size
            parts = [self.memory[start + k * count : start + (k + 1) * count] for k in range(size)]
            self.requests.append(self._receive(self.of_parts, parts) + self._send(self.of_parts, sent))
            self.last += self._receive(self.of_sums, sums)
            parts[place] = sent[place]
            self.parts.append(parts)
            start += size * count

    def _finish(self) -> None:
        for sums, parts, requests in zip(self.sums, self.parts, self.requests, strict=True):
            self._wait(requests)
            add(parts, sums[self.place])
            self._share(sums)
        self._end()

    def _share(self, sums: Sequence[np.ndarray]) -> None:
        """Send this rank's sum of one segment."""
        self.last += self._send(self.of_sums, [sums[self.place]] * self.size)

    def _end(self) -> None:
        self._wait(self.last)
        self.scratch.give(self.memory)


def add(parts: Sequence[np.ndarray], total: np.ndarray) -> None:
    """Into `total` the sum of the parts of two or more ranks, in their order."""
    np.add(parts[0], parts[1], out=total)
    for part in parts[2:]:
        np.add(total, part, out=total)


def segments(flat: np.ndarray, ranks: int) -> Iterator[list[np.ndarray]]:
    """Views of one piece per rank, of at most `PIECE_BYTES`; those of the last segment may differ in size."""
    most = max(1, PIECE_BYTES // flat.itemsize) * ranks
    for start in range(0, flat.size, most):
        segment = flat[start : start + most]
        bounds = [segment.size * k // ranks for k in range(ranks + 1)]
        yield [segment[low:high] for low, high in pairwise(bounds)]


class GridSum(PiecewiseSum):
    """A piecewise sum of a row of ranks, whose pieces are added with those of other rows before they are shared.

    Of R rows of C ranks, a rank sends 2 (R + C - 2) messages for each segment instead of 2 (R C - 1).
    """

    def _share(self, sums: Sequence[np.ndarray]) -> None:
        """Wait for the last segment."""

    def _end(self) -> None:
        own = [sums[self.place] for sums in self.sums]
        column = range(self.messages.rank % self.size, self.messages.size, self.size)
        inner = among(self.messages, self.scratch, own, self.number, column)
        for piece, total in zip(own, inner.result(), strict=True):
            piece[...] = total
        for sums in self.sums:
            super()._share(sums)
        super()._end()


def ordered_sum(messages: Messages, scratch: Scratch, arrays: Sequence[np.ndarray], number: int) -> OrderedSum:
    """Start the sum over all ranks of a bucket of arrays of one element type, with the same shapes on all ranks."""
    rows, columns = grid(messages.size)
    if rows == 1 or _is_small(arrays, messages.size):
        return among(messages, scratch, arrays, number, range(messages.size))
    first = messages.rank // columns * columns
    return GridSum(messages, scratch, arrays, number, range(first, first + columns))


def among(
    messages: Messages, scratch: Scratch, arrays: Sequence[np.ndarray], number: int, members: Sequence[int]
) -> OrderedSum:
    """Start the sum over some ranks, in their order."""
    kind = WholeSum if _is_small(arrays, len(members)) else PiecewiseSum
    return kind(messages, scratch, arrays, number, members)


def _is_small(arrays: Sequence[np.ndarray], ranks: int) -> bool:
    return sum(array.nbytes for array in arrays) * (ranks - 1) <= WHOLE_BYTES


def grid(ranks: int) -> tuple[int, int]:
    """Rows and columns, as equal as the number of ranks allows; one row of few ranks, or of a prime number of them."""
    if ranks < GRID_RANKS:
        return 1, ranks
    rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
    return rows, ranks // rows

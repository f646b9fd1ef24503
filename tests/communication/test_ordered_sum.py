"""Sums in the order of ranks, between threads that are ranks of one process."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import numpy as np
import pytest

from runner.communication import world as module
from runner.communication.world import Scratch, grid, ordered_sum, segments


class Rank:
    """Messages of one rank, through queues."""

    def __init__(self, rank, size, boxes):
        self.rank, self.size, self.boxes, self.messages = rank, size, boxes, 0

    def exchange(self, name, buffer, tag, source=None, dest=None):
        if name == "Isend":
            self.messages += 1
            self.boxes[self.rank, dest, tag].put(buffer.copy())
            return None
        return buffer, self.boxes[source, self.rank, tag]

    def finish(self, request):
        if request is not None:
            buffer, box = request
            buffer[...] = box.get()
        return True


def summed(size, shapes):
    """What each rank has and gets, and how many messages it sends."""
    boxes = defaultdict(Queue)
    for source in range(size):
        for dest in range(size):
            for tag in (7, 8):
                boxes[source, dest, tag]
    given = [
        [np.random.default_rng([r, k]).normal(size=s).astype(np.float32) for k, s in enumerate(shapes)]
        for r in range(size)
    ]
    ranks = [Rank(r, size, boxes) for r in range(size)]
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(lambda r: ordered_sum(r, Scratch(), given[r.rank], 3).result(), r) for r in ranks]
        made = [future.result() for future in futures]
    return given, made, ranks[0].messages


def in_pairs(parts):
    """((p0 + p2) + (p1 + p3)), and what has no partner waits: (p0 + p2) + p1."""
    while len(parts) > 1:
        half = -(-len(parts) // 2)
        pairs = [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(parts, parts[half:], strict=False)]
        parts = pairs + parts[len(pairs) : half]
    return parts[0]


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("shapes", [((3, 4), (), (7,)), ((1000,), (2, 3)), ((1,),), ((0,), (9,))])
@pytest.mark.parametrize("whole", [0, 1 << 20])
def test_ranks_are_added_in_pairs(monkeypatch, size, shapes, whole):
    monkeypatch.setattr(module, "PIECE_BYTES", 256)
    monkeypatch.setattr(module, "WHOLE_BYTES", whole)
    given, made, _ = summed(size, shapes)
    expected = [a.tobytes() for a in in_pairs(given)]
    for rank in range(size):
        assert [a.tobytes() for a in made[rank]] == expected
        assert [a.shape for a in made[rank]] == list(shapes)


@pytest.mark.parametrize("size", [12, 16])
def test_many_ranks_add_columns_and_then_the_sums_of_columns(monkeypatch, size):
    monkeypatch.setattr(module, "GRID_RANKS", 12)
    monkeypatch.setattr(module, "PIECE_BYTES", 4096)
    monkeypatch.setattr(module, "WHOLE_BYTES", 0)
    rows = size // 4
    assert grid(size) == (rows, 4)
    given, made, messages = summed(size, ((2000,), (5,)))
    expected = in_pairs([in_pairs(given[column::4]) for column in range(4)])
    for rank in range(size):
        assert [a.tobytes() for a in made[rank]] == [a.tobytes() for a in expected]
    assert messages == 2 * 3 + 2 * (rows - 1)
    if size == 16:  # a power of two: as in one process
        assert [a.tobytes() for a in expected] == [a.tobytes() for a in in_pairs(given)]


def test_grids():
    assert [grid(n) for n in (2, 63, 64, 67, 1000, 1024)] == [
        (1, 2),
        (1, 63),
        (8, 8),
        (1, 67),
        (25, 40),
        (32, 32),
    ]


def test_segments_are_views_of_all_elements_in_order(monkeypatch):
    monkeypatch.setattr(module, "PIECE_BYTES", 1 << 20)
    flat = np.arange(1_000_003, dtype=np.float32)
    found = list(segments(flat, 3))
    assert np.array_equal(np.concatenate([piece for pieces in found for piece in pieces]), flat)
    assert all(len(pieces) == 3 for pieces in found)
    assert max(piece.nbytes for pieces in found for piece in pieces) <= module.PIECE_BYTES
    assert all(np.shares_memory(piece, flat) for pieces in found for piece in pieces)


def test_memory_is_taken_again():
    scratch = Scratch()
    first = scratch.take(3, np.dtype(np.float32))
    scratch.give(first)
    assert scratch.take(3, np.dtype(np.float64)) is not first
    assert scratch.take(3, np.dtype(np.float32)) is first
    assert scratch.take(3, np.dtype(np.float32)) is not first

"""Orders are permutations, differ between epochs, and shuffle as a buffer does."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from runner.dataset.order import NO_VISIT, Batched, Repeated, Sharded, Shuffled, SourceOrder, shuffled
from runner.host import seed


def buffer_by_hand(count: int, buffer_size: int, generator: np.random.Generator) -> list[int]:
    """A shuffle buffer as one would write it down, item by item."""
    draws = generator.integers(buffer_size, size=count - buffer_size)
    buffer, left = list(range(buffer_size)), []
    for item, place in zip(range(buffer_size, count), draws, strict=True):
        left.append(buffer[place])
        buffer[place] = item
    return left + [buffer[k] for k in generator.permutation(buffer_size)]


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 9))
def test_shuffled_is_a_buffer(count: int, buffer_size: int, number: int) -> None:
    order = shuffled(count, buffer_size, np.random.default_rng(number))
    assert order.dtype == np.int64
    if buffer_size < count:
        assert order.tolist() == buffer_by_hand(count, buffer_size, np.random.default_rng(number))
    assert sorted(order.tolist()) == list(range(count))


@given(st.integers(2, 300), st.integers(1, 40))
def test_nothing_leaves_the_buffer_before_it_came(count: int, buffer_size: int) -> None:
    order = shuffled(count, buffer_size, np.random.default_rng(0))
    assert (np.arange(count) > order - buffer_size).all()


def test_a_full_buffer_makes_all_orders_equally_likely() -> None:
    seen = {tuple(shuffled(4, 4, np.random.default_rng(k)).tolist()) for k in range(400)}
    assert len(seen) == 24


def test_epochs_differ_and_seeds_differ_and_both_come_back() -> None:
    order = Shuffled(SourceOrder(100), 100)
    first = order.visits(0)
    np.testing.assert_array_equal(first, order.visits(0))
    assert (first != order.visits(1) % 100).any()
    seed.set_seed(2)
    assert (first != order.visits(0)).any()
    seed.set_seed(1)
    np.testing.assert_array_equal(first, order.visits(0))


def test_two_shuffles_draw_independently() -> None:
    once = Shuffled(SourceOrder(50), 50)
    twice = Shuffled(once, 50)
    draws = np.argsort(once.visits(0))[twice.visits(0)]  # the second permutation alone
    assert (draws != once.visits(0)).any()


@given(st.integers(1, 5), st.integers(0, 3))
def test_repeat_gives_each_pass_its_own_order(times: int, epoch: int) -> None:
    once = Shuffled(SourceOrder(20), 20)
    passes = Repeated(once, times).visits(epoch).reshape(times, 20)
    for k, rows in enumerate(passes):
        np.testing.assert_array_equal(rows, once.visits(epoch * times + k))
        assert (rows // 20 == epoch * times + k).all()
        assert sorted(rows % 20) == list(range(20))


@given(st.integers(1, 60), st.integers(1, 7), st.integers(0, 3))
def test_shards_are_disjoint_and_cover_the_order(count: int, num_shards: int, epoch: int) -> None:
    whole = Shuffled(SourceOrder(count), count)
    shards = [Sharded(whole, num_shards, k) for k in range(num_shards)]
    parts = [shard.visits(epoch) for shard in shards]
    assert [shard.count for shard in shards] == [len(part) for part in parts]
    assert sorted(np.concatenate(parts) - epoch * count) == list(range(count))
    np.testing.assert_array_equal(parts[0], whole.visits(epoch)[::num_shards])


@pytest.mark.parametrize(
    ("count", "size", "drop", "expected"),
    [
        (6, 3, True, [[0, 1, 2], [3, 4, 5]]),
        (7, 3, True, [[0, 1, 2], [3, 4, 5]]),
        (7, 3, False, [[0, 1, 2], [3, 4, 5], [6, NO_VISIT, NO_VISIT]]),
        (2, 3, False, [[0, 1, NO_VISIT]]),
    ],
)
def test_batches(count: int, size: int, drop: bool, expected: list[list[int]]) -> None:
    order = Batched(SourceOrder(count), size, drop)
    assert order.visits(0).tolist() == expected
    assert order.count == len(expected)


def test_a_batch_may_belong_to_two_passes() -> None:
    order = Batched(Repeated(SourceOrder(5), 3), 4, False)
    assert order.visits(0).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, NO_VISIT]]
    assert order.visits(1)[0].tolist() == [15, 16, 17, 18]


def test_shuffle_after_batch_moves_whole_batches() -> None:
    order = Shuffled(Batched(SourceOrder(40), 4, True), 10)
    rows = order.visits(0)
    assert (np.diff(rows, axis=1) == 1).all()
    assert sorted(rows[:, 0].tolist()) == list(range(0, 40, 4))
    assert rows[:, 0].tolist() != list(range(0, 40, 4))

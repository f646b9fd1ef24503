"""Batches prepared ahead: in order, few of them, with their errors, and no thread that stays."""

import threading
import time

import numpy as np
import pytest

from runner.dataset.prefetch import WORTH_A_THREAD, prefetched, threads_for

BATCHES = [np.array([k]) for k in range(40)]


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("runner-dataset")]


def doubled(batch: np.ndarray) -> int:
    time.sleep(0.002 if batch[0] % 3 else 0.0)  # later ones are often ready first
    return 2 * int(batch[0])


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_the_order_is_kept(threads: int) -> None:
    assert list(prefetched(doubled, BATCHES, threads)) == [2 * k for k in range(40)]
    assert names() == []


@pytest.mark.parametrize("threads", [1, 3])
def test_the_next_batches_are_ready_and_no_more(threads: int) -> None:
    asked: list[int] = []
    idle = threading.Event()

    def fetch(batch: np.ndarray) -> int:
        asked.append(int(batch[0]))
        if len(asked) == wanted:
            idle.set()
        return int(batch[0])

    taken: list[int] = []
    wanted = 2 * threads + 1
    items = prefetched(fetch, (taken.append(int(b[0])) or b for b in BATCHES), threads)
    assert next(items) == 0
    assert idle.wait(5)  # nobody asked for a second batch
    time.sleep(0.02)
    assert sorted(asked) == taken == list(range(wanted))
    idle.clear()
    wanted += 1
    assert next(items) == 1
    assert idle.wait(5)
    assert sorted(asked) == list(range(wanted))
    items.close()
    assert names() == []


def test_without_threads_nothing_is_prepared_before_it_is_asked_for() -> None:
    asked: list[int] = []
    items = prefetched(lambda batch: asked.append(int(batch[0])), BATCHES, 0)
    next(items)
    next(items)
    assert asked == [0, 1]
    assert names() == []


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_an_error_comes_at_its_batch_with_its_text(threads: int) -> None:
    def fetch(batch: np.ndarray) -> int:
        if batch[0] == 7:
            raise ValueError("row 7 is bad")
        return int(batch[0])

    seen = []
    items = prefetched(fetch, BATCHES, threads)
    with pytest.raises(ValueError, match=r"^row 7 is bad$"):
        seen.extend(items)
    assert seen == list(range(7))
    assert names() == []


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_the_order_ends_the_threads_too(threads: int) -> None:
    def batches():
        yield BATCHES[0]
        raise KeyError("order")

    with pytest.raises(KeyError, match="order"):
        list(prefetched(doubled, batches(), threads))
    assert names() == []


def test_closing_waits_for_what_is_being_prepared_and_drops_the_rest() -> None:
    begun, ended = [], []

    def fetch(batch: np.ndarray) -> None:
        begun.append(int(batch[0]))
        time.sleep(0.05 if batch[0] else 0.0)
        ended.append(int(batch[0]))

    items = prefetched(fetch, BATCHES, 1)
    next(items)
    time.sleep(0.01)
    items.close()
    assert begun == ended
    assert len(begun) < 3
    assert names() == []


def test_one_that_was_never_used_needs_no_end() -> None:
    prefetched(doubled, BATCHES, 2)
    assert names() == []


def test_threads_are_for_work_that_is_worth_it_or_for_who_asks() -> None:
    assert [threads_for(workers, WORTH_A_THREAD) for workers in (None, 1, 2, 8)] == [0, 0, 2, 8]
    assert [threads_for(workers, WORTH_A_THREAD + 1) for workers in (None, 1, 2, 8)] == [1, 1, 2, 8]

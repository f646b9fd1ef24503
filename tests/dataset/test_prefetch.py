"""Batches prepared ahead: in order, few of them, with their errors, and no thread that stays."""

import threading
import time

import numpy as np
import pytest
from patience import is_blocked, wait_until

from runner.dataset.prefetch import MIN_THREADED_VALUES, prefetch_batches, threads_for

BATCHES = [np.array([k]) for k in range(40)]


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("runner-dataset")]


def doubled(batch: np.ndarray) -> int:
    time.sleep(0.002 if batch[0] % 3 else 0.0)  # later ones are often ready first
    return 2 * int(batch[0])


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_the_order_is_kept(threads: int) -> None:
    assert list(prefetch_batches(doubled, BATCHES, threads)) == [2 * k for k in range(40)]
    assert names() == []


@pytest.mark.parametrize("threads", [1, 3])
def test_the_next_batches_are_ready_and_no_more(threads: int) -> None:
    requested: list[int] = []

    def fetch(batch: np.ndarray) -> int:
        requested.append(int(batch[0]))
        return int(batch[0])

    def nothing_goes_on() -> bool:
        workers = [thread for thread in threading.enumerate() if thread.name in names()]
        return len(requested) >= wanted and all(map(is_blocked, workers))

    taken: list[int] = []
    wanted = 2 * threads + 1
    items = prefetch_batches(fetch, (taken.append(int(b[0])) or b for b in BATCHES), threads)
    assert next(items) == 0
    wait_until(nothing_goes_on)  # nobody requested for a second batch
    assert sorted(requested) == taken == list(range(wanted))
    wanted += 1
    assert next(items) == 1
    wait_until(nothing_goes_on)
    assert sorted(requested) == list(range(wanted))
    items.close()
    assert names() == []


def test_without_threads_nothing_is_prepared_before_it_is_requested() -> None:
    requested: list[int] = []
    items = prefetch_batches(lambda batch: requested.append(int(batch[0])), BATCHES, 0)
    next(items)
    next(items)
    assert requested == [0, 1]
    assert names() == []


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_an_error_comes_at_its_batch_with_its_text(threads: int) -> None:
    def fetch(batch: np.ndarray) -> int:
        if batch[0] == 7:
            raise ValueError("row 7 is bad")
        return int(batch[0])

    seen = []
    items = prefetch_batches(fetch, BATCHES, threads)
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
        list(prefetch_batches(doubled, batches(), threads))
    assert names() == []


def test_closing_waits_for_what_is_being_prepared_and_drops_the_rest() -> None:
    begun, ended, may_end = [], [], threading.Event()

    def fetch(batch: np.ndarray) -> None:
        begun.append(int(batch[0]))
        if batch[0]:
            may_end.wait()
        ended.append(int(batch[0]))

    items = prefetch_batches(fetch, BATCHES, 1)
    next(items)
    wait_until(lambda: len(begun) == 2)
    closing = threading.Thread(target=items.close)
    closing.start()
    wait_until(lambda: is_blocked(closing))
    assert ended == [0]
    may_end.set()
    closing.join()
    assert begun == ended == [0, 1]
    assert names() == []


def test_one_that_was_never_used_needs_no_end() -> None:
    prefetch_batches(doubled, BATCHES, 2)
    assert names() == []


def test_threads_are_for_work_that_is_worth_it_or_for_who_asks() -> None:
    assert [threads_for(workers, MIN_THREADED_VALUES) for workers in (None, 1, 2, 8)] == [0, 0, 2, 8]
    assert [threads_for(workers, MIN_THREADED_VALUES + 1) for workers in (None, 1, 2, 8)] == [1, 1, 2, 8]

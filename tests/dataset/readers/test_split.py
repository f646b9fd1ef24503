"""How rows are divided."""

import numpy as np
from hypothesis import given, settings, strategies as st

from runner.dataset.readers.split import in_test_split, used_rows


@settings(max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(0.01, 0.99), st.integers(0, 2**32 - 1))
def test_each_class_is_in_both_splits(sizes: list[int], fraction: float, seed: int) -> None:
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    is_test = in_test_split(classes, fraction, seed)
    for number, size in enumerate(sizes):
        count = int(is_test[classes == number].sum())
        assert (1 <= count < size) if size > 1 else count == 0
        assert abs(count - fraction * size) <= 1 or count in (1, size - 1)
    assert np.array_equal(is_test, in_test_split(classes, fraction, seed))


def test_the_sum_is_right() -> None:
    for total, fraction in ((100, 0.25), (99, 0.1), (1000, 0.333)):
        classes = np.arange(total) % 7
        assert in_test_split(classes, fraction, 0).sum() == int(total * fraction + 0.5)
        assert in_test_split(np.zeros(total), fraction, 0).sum() == int(total * fraction + 0.5)


def test_the_rows_never_change() -> None:
    """`RandomState` guarantees its stream: runs of earlier versions have the same test split."""
    assert np.flatnonzero(in_test_split(np.zeros(20), 0.2, 0)).tolist() == [2, 3, 10, 16]
    assert used_rows(np.arange(10), 3, 0).tolist() == [4, 5, 6]
    assert used_rows(np.arange(10), None, 0).tolist() == used_rows(np.arange(10), 10, 0).tolist() == list(range(10))

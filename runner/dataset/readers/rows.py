"""Which rows of undivided data are in the test split, and which of them are used.

Both depend on the rows' number, on the classes and on a seed of their own, not on the seed of the run: all runs on some
data have the same test split. `RandomState` is used because its stream never changes.
"""

import numpy as np

from runner.validation.arguments import whole_number


def in_test_split(classes: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """True for the rows of the test split, [N]: `fraction` of the rows of each class, rounded so that the sum is right.

    `classes` has the class of each row; equal numbers for data without classes. A class has rows in both splits, one
    of a single row only in the training split.
    """
    is_test = np.zeros(len(classes), np.bool_)
    numbers, sizes = np.unique(classes, return_counts=True)
    by_class = np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1])
    for number, rows, count in zip(numbers, by_class, _test_counts(sizes, fraction), strict=True):
        drawn = np.random.RandomState([seed, int(number)]).permutation(len(rows))[:count]
        is_test[rows[drawn]] = True
    return is_test


def _test_counts(sizes: np.ndarray, fraction: float) -> np.ndarray:
    """How many rows of each class are in the test split: the largest remainders are rounded up."""
    exact = sizes * fraction
    counts = np.floor(exact).astype(np.int64)
    left = int(exact.sum() + 0.5) - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
    limited: np.ndarray = np.minimum(np.maximum(counts, 1), sizes - 1)
    return limited


def used_rows(rows: np.ndarray, num_samples: int | None, seed: int) -> np.ndarray:
    """At most `num_samples` of the rows, drawn at random, in their order; None: all. Raises ConfigError below 1."""
    if num_samples is None or whole_number("num_samples", num_samples, 1) >= len(rows):
        return rows
    return np.sort(np.random.RandomState([seed, len(rows)]).permutation(rows)[:num_samples])

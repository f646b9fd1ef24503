"""Which rows of undivided data are in the test split, and which of them are used.

Both depend on the rows' number, on the classes and on a seed of their own, not on the seed of the run: all runs on some
data have the same test split. `RandomState` is used because its stream never changes.
"""

import numpy as np


def in_test_split(classes: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """True for the rows of the test split, [N]: `fraction` of the rows of each class, at least one.

    `classes` has the class of each row; equal numbers for data without classes. A class of one row stays in the
    training split.
    """
    is_test = np.zeros(len(classes), np.bool_)
    for number in np.unique(classes):
        rows = np.flatnonzero(classes == number)
        count = min(len(rows) - 1, max(1, int(fraction * len(rows) + 0.5)))
        drawn = np.random.RandomState([seed, int(number)]).permutation(len(rows))[:count]
        is_test[rows[drawn]] = True
    return is_test


def used_rows(rows: np.ndarray, num_samples: int | None, seed: int) -> np.ndarray:
    """At most `num_samples` of the rows, drawn at random, in their order; None: all."""
    if num_samples is None or num_samples >= len(rows):
        return rows
    return np.sort(np.random.RandomState([seed, len(rows)]).permutation(rows)[:num_samples])

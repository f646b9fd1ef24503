"""Samplers: the rows that MindSpore 2.10 selects where no random numbers are involved, and sets of rows elsewhere."""

from collections import Counter

import numpy as np
import pytest
from tables import table

import runner.dataset as ds
from runner.errors import ConfigError


def rows(sampler: object, epoch: int = 0, count: int = 10) -> list[int]:
    return ds.NumpySlicesDataset(np.arange(count), sampler=sampler).order(epoch).tolist()


def child(parent: ds.Sampler, inner: ds.Sampler) -> ds.Sampler:
    parent.add_child(inner)
    return parent


class Backwards(ds.Sampler):
    def __iter__(self):
        yield from range(self.dataset_size - 1, -1, -1)


@table(
    ("sampler", "expected"),
    [
        (lambda: ds.SequentialSampler(), list(range(10))),
        (lambda: ds.SequentialSampler(2, 3), [2, 3, 4]),
        (lambda: ds.SubsetSampler([4, 1, 7]), [4, 1, 7]),
        (lambda: ds.DistributedSampler(3, 1, shuffle=False), [1, 4, 7, 0]),
        (lambda: ds.DistributedSampler(3, 0, shuffle=False, offset=2), [1, 4, 7]),
        (lambda: ds.DistributedSampler(4, 3, shuffle=False, num_samples=2), [3, 7]),
        (lambda: child(ds.SequentialSampler(2), ds.SubsetSampler([9, 8, 7, 6, 5])), [7, 6, 5]),
        (lambda: child(ds.DistributedSampler(2, 1, False), ds.SubsetSampler([9, 8, 7, 6, 5])), [8, 6, 9]),
        (lambda: Backwards(), [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (lambda: Backwards(num_samples=2), [9, 8]),
        (lambda: [3, 3, 1], [3, 3, 1]),
    ],
)
def test_rows(sampler, expected):
    assert rows(sampler()) == rows(sampler(), epoch=4) == expected


def test_random_rows_differ_between_epochs_and_not_between_runs():
    for make in (
        lambda: ds.RandomSampler(),
        lambda: ds.RandomSampler(replacement=True, num_samples=30),
        lambda: ds.SubsetRandomSampler(range(2, 9)),
        lambda: ds.WeightedRandomSampler([1.0] * 10, 20),
        lambda: ds.DistributedSampler(2, 1),
    ):
        assert rows(make()) == rows(make())
        assert rows(make()) != rows(make(), epoch=1)
    assert sorted(rows(ds.RandomSampler())) == list(range(10))
    assert len(set(rows(ds.RandomSampler(num_samples=4)))) == 4
    assert sorted(rows(ds.SubsetRandomSampler([2, 5, 8]))) == [2, 5, 8]
    shards = [rows(ds.DistributedSampler(2, shard)) for shard in range(2)]
    assert sorted(shards[0] + shards[1]) == list(range(10))


def test_weights_are_probabilities():
    drawn = Counter(rows(ds.WeightedRandomSampler([3, 0, 1], 40000), count=3))
    assert drawn[1] == 0
    np.testing.assert_allclose(drawn[0] / 40000, 0.75, atol=0.02)
    assert sorted(rows(ds.WeightedRandomSampler([3, 0, 1], 2, replacement=False), count=3)) == [0, 2]


def test_classes_have_the_same_number_of_rows():
    labels = np.array([0, 1, 1, 0, 2, 2, 2, 0], np.int32)
    for shuffle in (False, True):
        data = ds.NumpySlicesDataset({"n": np.arange(8), "label": labels}, sampler=ds.PKSampler(2, shuffle=shuffle))
        found = labels[data.order(0)].tolist()
        assert data.get_dataset_size() == 6
        assert Counter(found) == {0: 2, 1: 2, 2: 2}
        assert shuffle or found == [0, 0, 1, 1, 2, 2]


@table(
    ("make", "what"),
    [
        (lambda: rows(ds.SubsetSampler([10])), "a sampler chose a row that the dataset does not have"),
        (lambda: rows(ds.SequentialSampler(10)), "a sampler that selects no row"),
        (lambda: rows(3.5), "not a sampler"),
        (lambda: rows(ds.PKSampler(2)), "no such column"),
        (lambda: child(child(ds.RandomSampler(), ds.RandomSampler()), ds.RandomSampler()), "a sampler has one child"),
        (lambda: ds.WeightedRandomSampler([0.0, 0.0]), "not probabilities"),
        (lambda: ds.NumpySlicesDataset([1], shuffle=True, sampler=[0]), "a sampler determines order and shard itself"),
    ],
)
def test_errors(make, what):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.what == what


def test_a_sampler_without_rows_of_its_own():
    with pytest.raises(NotImplementedError, match="Sampler does not define __iter__"):
        rows(ds.Sampler())

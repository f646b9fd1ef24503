"""Ranks share every batch: together they have the samples of one process, in its order."""

from pathlib import Path

import numpy as np
import pytest
from ranks import mpirun, needs_mpi

from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError


def rows(count=26, batch=8, drop_remainder=True):
    data = NumpySlicesDataset({"x": np.arange(count, dtype=np.float32)}, shuffle=True).repeat(2)
    return data.shuffle(10).batch(batch, drop_remainder)


@needs_mpi
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_uneven_shards_of_a_script_are_an_error_on_every_rank(mode):
    """A rank with a step more waited for ever. Afterwards the ranks train with what fits."""
    code, out, err = mpirun(2, Path(__file__).with_name("rank_uneven.py"), mode)
    assert code == 0, err
    what = "ranks have different numbers of steps in an epoch, 3 and 2"
    assert sorted(out.splitlines()) == sorted(f"rank {k}: {line}" for k in (0, 1) for line in (what, "trained"))


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_the_parts_make_the_whole(parts, drop_remainder):
    whole = rows(drop_remainder=drop_remainder)  # 52 rows: six batches of 8, and one of 4
    divided = [whole.divided(parts, part) for part in range(parts)]
    assert {data.get_dataset_size() for data in divided} == {whole.get_dataset_size()} == {6 + (not drop_remainder)}
    assert [data.get_batch_size() for data in divided] == [len(range(part, 8, parts)) for part in range(parts)]
    assert {data.is_even for data in divided} == {parts != 3}
    for epoch in (0, 3):
        every = [[batch[0] for batch in data.read(epoch)] for data in divided]
        for k, batch in enumerate(whole.read(epoch)):
            pieces = [one[k] for one in every]
            sizes = [len(piece) for piece in pieces]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
            for part, piece in enumerate(pieces):
                np.testing.assert_array_equal(piece, batch[0][part::parts])


@pytest.mark.parametrize(
    ("batch", "drop_remainder", "parts", "said"),
    [
        (8, True, 9, "batch size  8"),
        (10, False, 5, "batch size  2"),
        (8, False, 8, "allowed     8 and more"),
        (8, False, 8, "drop_remainder=True"),
    ],
)
def test_a_batch_with_fewer_rows_than_ranks(batch, drop_remainder, parts, said):
    with pytest.raises(ConfigError) as error:
        rows(batch=batch, drop_remainder=drop_remainder).divided(parts, 0)
    assert "a batch has fewer rows than there are ranks" in str(error.value)
    assert said in str(error.value)


def test_only_batches_can_be_divided():
    with pytest.raises(ConfigError, match="only batches"):
        NumpySlicesDataset({"x": np.arange(8)}).divided(2, 0)


@pytest.mark.parametrize(("parts", "part"), [(0, 0), (2, 2), (2, -1), (True, 0)])
def test_impossible_parts(parts, part):
    with pytest.raises(ConfigError):
        rows().divided(parts, part)

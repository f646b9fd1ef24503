"""A dataset as a user of MindSpore writes it, and the promises about its order."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tables import table

import runner.dataset as ds
import runner.dataset.transforms.c_transforms as CT
import runner.dataset.vision.c_transforms as CV
from runner import dtype as mstype
from runner.dataset.vision import Inter
from runner.errors import ConfigError
from runner.host import seed


def numbers(count: int = 10, **arguments: object) -> ds.Dataset:
    return ds.NumpySlicesDataset({"x": np.arange(count), "y": np.arange(count) * 2.0}, **arguments)


def create_dataset(data: ds.Dataset, batch_size: int = 32, repeat_size: int = 1, workers: int = 1) -> ds.Dataset:
    """The pipeline of MindSpore's LeNet example."""
    steps = [
        ("label", CT.TypeCast(mstype.int32)),
        ("image", CV.Resize((32, 32), interpolation=Inter.LINEAR)),
        ("image", CV.Rescale(1.0 / 255.0, 0.0)),
        ("image", CV.Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081)),
        ("image", CV.HWC2CHW()),
    ]
    for column, operation in steps:
        data = data.map(input_columns=column, operations=operation, num_parallel_workers=workers)
    data = data.shuffle(buffer_size=10000)
    return data.batch(batch_size, drop_remainder=True).repeat(repeat_size)


def test_the_references_example_on_digits() -> None:
    data = create_dataset(ds.DigitsDataset("train"))
    assert data.get_dataset_size() == len(data) == 44
    assert data.get_batch_size() == 32
    assert data.get_col_names() == ["image", "label"]
    assert [str(kind) for kind in data.column_types()] == ["Float32[32, 1, 32, 32]", "Int32[32]"]
    assert data.output_shapes() == [[32, 1, 32, 32], [32]]
    assert data.output_types() == [np.float32, np.int32]
    image, label = next(data.create_tuple_iterator(output_numpy=True))
    source = ds.DigitsDataset("train")
    rows = data.batches(0)[0]
    pixels = CV.Resize((32, 32))(source.fetch(rows)[0])
    expected = (pixels.astype(np.float64) / 255 - 0.1307) / 0.3081
    np.testing.assert_allclose(image, expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(label, source.fetch(rows)[1])


def test_the_references_example_on_the_real_mnist(real_mnist) -> None:
    data = create_dataset(ds.MnistDataset(real_mnist, "train"))
    assert data.get_dataset_size() == 1875
    image, label = next(data.read(0))
    assert (image.shape, image.dtype, label.shape, label.dtype) == ((32, 1, 32, 32), np.float32, (32,), np.int32)
    assert image.min() == np.float32(-0.1307 / 0.3081)
    assert data.compact()[0].nbytes == 60000 * 32 * 32


@settings(max_examples=40)
@given(st.integers(1, 50), st.integers(2, 60), st.integers(1, 12), st.integers(1, 3), st.booleans(), st.integers(0, 5))
def test_an_epoch_is_every_row_once_per_pass(
    count: int, buffer_size: int, batch_size: int, repeats: int, repeat_first: bool, epoch: int
) -> None:
    data = numbers(count).shuffle(buffer_size)
    data = data.repeat(repeats).batch(batch_size) if repeat_first else data.batch(batch_size).repeat(repeats)
    assert sorted(data.order(epoch).tolist()) == sorted(list(range(count)) * repeats)
    batches = data.batches(epoch)
    assert np.concatenate(list(batches)).tolist() == data.order(epoch).tolist()
    assert len(batches) == data.get_dataset_size()
    assert data.get_repeat_count() == repeats
    items = list(data.read(epoch))
    for rows, (x, y) in zip(batches, items, strict=True):
        assert x.tolist() == rows.tolist()
        assert y.tolist() == (rows * 2.0).tolist()
    assert data.column_types()[0].shape == items[0][0].shape


def test_batches_are_one_array_or_a_list_with_a_short_end() -> None:
    even = numbers(9).batch(3).batches(0)
    assert even.shape == (3, 3)
    assert even.dtype == np.int64
    assert [rows.tolist() for rows in numbers(5).batch(3).batches(0)] == [[0, 1, 2], [3, 4]]


def test_workers_change_nothing() -> None:
    inline = create_dataset(ds.DigitsDataset("train", num_samples=200), 16)
    for workers in (2, 5):
        ahead = create_dataset(ds.DigitsDataset("train", num_samples=200), 16, workers=workers)
        for mine, theirs in zip(inline.read(3), ahead.read(3), strict=True):
            np.testing.assert_array_equal(mine[0], theirs[0])
            np.testing.assert_array_equal(mine[1], theirs[1])


def test_an_epoch_can_be_read_from_its_middle() -> None:
    data = numbers(20).shuffle(20).batch(3, num_parallel_workers=2)
    whole = [x.tolist() for x, _ in data.read(4)]
    assert [x.tolist() for x, _ in data.read(4, start=2)] == whole[2:]
    assert [x.tolist() for x, _ in data.read(4, start=7)] == []


def test_the_seed_decides() -> None:
    data = numbers(50).shuffle(50).batch(5)
    first = data.batches(0)
    assert (first != data.batches(1)).any()
    seed.set_seed(7)
    assert (first != data.batches(0)).any()
    seed.set_seed(1)
    np.testing.assert_array_equal(first, data.batches(0))


def test_iterators_go_through_epochs() -> None:
    data = numbers(6).shuffle(6).batch(2)
    iterator = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
    epochs = [[x.tolist() for x, _ in iterator] for _ in range(3)]
    assert epochs == [data.batches(0).tolist(), data.batches(1).tolist(), []]
    endless = data.create_dict_iterator(output_numpy=True)
    for epoch in range(4):
        assert [item["x"].tolist() for item in endless] == data.batches(epoch).tolist()
    assert list(next(endless)) == ["x", "y"]


def test_an_epoch_that_was_left_early_goes_on() -> None:
    iterator = numbers(6).batch(2).create_tuple_iterator(num_epochs=1, output_numpy=True)
    assert next(iterator)[0].tolist() == [0, 1]
    assert [x.tolist() for x, _ in iterator] == [[2, 3], [4, 5]]


def test_without_batch_the_items_are_samples() -> None:
    data = ds.NumpySlicesDataset((np.arange(6).reshape(3, 2), np.arange(3)))
    items = list(data.read(0))
    assert items[1][0].tolist() == [2, 3]
    assert items[1][1].shape == ()
    assert data.output_shapes() == [[2], []]
    assert (data.get_batch_size(), data.get_dataset_size()) == (1, 3)


def test_a_dropped_iterator_ends_its_workers() -> None:
    before = threading.active_count()
    items = numbers(100).batch(1, num_parallel_workers=4).read(0)
    next(items)
    items.close()
    assert threading.active_count() == before


def test_datasets_never_change() -> None:
    data = numbers(10)
    data.map(CV.Rescale(2.0, 0.0), "x").shuffle(10).batch(5)
    assert [x.tolist() for x, _ in data.read(0)] == list(range(10))


def test_a_column_is_arranged_once_for_all_that_follows() -> None:
    mapped = ds.DigitsDataset("test").map(CV.Resize((32, 32)))
    assert np.shares_memory(mapped.compact()[0], mapped.shuffle(9).batch(4).repeat(2).compact()[0])


def test_compact_and_remaining_lead_to_the_batches() -> None:
    data = create_dataset(ds.DigitsDataset("test"))
    rows = data.batches(0)[1]
    for column, kept, sample in zip(data.get_col_names(), data.compact(), data.fetch(rows), strict=True):
        values = kept[rows]
        for transform in data.remaining[column]:  # none of them is random
            values = transform(values)
        np.testing.assert_array_equal(values, sample)


def test_the_fingerprint_is_of_the_source_alone() -> None:
    data = numbers(10)
    assert len(data.fingerprint()) == 64
    assert data.fingerprint() == data.map(CV.Rescale(2.0, 0.0)).shuffle(4).batch(2).fingerprint()
    assert data.fingerprint() != numbers(11).fingerprint()
    other = ds.NumpySlicesDataset({"x": np.arange(10), "z": np.arange(10) * 2.0})
    assert data.fingerprint() != other.fingerprint()


@table(
    ("ask", "what", "rows"),
    [
        (lambda d: d.map(CV.Rescale(1.0, 0.0), "z"), "no such column", {"value": "z", "allowed": "x, y"}),
        (lambda d: d.map(CV.Rescale(1.0, 0.0), ["x", "y"]), "map takes one column", {"value": "['x', 'y']"}),
        (lambda d: d.map(3), "not transforms", {"argument": "operations"}),
        (
            lambda d: d.map(CV.HWC2CHW(), "y"),
            r"images \[height, width, channels\]",
            {"column": "y", "sample": "Float32[]"},
        ),
        (lambda d: d.batch(11, drop_remainder=True), "smaller than one batch", {"value": "11"}),
        (lambda d: d.batch(0), "batch_size must be a whole number of at least 1", {"given": "0"}),
        (lambda d: d.batch(2, drop_remainder=1), "drop_remainder must be True or False", {"given": "1"}),
        (lambda d: d.shuffle(1), "buffer_size must be a whole number of at least 2", {"given": "1"}),
        (lambda d: d.repeat(0), "count must be a whole number of at least 1", {"given": "0"}),
        (lambda d: d.batch(2, num_parallel_workers=65), "num_parallel_workers must be a whole number from 1 to 64", {}),
        (lambda d: d.map(CV.Rescale(1, 0), num_parallel_workers=0), "num_parallel_workers must be", {"given": "0"}),
        (lambda d: d.create_dict_iterator(0), "num_epochs must be a whole number of at least 1", {}),
        (lambda d: d.batches(-1), "epoch must be a whole number of at least 0", {}),
    ],
)
def test_errors(ask, what: str, rows: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        ask(numbers(10))
    assert rows.items() <= caught.value.rows.items()


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        ds.DigitsDataset("test").map(CV.HWC2CHW(), "images")
    assert caught.value.rows["nearest"] == "image"
    assert caught.value.rows["allowed"] == "image, label"


def test_a_failing_transform_fails_the_reader() -> None:
    data = numbers(10).map(CT.OneHot(5), "x").batch(2, num_parallel_workers=3)
    with pytest.raises(ConfigError, match="a label is out of range"):
        list(data)

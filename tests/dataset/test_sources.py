"""The public datasets: which rows they show, and which arguments they refuse."""

from pathlib import Path

import numpy as np
import pytest
from argument_errors import refused_argument
from tables import table

import runner.dataset as ds
from runner.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("usage", "rows"), [("train", 12), ("test", 3), ("all", 15), (None, 15)], ids=["train", "test", "all", "None"]
)
def test_mnist_usage(write_mnist, usage: str | None, rows: int) -> None:
    write_mnist()
    data = ds.MnistDataset(write_mnist("t10k", 3), usage)
    assert data.get_dataset_size() == rows
    assert [str(kind) for kind in data.column_types()] == ["UInt8[4, 4, 1]", "Int32[]"]


@pytest.mark.parametrize(("prefix", "place"), [("train", "train"), ("t10k", "test"), ("t10k", "")])
def test_a_folder_with_one_split(write_mnist, prefix: str, place: str) -> None:
    folder = write_mnist(prefix, 3, place=place)
    assert ds.MnistDataset(str(folder)).get_dataset_size() == 3
    assert ds.MnistDataset(folder / place).get_dataset_size() == 3


def test_no_split_at_all(tmp_path: Path) -> None:
    for make in (ds.MnistDataset, ds.Cifar10Dataset):
        with pytest.raises(DataError) as caught:
            make(tmp_path)
        assert caught.value.rows["found"] == "an empty folder"
        assert "dataset.data_dir" in caught.value.rows["repair"]


def test_half_a_split_is_not_left_out(write_mnist) -> None:
    write_mnist()
    folder = write_mnist("t10k", 3)
    (folder / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(DataError, match="a data file is missing"):
        ds.MnistDataset(folder)


def test_splits_of_different_sizes(write_mnist) -> None:
    write_mnist()
    folder = write_mnist("t10k", 3, side=5)
    with pytest.raises(ConfigError, match="different sizes"):
        ds.MnistDataset(folder)
    assert ds.MnistDataset(folder, "test").get_dataset_size() == 3


def test_cifar10_usage(write_cifar) -> None:
    write_cifar("data_batch_1.bin", 4)
    folder = write_cifar("test_batch.bin", 2)
    sizes = [ds.Cifar10Dataset(folder, usage).get_dataset_size() for usage in ("train", "test", "all", None)]
    assert sizes == [4, 2, 6, 6]
    assert [str(kind) for kind in ds.Cifar10Dataset(folder).column_types()] == ["UInt8[32, 32, 3]", "Int32[]"]


def test_digits_usage() -> None:
    sizes = [ds.DigitsDataset(usage).get_dataset_size() for usage in ("train", "test", "all", None)]
    assert sizes == [1437, 360, 1797, 1797]
    assert [str(kind) for kind in ds.DigitsDataset().column_types()] == ["UInt8[8, 8, 1]", "Int32[]"]


def test_synthetic() -> None:
    data = ds.SyntheticDataset(20, (8, 6, 3), num_classes=4).batch(5)
    assert [str(kind) for kind in data.column_types()] == ["UInt8[5, 8, 6, 3]", "Int32[5]"]
    assert data.fingerprint() == ds.SyntheticDataset(20, (8, 6, 3), num_classes=4).fingerprint()


@pytest.mark.parametrize(
    ("data", "names", "expected"),
    [
        ([[1, 2], [3, 4], [5, 6]], None, {"column_0": (2,)}),
        ((np.zeros((3, 2)), np.zeros(3)), None, {"column_0": (2,), "column_1": ()}),
        ({"a": np.zeros((3, 2)), "b": [1, 2, 3]}, None, {"a": (2,), "b": ()}),
        ((np.zeros(3), np.zeros(3)), ["x", "y"], {"x": (), "y": ()}),
        (np.zeros((3, 1)), "x", {"x": (1,)}),
    ],
)
def test_numpy_slices(data: object, names: object, expected: dict[str, tuple[int, ...]]) -> None:
    made = ds.NumpySlicesDataset(data, names)
    assert dict(zip(made.get_col_names(), map(tuple, made.output_shapes()), strict=True)) == expected
    assert made.get_dataset_size() == 3


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ((np.zeros(3), np.zeros(4)), None),
        (np.zeros(0), None),
        (np.float32(1), None),
        ((), None),
        ([[1, 2], [3]], None),
        (np.array([{}, None]), None),
        (np.zeros(3, complex), None),
        ((np.zeros(3), np.zeros(3)), ["x"]),
        ((np.zeros(3), np.zeros(3)), ["x", "x"]),
    ],
)
def test_numpy_slices_refuses(data: object, names: list[str] | None) -> None:
    with pytest.raises(ConfigError):
        ds.NumpySlicesDataset(data, names)


def test_samples_shuffle_and_shards() -> None:
    rows = np.arange(100)
    assert ds.NumpySlicesDataset(rows, num_samples=10).order(0).tolist() == list(range(10))
    assert ds.NumpySlicesDataset(rows, num_samples=200).get_dataset_size() == 100
    assert ds.NumpySlicesDataset(rows, num_shards=3, shard_id=1).order(0).tolist() == list(range(1, 100, 3))
    shards = [ds.NumpySlicesDataset(rows, shuffle=True, num_shards=2, shard_id=k) for k in range(2)]
    parts = [shard.order(5).tolist() for shard in shards]
    assert sorted(parts[0] + parts[1]) == list(range(100))
    assert parts[0] != sorted(parts[0])
    assert parts[0] != shards[0].order(6).tolist()


@table(
    ("arguments", "argument"),
    [
        ({"usage": "trian"}, "usage"),
        ({"num_samples": 0}, "num_samples"),
        ({"num_parallel_workers": 0}, "num_parallel_workers"),
        ({"num_parallel_workers": 65}, "num_parallel_workers"),
        ({"num_parallel_workers": 1.0}, "num_parallel_workers"),
        ({"shuffle": 1}, "shuffle"),
        ({"num_shards": 2}, "shard_id"),
        ({"shard_id": 0}, "shard_id"),
        ({"num_shards": 2, "shard_id": 2}, "shard_id"),
        ({"num_shards": 2, "shard_id": -1}, "shard_id"),
        ({"num_shards": 0, "shard_id": 0}, "num_shards"),
        ({"num_shards": 1798, "shard_id": 0}, "num_shards"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ds.DigitsDataset(**arguments)
    assert refused_argument(caught.value)[0] == argument


def test_a_mistyped_usage_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        ds.DigitsDataset("trian")
    assert caught.value.rows["nearest"] == "train"


@pytest.mark.parametrize("folder", [None, 3, ""])
def test_a_folder_is_a_path(folder: object) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        ds.MnistDataset(folder)


@pytest.mark.parametrize("shape", [(28, 28), 28, (28, 28, 0), None])
def test_synthetic_shapes(shape: object) -> None:
    with pytest.raises(ConfigError) as caught:
        ds.SyntheticDataset(image_shape=shape)
    assert refused_argument(caught.value)[0] == "image_shape"


def test_label_types_of_the_reference(write_mnist, write_cifar) -> None:
    for data in (ds.MnistDataset(write_mnist(), num_samples=5), ds.Cifar10Dataset(write_cifar(), num_samples=5)):
        assert data.output_types()[1] == np.uint32
        labels = [item["label"] for item in data.create_dict_iterator(num_epochs=1, output_numpy=True)]
        assert labels[3].dtype == np.uint32
        assert next(data.batch(5).read(0))[1].dtype == np.int32
        assert data.get_dataset_size() == 5

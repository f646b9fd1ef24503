"""From settings to batches, for each dataset a run can name."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from argument_errors import refused_argument
from tables import table

from runner import register
from runner.config import schema
from runner.config.groups.entries import DATASETS, DatasetSettings
from runner.dataset import Cifar10Dataset, catalog, open_dataset
from runner.dataset.catalog import CATALOG
from runner.errors import ConfigError, DataError


def batches(settings: dict[str, Any], train: bool = True) -> list[tuple[np.ndarray, ...]]:
    return list(open_dataset(**settings, train=train).read(0))


def test_the_default_is_the_digits_as_lenet_wants_them() -> None:
    data = open_dataset(train=True)
    assert data.get_dataset_size() == 44
    assert [str(kind) for kind in data.column_types()] == ["Float32[32, 1, 32, 32]", "Int32[32]"]
    assert open_dataset(train=False).get_dataset_size() == 11


def test_only_training_data_is_shuffled() -> None:
    rows = [open_dataset(train=train).order(0) for train in (True, False)]
    assert [bool((np.diff(r) == 1).all()) for r in rows] == [False, True]
    still = open_dataset(shuffle=False, train=True)
    assert (np.diff(still.order(0)) == 1).all()


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_values_are_scaled_like_mnist(name: str) -> None:
    images, labels = batches({"name": name, "batch_size": 64})[0]
    assert images.min() >= np.float32(-0.1307 / 0.3081)
    assert images.max() <= np.float32((1 - 0.1307) / 0.3081) + 1e-6
    assert labels.dtype == np.int32


def test_mnist(write_mnist) -> None:
    write_mnist()
    folder = write_mnist("t10k", 4)
    settings = {"name": "mnist", "data_dir": str(folder), "batch_size": 4, "image_size": 4, "shuffle": False}
    image, label = batches(settings)[1]
    assert label.tolist() == [4, 5, 6, 7]
    np.testing.assert_allclose(image[0], (4 / 255 - 0.1307) / 0.3081, rtol=1e-6)
    assert len(batches(settings, train=False)) == 1


def test_cifar10(write_cifar) -> None:
    folder = write_cifar("data_batch_1.bin", 4)
    (image, label), *_ = batches({"name": "cifar10", "data_dir": str(folder), "batch_size": 4, "shuffle": False})
    assert (image.shape, label.tolist()) == ((4, 3, 32, 32), [0, 1, 2, 3])
    blue = ((2 + 128 + 2 * 5 + 9) / 255 - 0.4465) / 0.2010
    np.testing.assert_allclose(image[2, 2, 5, 9], blue, rtol=1e-5)


def test_augmented_training_data_are_crops_and_mirror_images(write_cifar) -> None:
    """Of the right images, padded by 4 black pixels, and scaled afterwards."""
    folder = str(write_cifar("data_batch_1.bin", 64))
    write_cifar("test_batch.bin", 64)
    settings = {"name": "cifar10", "data_dir": folder, "batch_size": 64, "shuffle": False, "augment": True}
    means, deviations = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    source = Cifar10Dataset(folder, "train").fetch(np.arange(64))[0].astype(np.float64)
    found = set()
    for image, original in zip(batches(settings)[0][0], source, strict=True):
        pixels = np.rint((image.transpose(1, 2, 0) * deviations + means) * 255)
        padded = np.pad(original, ((4, 4), (4, 4), (0, 0)))
        crops = {(y, x): padded[y : y + 32, x : x + 32] for y in range(9) for x in range(9)}
        seen = {
            (y, x, mirrored)
            for (y, x), crop in crops.items()
            for mirrored in (False, True)
            if np.array_equal(crop[:, :: -1 if mirrored else 1], pixels)
        }
        assert len(seen) == 1
        found |= seen
    assert len({y for y, _, _ in found}) == len({x for _, x, _ in found}) == 9
    assert {mirrored for _, _, mirrored in found} == {False, True}


def test_test_data_are_never_augmented() -> None:
    plain, augmented = ({"name": "synthetic", "augment": augment} for augment in (False, True))
    for mine, theirs in zip(batches(plain, train=False), batches(augmented, train=False), strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])
    assert not np.array_equal(batches(plain)[0][0], batches(augmented)[0][0])


def test_values_from_0_to_1_where_they_are_not_normalized(write_cifar) -> None:
    folder = write_cifar("data_batch_1.bin", 4)
    settings = {"name": "cifar10", "data_dir": str(folder), "batch_size": 4, "shuffle": False, "normalize": False}
    image, _ = batches(settings)[0]
    np.testing.assert_allclose(image[2, 2, 5, 9], ((2 + 128 + 2 * 5 + 9) % 256) / 255, rtol=1e-6)
    assert image.min() >= 0
    assert image.max() <= 1


def test_the_settings_are_a_part_of_the_configuration() -> None:
    assert schema.RunConfig.__dataclass_fields__["dataset"].type is DatasetSettings
    assert {*CATALOG} <= {*DATASETS}


def test_all_settings_reach_the_pipeline() -> None:
    data = open_dataset(
        "synthetic",
        train=True,
        batch_size=7,
        drop_remainder=False,
        image_size=12,
        num_parallel_workers=2,
        num_samples=41,
        one_hot=10,
        num_shards=2,
        shard_id=1,
    )
    assert [len(rows) for rows in data.batches(0)] == [7, 7, 6]
    assert set(data.order(0).tolist()) == set(range(1, 41, 2))
    assert data.output_shapes() == [[7, 1, 12, 12], [7, 10]]


@pytest.mark.parametrize(("name", "place"), [("mnist", "MNIST_Data"), ("cifar10", "cifar-10-batches-bin")])
def test_default_folders(name: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        open_dataset(name, train=True)
    assert caught.value.rows["folder"] == f"datasets/{place}"
    assert caught.value.rows["below"] == str(tmp_path)


def test_the_references_folders_are_found(write_mnist, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(place="train")
    root = write_mnist("t10k", 3, place="test")
    target = root / "datasets" / "MNIST_Data"
    target.mkdir(parents=True)
    for split in ("train", "test"):
        (root / split).rename(target / split)
    monkeypatch.chdir(root)
    sizes = [open_dataset("mnist", batch_size=3, train=train).get_dataset_size() for train in (True, False)]
    assert sizes == [4, 1]


@pytest.mark.parametrize("complete", [True, False])
def test_download_fetches_only_what_is_missing(write_mnist, monkeypatch: pytest.MonkeyPatch, complete: bool) -> None:
    folder = write_mnist()
    if complete:
        write_mnist("t10k", 3)
    fetched: list[tuple[Path, str]] = []
    monkeypatch.setattr(catalog, "download_mnist", lambda place, url: fetched.append((place, url)))
    open_dataset("mnist", data_dir=str(folder), batch_size=4, download=True, url="http://x", train=True)
    assert fetched == ([] if complete else [(folder, "http://x")])


@table(
    ("settings", "argument", "value"),
    [
        ({"image_size": 0}, "image_size", "0"),
        ({"batch_size": 0}, "batch_size", "0"),
        ({"batch_size": 2000}, "batch_size", "2000"),
        ({"buffer_size": 1}, "buffer_size", "1"),
        ({"shuffle": "yes"}, "shuffle", "'yes'"),
        ({"download": "yes"}, "download", "'yes'"),
        ({"name": "cifar10", "download": True}, "download", "True"),
        ({"name": "digits", "augment": True}, "augment", "True"),
        ({"name": "synthetic", "augment": "yes"}, "augment", "'yes'"),
        ({"normalize": None}, "normalize", "None"),
        ({"name": "mnist", "data_dir": ""}, "data_dir", "''"),
        ({"num_parallel_workers": 0}, "num_parallel_workers", "0"),
        ({"image_size": 4097}, "image_size", "4097"),
        ({"num_samples": 0}, "num_samples", "0"),
        ({"name": "mnist", "verify": 0}, "verify", "0"),
        ({"url": 3}, "url", "3"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], argument: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_dataset(**settings, train=True)
    assert refused_argument(caught.value) == (argument, value)


def test_a_shard_needs_both_numbers() -> None:
    with pytest.raises(ConfigError) as caught:
        open_dataset(train=True, num_shards=2)
    assert (caught.value.rows["argument"], caught.value.rows["value"]) == ("shard_id", "num_shards=2, shard_id=None")


def test_numbers_of_numpy_are_numbers() -> None:
    settings = {"name": "synthetic", "batch_size": np.int64(8), "image_size": np.int32(6), "num_samples": np.uint8(16)}
    assert open_dataset(**settings, train=True).output_shapes() == [[8, 1, 6, 6], [8]]


def test_a_mistyped_name_has_a_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        open_dataset("minst", train=True)
    assert caught.value.rows["nearest"] == "mnist"
    assert caught.value.rows["allowed"] == ", ".join(register.dataset)


def test_the_real_data_is_centred(real_mnist: Path, real_cifar10: Path) -> None:
    for name, folder in (("mnist", real_mnist), ("cifar10", real_cifar10)):
        image, _ = next(open_dataset(name, data_dir=str(folder), batch_size=2048, train=True).read(0))
        assert abs(float(image.mean())) < 0.1
        assert abs(float(image.std()) - 1) < 0.3


@pytest.mark.parametrize("module", catalog.READERS.values())
def test_the_modules_of_readers_exist(module: str) -> None:
    assert importlib.util.find_spec(module) is not None

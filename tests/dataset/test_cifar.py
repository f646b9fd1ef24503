"""CIFAR-10 records."""

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from runner.dataset.readers import mnist_cifar
from runner.dataset.readers.mnist_cifar import read_cifar_split, read_records, read_records_100
from runner.dataset.vision.c_transforms import HWC2CHW
from runner.errors import DataError


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_pixels_lie_where_they_belong(write_cifar, suffix: str) -> None:
    images, labels = read_cifar_split(write_cifar(f"test_batch.bin{suffix}"), "test")
    assert (images.shape, images.dtype, labels.dtype) == ((5, 32, 32, 3), np.uint8, np.int32)
    assert labels.tolist() == [0, 1, 2, 3, 4]
    for record, row, column, channel in ((0, 0, 0, 0), (4, 31, 7, 2), (2, 9, 30, 1)):
        assert images[record, row, column, channel] == (record + 64 * channel + 2 * row + column) % 256


def test_channels_first_costs_no_copy(write_cifar) -> None:
    images, _ = read_cifar_split(write_cifar(), "train")
    turned = HWC2CHW()(images)
    assert np.shares_memory(turned, images)
    assert turned.flags.c_contiguous


def test_training_files_are_joined_in_order(write_cifar) -> None:
    write_cifar("data_batch_4.bin", 2)
    folder = write_cifar("data_batch_2.bin.gz", 3)
    assert read_cifar_split(folder, "train")[1].tolist() == [0, 1, 2, 0, 1]


def test_every_truncation_into_a_record_is_refused(write_cifar) -> None:
    path = write_cifar(count=2) / "data_batch_1.bin"
    whole = path.read_bytes()
    for length in (0, 1, 3072, 3074, 6145):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError) as caught:
            read_records(path)
        assert caught.value.rows["file"] == str(path)
        assert caught.value.rows["expected"] == "whole records of 3073 bytes"
        assert caught.value.rows["found"] == (
            f"{length} bytes, the last {length % 3073} in an incomplete record" if length else "0 bytes"
        )


def test_a_damaged_gzip_file_is_refused(write_cifar) -> None:
    path = write_cifar("data_batch_1.bin.gz", 2) / "data_batch_1.bin.gz"
    whole = path.read_bytes()
    checksum_flipped = whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]
    for data in (b"", whole[:-1], whole[:100], whole + b"x", checksum_flipped, gzip.decompress(whole)):
        path.write_bytes(data)
        with pytest.raises(DataError):
            read_records(path)


@pytest.mark.parametrize("read", [read_records, read_records_100])
def test_a_small_gzip_file_of_zeros_takes_little_memory(tmp_path, monkeypatch, read) -> None:
    path = tmp_path / "data_batch_1.bin.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    monkeypatch.setattr(mnist_cifar, "MAX_RECORDS", 1 << 20)
    tracemalloc.start()
    with pytest.raises(DataError) as caught:
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert (caught.value.rows["expected"], caught.value.rows["found"]) == (
        "at most 1048576 bytes",
        "additional data at the end",
    )


def test_a_label_that_is_no_class_names_its_record(write_cifar) -> None:
    path = write_cifar() / "data_batch_1.bin"
    data = bytearray(path.read_bytes())
    data[3 * 3073] = 10
    data[4 * 3073] = 255
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_records(path)
    assert caught.value.rows["found"] == "10 as the label of record 3, at byte 9219"


def test_a_missing_file_says_what_is_there(write_cifar) -> None:
    folder = write_cifar("test_batch.bin")
    with pytest.raises(DataError) as caught:
        read_cifar_split(folder, "train")
    assert caught.value.rows["found"] == "test_batch.bin"
    assert "data_batch_1.bin[.gz]" in caught.value.rows["expected"]
    assert "dataset.data_dir" in caught.value.rows["repair"]


def test_the_real_cifar10(real_cifar10: Path) -> None:
    images, labels = read_cifar_split(real_cifar10, "test")
    assert images.shape == (10000, 32, 32, 3)
    assert np.bincount(labels).tolist() == [1000] * 10
    means = images.reshape(-1, 3).mean(axis=0) / 255
    np.testing.assert_allclose(means, [0.494, 0.485, 0.450], atol=0.01)  # known of the data set

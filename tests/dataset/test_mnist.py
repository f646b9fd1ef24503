"""IDX files: what is read, and that damage is never read."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from runner.dataset.readers import mnist_cifar
from runner.dataset.readers.mnist_cifar import PublishedFile, read_idx, read_split
from runner.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)
PLAIN = bytes([0, 0, 8, 3]) + struct.pack(">3I", *IMAGES.shape) + IMAGES.tobytes()
ZIPPED = gzip.compress(PLAIN, mtime=0)
FORMS = pytest.mark.parametrize(("name", "stored"), [("a-idx3-ubyte", PLAIN), ("a-idx3-ubyte.gz", ZIPPED)])


def refused(path: Path, data: bytes) -> DataError | None:
    """The error that reading gives; otherwise the data must be right."""
    path.write_bytes(data)
    try:
        np.testing.assert_array_equal(read_idx(path, 3), IMAGES)
    except DataError as error:
        return error
    return None


@FORMS
def test_reads(tmp_path: Path, name: str, stored: bytes) -> None:
    assert refused(tmp_path / name, stored) is None


@FORMS
def test_every_truncation_is_refused(tmp_path: Path, name: str, stored: bytes) -> None:
    for length in range(len(stored)):
        error = refused(tmp_path / name, stored[:length])
        assert error is not None
        assert error.exit_code == 7
        assert error.rows["file"] == str(tmp_path / name)
        assert {"expected", "found", "repair"} <= error.rows.keys()


@FORMS
def test_more_data_is_refused(tmp_path: Path, name: str, stored: bytes) -> None:
    for extra in (b"\0", stored, b"x" * 100):
        assert refused(tmp_path / name, stored + extra) is not None
    assert refused(tmp_path / "b.gz", gzip.compress(PLAIN + b"\0")) is not None


@settings(max_examples=400)
@given(st.integers(0, 15), st.integers(1, 255))
def test_a_changed_header_is_refused(tmp_path_factory: pytest.TempPathFactory, place: int, flip: int) -> None:
    data = bytearray(PLAIN)
    data[place] ^= flip
    assert refused(tmp_path_factory.getbasetemp() / "header-idx3-ubyte", bytes(data)) is not None


@settings(max_examples=600)
@given(st.lists(st.tuples(st.integers(0, len(ZIPPED) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_changed_gzip_file_is_refused_or_right(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(ZIPPED)
    for place, flip in flips:
        data[place] ^= flip
    refused(tmp_path_factory.getbasetemp() / "flipped-idx3-ubyte.gz", bytes(data))


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_anything_else_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for name in ("any-idx3-ubyte", "any-idx3-ubyte.gz"):
        assert refused(tmp_path_factory.getbasetemp() / name, data) is not None


@pytest.mark.parametrize("shape", [(0, 28, 28), (2**32 - 1, 2**32 - 1, 2**32 - 1), (1 << 20, 1 << 10, 2)])
def test_impossible_shapes_take_no_memory(tmp_path: Path, shape: tuple[int, ...]) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">3I", *shape)
    for name, data in (("a", header), ("a.gz", gzip.compress(header))):
        error = refused(tmp_path / name, data)
        assert error is not None
        assert error.rows["found"] == f"the shape {shape}"


def test_a_gzip_bomb_is_not_inflated(tmp_path: Path) -> None:
    error = refused(tmp_path / "bomb.gz", gzip.compress(PLAIN + bytes(50_000_000), 9))
    assert error is not None
    assert error.rows["found"] == "additional data at the end"


def test_a_wrong_magic_says_both(tmp_path: Path) -> None:
    error = refused(tmp_path / "a", b"\0\0\x0d\x03" + PLAIN[4:])
    assert error is not None
    assert (error.rows["expected"], error.rows["found"]) == ("the magic bytes 00 00 08 03", "00 00 0d 03")


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read a data file"):
        read_idx(tmp_path, 3)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("place", ["", "train"])
def test_a_split(write_mnist, zipped: bool, place: str) -> None:
    images, labels = read_split(write_mnist(zipped=zipped, place=place), "train")
    assert (images.shape, images.dtype, labels.dtype) == ((12, 4, 4, 1), np.uint8, np.int32)
    assert images[:, 0, 0, 0].tolist() == list(range(12))
    assert labels.tolist() == [k % 10 for k in range(12)]


def test_a_plain_file_comes_before_its_gzip_form(write_mnist) -> None:
    folder = write_mnist(count=3)
    write_mnist(count=5, zipped=True)
    assert len(read_split(folder, "train")[0]) == 3


def test_a_missing_file_says_how_to_get_it(write_mnist) -> None:
    folder = write_mnist()
    (folder / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError) as caught:
        read_split(folder, "train")
    assert caught.value.rows == {
        "folder": str(folder),
        "expected": "train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz], in the folder or in its train/",
        "found": "train-images-idx3-ubyte",
        "repair": "set dataset.data_dir to the folder with the files, or dataset.download=true to download them",
    }


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_split(tmp_path / "nowhere", "train")
    assert caught.value.rows["found"] == "No such file or directory"


def test_labels_and_images_must_be_equally_many(write_mnist, idx_bytes) -> None:
    folder = write_mnist()
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(11)))
    with pytest.raises(DataError) as caught:
        read_split(folder, "train")
    assert caught.value.rows["found"] == "11 labels"


def test_labels_must_be_classes(write_mnist, idx_bytes) -> None:
    folder = write_mnist()
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([0] * 7 + [10] + [3] * 4)))
    with pytest.raises(DataError) as caught:
        read_split(folder, "train")
    assert caught.value.rows["found"] == "10 as label number 7"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_of_the_published_shape_that_is_not_the_published_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    path = tmp_path / f"train-images-idx3-ubyte{suffix}"
    published = PublishedFile((3, 4, 5), hashlib.sha256(PLAIN).hexdigest())
    assert published.size == len(PLAIN)
    monkeypatch.setitem(mnist_cifar.PUBLISHED, "train-images-idx3-ubyte", published)
    path.write_bytes(gzip.compress(PLAIN) if suffix else PLAIN)
    assert read_idx(path, 3).sum() == IMAGES.sum()
    assert caplog.messages == []
    flipped = bytearray(PLAIN)
    flipped[40] ^= 1  # one pixel, by one grey level
    path.write_bytes(gzip.compress(flipped) if suffix else bytes(flipped))
    assert abs(int(read_idx(path, 3).sum()) - int(IMAGES.sum())) == 1
    assert [f"{path} is not MNIST's: other data" in line for line in caplog.messages] == [True]
    read_idx(path, 3, verify=False)
    assert len(caplog.messages) == 1


def test_the_real_mnist(real_mnist: Path) -> None:
    images, labels = read_split(real_mnist, "test")
    assert images.shape == (10000, 28, 28, 1)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_a_flipped_bit_in_the_real_mnist(real_mnist: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(gzip.decompress((real_mnist / "t10k-images-idx3-ubyte.gz").read_bytes()))
    data[5_000_000] ^= 4
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(data)
    assert len(read_idx(path, 3)) == 10_000
    assert str(path) in caplog.text  # other data under the name of a published file

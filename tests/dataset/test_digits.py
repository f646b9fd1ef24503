"""The digits that are distributed with runner, compared with scikit-learn's copy of them."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import runner.dataset as ds
from runner.dataset.readers.digits import EXPECTED, FILE, SHA256, read_digits, split_rows
from runner.errors import DataError

CONTENT = gzip.decompress(FILE.read_bytes())
# Of the digits as runner read them from scikit-learn's file: runs and golden files have these numbers.
FINGERPRINTS = {
    "train": "d577014569414fdf7053ed2c356108a3a1e22e7a8a017d1566c1073faa16f8a7",
    "test": "1079e3b459de091dc3ddf269c71ff180acd916fa327479acfb3120e21b84213c",
    "all": "3ccb594cbb458819c5fa3e273a05fde3b893e2703d81bf13d201693c4c61b93f",
}


def read(tmp_path: Path, stored: bytes) -> tuple[np.ndarray, np.ndarray]:
    path = tmp_path / "digits.bin.gz"
    path.write_bytes(stored)
    return read_digits(path)


def test_digits_equal_those_of_scikit_learn() -> None:
    images, labels = read_digits()
    expected = load_digits()
    assert (images.shape, images.dtype, labels.dtype) == ((1797, 8, 8, 1), np.uint8, np.int32)
    np.testing.assert_array_equal(labels, expected.target)
    np.testing.assert_array_equal(images[..., 0], np.floor(expected.images * 255 / 16 + 0.5))
    assert (images.min(), images.max()) == (0, 255)


def test_the_split_never_changes() -> None:
    train, test = split_rows("train"), split_rows("test")
    assert (len(train), len(test)) == (1437, 360)
    assert sorted([*train, *test]) == list(range(1797))
    assert test[:8].tolist() == [4, 5, 6, 9, 14, 17, 18, 19]
    _, labels = read_digits()
    assert np.bincount(labels[test]).min() >= 25


def test_the_data_set_has_the_hash_that_earlier_runs_recorded() -> None:
    assert {usage: ds.DigitsDataset(usage).fingerprint() for usage in FINGERPRINTS} == FINGERPRINTS


OTHERS = {
    "nothing": b"",
    "a truncated file": FILE.read_bytes()[:-1],
    "a byte more": FILE.read_bytes() + b"\0",
    "not compressed": CONTENT,
    "empty": gzip.compress(b""),
    "a number too few": gzip.compress(CONTENT[:-1]),
    "a number too many": gzip.compress(CONTENT + b"\0"),
    "another label": gzip.compress(CONTENT[:-1] + b"\x09"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, OTHERS[name])
    assert caught.value.rows["repair"] == "install runner again"


def test_a_changed_pixel_is_told_by_its_hash(tmp_path: Path) -> None:
    changed = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    with pytest.raises(DataError) as caught:
        read(tmp_path, gzip.compress(changed))
    assert caught.value.rows["expected"] == EXPECTED
    assert caught.value.rows["found"] == f"116805 bytes with the sha256 {hashlib.sha256(changed).hexdigest()}"
    assert SHA256 in EXPECTED


def test_the_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read a data file"):
        read_digits(tmp_path / "digits.bin.gz")


def test_the_note_on_the_licence_is_beside_the_file() -> None:
    note = FILE.with_name("digits.LICENSE.md").read_text()
    assert "https://doi.org/10.24432/C50P49" in note
    assert "https://creativecommons.org/licenses/by/4.0/" in note

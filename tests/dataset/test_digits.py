"""The digits that scikit-learn carries, compared with its own loader where that can be imported."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runner.dataset.formats import digits
from runner.dataset.formats.digits import digits_file, read_digits, split_rows
from runner.errors import DataError

TEXT = gzip.decompress(digits_file().read_bytes())


def read_text(tmp_path: Path, text: bytes) -> tuple[np.ndarray, np.ndarray]:
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(gzip.compress(text, 1))
    return read_digits(path)


def test_digits_equal_a_plain_reading_of_the_file() -> None:
    images, labels = read_digits(digits_file())
    table = np.loadtxt(TEXT.decode().splitlines(), delimiter=",")
    assert (images.shape, images.dtype, labels.dtype) == ((1797, 8, 8, 1), np.uint8, np.int32)
    np.testing.assert_array_equal(labels, table[:, -1])
    np.testing.assert_array_equal(images.reshape(1797, 64), np.floor(table[:, :-1] * 255 / 16 + 0.5))
    assert (images.min(), images.max()) == (0, 255)


def test_the_split_never_changes() -> None:
    train, test = split_rows("train"), split_rows("test")
    assert (len(train), len(test)) == (1437, 360)
    assert sorted([*train, *test]) == list(range(1797))
    assert test[:8].tolist() == [4, 5, 6, 9, 14, 17, 18, 19]
    _, labels = read_digits(digits_file())
    assert np.bincount(labels[test]).min() >= 25


@pytest.mark.parametrize(
    "text",
    [
        b"",
        TEXT[:-1],
        TEXT[: TEXT.rindex(b"\n", 0, -1) + 1],
        TEXT + TEXT[: TEXT.index(b"\n") + 1],
        TEXT.replace(b"16", b"17", 1),
        TEXT.replace(b"16", b"-1", 1),
        TEXT.replace(b"16", b"1.", 1),
        TEXT.replace(b"16", b"", 1),
        TEXT.replace(b"16", b"100", 1),
        TEXT.replace(b",16", b"\n16", 1),
        TEXT.replace(b"0\n", b"0,", 1),
        b"," * (1797 * 65),
        TEXT[:-2] + b"10\n",
        TEXT.replace(b"\n", b"\r\n"),
        b"\xff" + TEXT[1:],
    ],
)
def test_any_other_text_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(DataError) as caught:
        read_text(tmp_path, text)
    assert caught.value.rows["expected"] == "1797 lines of 64 numbers from 0 to 16 and a label"
    assert "scikit-learn" in caught.value.rows["repair"]


def test_scikit_learn_is_not_imported() -> None:
    check = "import sys, runner.dataset as ds; ds.DigitsDataset(); print('sklearn' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.check_output([sys.executable, "-c", check], cwd=root, text=True) == "False\n"


def test_scikit_learn_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError) as caught:
        digits_file()
    assert caught.value.rows == {"repair": "pip install scikit-learn"}

"""Arrays of numpy: values, ways to divide them, new files, and files that are damaged or hostile."""

import errno
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from damage import damaged
from tables import table

import runner.dataset as ds
from runner.dataset.readers import arrays as npy_content, arrays as npz_arrays
from runner.dataset.samples import RowSource
from runner.errors import ConfigError, DataError, RunnerError, StorageError

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(30, 4, 2)), np.arange(30) % 3


def values(data: ds.Dataset) -> tuple[np.ndarray, ...]:
    return tuple(np.stack(column) for column in zip(*data.read(0), strict=True))


def saved(path: Path, **arrays: np.ndarray) -> Path:
    """A `.npz`; or for a path without this ending a folder of `.npy`."""
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    else:
        path.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(path / f"{name}.npy", array)
    return path


def opened(path: Path, split: str = "train", **keys: object) -> ds.Dataset:
    keys = {"data_file" if path.suffix == ".npz" else "data_dir": path, **keys}
    return ds.npz_arrays(split, **keys)


@pytest.fixture(params=["arrays.npz", "arrays"])
def path(request, tmp_path: Path) -> Path:
    return tmp_path / request.param


def test_floats_and_classes(path) -> None:
    saved(path, x=X, y=Y)
    train, test = (opened(path, split, test_fraction=0.2) for split in ("train", "test"))
    assert [str(kind) for kind in train.column_types()] == ["Float32[4, 2]", "Int32[]"]
    assert train.num_classes == test.num_classes == 3
    x, y = (np.concatenate(parts) for parts in zip(values(train), values(test), strict=True))
    rows = [int(np.flatnonzero((X.astype(np.float32) == row).all(axis=(1, 2)))[0]) for row in x]
    assert sorted(rows) == list(range(30))
    assert y.tolist() == Y[rows].tolist()
    assert np.bincount(values(test)[1]).tolist() == [2, 2, 2]


def test_the_split_is_that_of_the_other_form(tmp_path) -> None:
    one, other = (opened(saved(tmp_path / name, x=X, y=Y), test_fraction=0.2) for name in ("a.npz", "a"))
    assert one.fingerprint() == other.fingerprint()


def test_a_target_of_floats_is_a_regression(path) -> None:
    saved(path, x_train=X, y_train=Y / 2, x_test=X[:2], y_test=Y[:2] / 2)
    train, test = opened(path), opened(path, "test")
    assert [str(kind) for kind in train.column_types()] == ["Float32[4, 2]", "Float32[1]"]
    assert train.num_classes is None
    assert values(train)[1].tolist() == [[y / 2] for y in Y.tolist()]
    assert len(test) == 2
    whole = opened(saved(path.with_name("i" + path.name), x=X, y=Y), task="regression", test_fraction=0.5)
    assert str(whole.column_types()[1]) == "Float32[1]"


def test_folders_and_files_of_splits(tmp_path) -> None:
    folder = saved(saved(tmp_path / "d/train", x=X, y=Y).parent / "test", x=X[:3], y=Y[:3]).parent
    assert [len(opened(folder, split)) for split in ("train", "test")] == [30, 3]
    one, other = saved(tmp_path / "a.npz", x=X, y=Y), saved(tmp_path / "b.npz", x=X[:3], y=Y[:3])
    assert [len(opened(one, split, test_file=other)) for split in ("train", "test")] == [30, 3]


def test_several_inputs_of_integers_and_floats(path) -> None:
    words = RNG.integers(0, 2**31 - 1, (30, 5))
    saved(path, words=words, x=np.asfortranarray(X.astype(np.float16)), label=Y, unused=np.array(["a"]))
    data = opened(path, inputs=("words", "x"), target="label", test_fraction=0.1)
    assert data.get_col_names() == ["words", "x", "label"]
    assert [str(kind) for kind in data.column_types()] == ["Int32[5]", "Float32[4, 2]", "Int32[]"]
    found = {row.tobytes() for row in values(data)[0]}
    assert found <= {row.tobytes() for row in words.astype(np.int32)}
    assert {row.tobytes() for row in values(data)[1]} <= {
        row.tobytes() for row in X.astype(np.float16).astype(np.float32)
    }


def test_bytes_are_scaled(path) -> None:
    images = RNG.integers(0, 256, (6, 3, 3), np.uint8)
    data = opened(saved(path, x_train=images, y_train=Y[:6], x_test=images, y_test=Y[:6]), scale=1 / 255)
    np.testing.assert_allclose(values(data)[0], images / 255, atol=1e-7)


def test_a_mapped_file_is_not_read_into_memory(tmp_path, monkeypatch) -> None:
    path = saved(tmp_path / "a", x=X, y=Y)
    small = opened(path, test_fraction=0.2)
    monkeypatch.setattr(npz_arrays, "CACHED_BYTES", 10)
    large = opened(path, test_fraction=0.2)
    assert isinstance(small.compact()[0], np.ndarray)
    assert isinstance(large.compact()[0], RowSource)
    assert large.fingerprint() != ""
    for mine, theirs in zip(values(small), values(large), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    whole = opened(saved(tmp_path / "b", x_train=X, y_train=Y, x_test=X, y_test=Y))
    base = whole.compact()[0]
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_workers_change_no_byte_and_a_pass_can_begin_anywhere(path, monkeypatch) -> None:
    monkeypatch.setattr(npz_arrays, "CACHED_BYTES", 10)
    saved(path, x=X, y=Y)
    one, four = (opened(path, test_fraction=0.2).shuffle(9).batch(5, False, n) for n in (1, 4))
    for epoch in range(2):
        whole = [[column.tobytes() for column in batch] for batch in one.read(epoch)]
        assert [[column.tobytes() for column in batch] for batch in four.read(epoch)] == whole
        assert [[column.tobytes() for column in batch] for batch in four.read(epoch, 2)] == whole[2:]


def test_new_files(path, tmp_path) -> None:
    saved(path, x=X, y=Y)
    data = opened(path, test_fraction=0.2)
    again = ds.stored_preprocessing(data.preprocessing.as_json())
    assert again.as_json() == data.preprocessing.as_json()
    new, one = saved(tmp_path / "new.npz", x=X[:2], z=Y), tmp_path / "one.npy"
    np.save(one, X[4])
    np.save(many := tmp_path / "many.npy", X[5:8])
    read = again.read([new, one, many])
    assert read.row_names[1:4] == [f"{new}[1]", f"{one}[0]", f"{many}[0]"]
    assert read.get_col_names() == ["x"]
    assert values(read)[0].tolist() == X[[0, 1, 4, 5, 6, 7]].astype(np.float32).tolist()
    for arrays, expected in (({"z": X}, "lacks an input"), ({"x": X[:, :3]}, "has another shape")):
        with pytest.raises(DataError, match=expected):
            again.read([saved(tmp_path / "wrong.npz", **arrays)])
    np.save(one, X[4, :2])
    with pytest.raises(DataError, match="has another shape"):
        again.read([one])


# Files that are wrong


class Trap:
    """What an unpickled object would do."""

    def __reduce__(self):
        return (RuntimeError, ("unpickled",))


WRONG: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "objects": ({"x": np.array([Trap()] * 30), "y": Y}, "an array has an element type that samples cannot have"),
    "text": ({"x": np.array(["a"] * 30), "y": Y}, "an array has an element type that samples cannot have"),
    "complex": ({"x": X + 1j, "y": Y}, "an array has an element type that samples cannot have"),
    "records": ({"x": np.zeros(30, [("a", "i4")]), "y": Y}, "an array has an element type that samples cannot have"),
    "byte order": ({"x": X.astype(">f8"), "y": Y}, "an array has an element type that samples cannot have"),
    "lengths": ({"x": X[:7], "y": Y}, "arrays have different numbers of rows"),
    "no axis": ({"x": np.array(1.0), "y": Y}, "an array has no rows"),
    "negative": ({"x": X, "y": Y - 1}, "not class numbers"),
    "too many": ({"x": X, "y": Y * 10**7}, "not class numbers"),
    "64 bits": ({"x": np.full((30, 1), 2**40), "y": Y}, "integers are outside of 32 bits"),
    "one sample": ({"x": X[:1], "y": Y[:1]}, "there are too few samples for a test split"),
}


@table(("arrays", "expected"), WRONG.values(), ids=WRONG)
def test_wrong_arrays(tmp_path_factory, arrays, expected) -> None:
    for name in ("arrays.npz", "arrays"):
        path = saved(tmp_path_factory.mktemp("wrong") / name, **arrays)
        with pytest.raises(DataError) as caught:
            opened(path, test_fraction=0.2)
        assert str(caught.value).startswith(f"DataError: {expected}\n")


@table(
    ("content", "expected"),
    [
        (b"", "a .npz file"),
        (b"\x93NUMPY\1\0", "a .npz file"),
        (b"PK\5\6" + bytes(18), "1 to 1000 arrays"),
    ],
)
def test_files_that_are_no_npz(tmp_path, content, expected) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=expected):
        opened(path, test_fraction=0.2)


def npy(shape: str, content: bytes = b"", kind: str = "<f4") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + content


@table(
    "shape",
    ["(1000000000000,)", "(4, 4)", "(-1,)", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", "(True,)", "'a'", "(" * 3000, "2**99,"],
)
def test_headers_are_checked_before_memory_is_taken(tmp_path, shape) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", npy(shape, bytes(8)))
        archive.writestr("y.npy", npy("(2,)", bytes(8)))
    (tmp_path / "x.npy").write_bytes(npy(shape, bytes(8)))
    (tmp_path / "y.npy").write_bytes(npy("(2,)", bytes(8)))
    for path in (tmp_path / "a.npz", tmp_path):
        with pytest.raises(RunnerError) as caught:
            opened(path, test_fraction=0.2)
        assert caught.value.exit_code in (2, 7)
        assert "x" in str(caught.value)


def test_names_are_checked_before_an_array_is_read(tmp_path, monkeypatch) -> None:
    path = saved(tmp_path / "arrays.npz", x_train=np.ones((4, 2)), y_train=np.arange(4), x_test=np.ones((4, 2)))
    read: list[str] = []
    monkeypatch.setattr(npz_arrays.NpzFile, "read", recorded(npz_arrays.NpzFile.read, read))
    with pytest.raises(ConfigError) as caught:
        opened(path, "test")
    assert caught.value.rows["array"] == "y_test"
    assert read == ["y_train", "y_test"]


def recorded(function: Callable[[object, str], object], calls: list[str]) -> Callable[[object, str], object]:
    def call(self: object, name: str) -> object:
        calls.append(name)
        return function(self, name)

    return call


def test_a_file_that_cannot_be_mapped(tmp_path, monkeypatch) -> None:
    folder = saved(tmp_path / "arrays", x=np.ones((4, 2)), y=np.arange(4))

    def refused(*given: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(np, "memmap", refused)
    with pytest.raises(StorageError, match="cannot map a file into memory") as caught:
        opened(folder, test_fraction=0.5)
    assert caught.value.rows["reason"] == "No such device"


def test_a_compressed_bomb(tmp_path) -> None:
    """More values than the header says are an error, and the memory is that of the header."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy("(2,)", bytes(1 << 26)))
        archive.writestr("y.npy", npy("(2,)", bytes(8)))
    with pytest.raises(DataError, match="found     more"):
        opened(tmp_path / "a.npz", test_fraction=0.2)


def test_memory_is_required_by_the_header(tmp_path, monkeypatch) -> None:
    requested: list[int] = []
    monkeypatch.setattr(npy_content, "require_memory", lambda needed, **rows: requested.append(needed))
    opened(saved(tmp_path / "a.npz", x=X, y=Y), test_fraction=0.2)
    assert X.nbytes in requested


@table(
    ("keys", "expected"),
    [
        ({"data_file": None}, "one of data_file and data_dir is needed"),
        ({"data_dir": "x"}, "one of data_file and data_dir is needed"),
        ({"inputs": ("z",)}, "no array of this name"),
        ({"target": "labels"}, "no array of this name"),
        ({"inputs": ()}, "inputs and target have to be different arrays"),
        ({"inputs": ("x", "x")}, "inputs and target have to be different arrays"),
        ({"inputs": ("y",)}, "inputs and target have to be different arrays"),
        ({"test_fraction": None}, "the data have no test split"),
        ({"test_fraction": 1.5}, "not a part of the data"),
        ({"task": "x"}, "task is not one of the choices"),
        ({"scale": float("nan")}, "scale must be"),
        ({"split": "x"}, "split is not one of the choices"),
    ],
)
def test_wrong_arguments(tmp_path, keys, expected) -> None:
    path = saved(tmp_path / "a.npz", x=X, y=Y)
    with pytest.raises(ConfigError, match=expected):
        ds.npz_arrays(**{"split": "train", "data_file": path, "test_fraction": 0.2, **keys})


def test_classes_that_only_the_test_split_has(path) -> None:
    saved(path, x_train=X, y_train=Y, x_test=X[:2], y_test=np.array([0, 3]))
    with pytest.raises(DataError) as caught:
        opened(path, "test")
    assert "expected  integers from 0 to 2, as in the training split\n  found     0 to 3\n" in str(caught.value)


@table(
    ("arrays", "expected"),
    [
        ({"x_test": X[:2, :3]}, "the splits have samples of different shapes"),
        ({"x_test": np.zeros((2, 4, 2), np.int32)}, "the splits have different element types"),
        ({"y_test": np.zeros(2)}, "the splits have different element types"),
        ({"y_test": np.zeros((2, 1), np.int64)}, "the splits have samples of different shapes"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_splits_that_differ(tmp_path_factory, arrays, expected) -> None:
    for name in ("arrays.npz", "arrays"):
        path = tmp_path_factory.mktemp("differ") / name
        saved(path, **{"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2], **arrays})
        with pytest.raises(DataError, match=expected):
            opened(path, "test")


def test_missing_files(tmp_path) -> None:
    for path in (tmp_path / "none.npz", tmp_path / "none"):
        with pytest.raises(DataError, match="missing"):
            opened(path, test_fraction=0.2)


def test_damage_gives_arrays_or_an_error(tmp_path) -> None:
    whole = io.BytesIO()
    np.savez_compressed(whole, x=X, y=Y)
    readers: dict[str, tuple[bytes, Callable[[Path], object]]] = {
        "a.npz": (whole.getvalue(), lambda path: opened(path, test_fraction=0.2)),
        "x.npy": (npy("(2, 1)", bytes(8)), lambda path: opened(path.parent, test_fraction=0.5)),
    }
    np.save(tmp_path / "y.npy", np.array([0, 0]))
    codes = set()
    for name, (content, read) in readers.items():
        for _, broken in damaged(content, name, 200):
            (tmp_path / name).write_bytes(broken)
            try:
                read(tmp_path / name)
            except RunnerError as error:
                codes.add(error.exit_code)
    assert codes <= {2, 7}

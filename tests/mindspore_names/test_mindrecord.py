"""`runner.mindrecord`: writing, reading by pages, and converters. Its package is an extra: see test_record_sources."""

import gzip
import os
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from record_bytes import tf_record, write_cifar_10
from runner.mindrecord import (
    SUCCESS,
    Cifar10ToMR,
    CsvToMR,
    FileReader,
    FileWriter,
    ImageNetToMR,
    MindPage,
    MnistToMR,
    TFRecordToMR,
)
from tables import table

import runner.dataset as ds
import runner.dataset.vision.c_transforms as vision
from runner.errors import ConfigError, DataError, StorageError
from runner.mindspore.mindrecord import csv_records

needs_library = pytest.mark.skipif(find_spec("mindspore") is None, reason="the extra mindrecord is not installed")
ROWS = [{"label": k, "name": f"n{k}", "x": np.arange(3, dtype=np.float32) + k} for k in range(6)]
SCHEMA = {"label": {"type": "int32"}, "name": {"type": "string"}, "x": {"type": "float32", "shape": [3]}}


def write(path: Path, shards: int = 1) -> None:
    writer = FileWriter(str(path), shards)
    assert writer.add_schema(SCHEMA, "six rows") == 0
    results = writer.add_index(["label"]), writer.write_raw_data(ROWS[:4]), writer.write_raw_data(ROWS[4:])
    assert (*results, writer.commit()) == (SUCCESS,) * 4


def rows(path: object) -> list[dict]:
    data = ds.MindDataset(str(path), shuffle=False)
    return list(data.create_dict_iterator(num_epochs=1, output_numpy=True))


@needs_library
def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "six", 2)
    reader = FileReader(str(tmp_path / "six0"), columns=["label", "x"])
    found = list(reader.get_next())
    reader.close()
    assert [sorted(one) for one in found] == [["label", "x"]] * 6
    assert sorted(one["label"] for one in found) == list(range(6))  # file after file
    np.testing.assert_array_equal([one["x"] for one in found], [ROWS[one["label"]]["x"] for one in found])


@needs_library
def test_rows_are_appended(tmp_path):
    write(tmp_path / "six")
    writer = FileWriter.open_for_append(str(tmp_path / "six"))
    writer.write_raw_data(ROWS[:1])
    assert writer.commit() == SUCCESS
    assert [int(one["label"]) for one in rows(tmp_path / "six")] == [0, 1, 2, 3, 4, 5, 0]


@needs_library
def test_pages_of_a_category(tmp_path):
    write(tmp_path / "six")
    pages = MindPage(str(tmp_path / "six"))
    assert pages.candidate_fields == pages.get_category_fields() == ["label"]
    pages.category_field = "label"
    assert pages.category_field == "label"
    assert '"count":1,"id":3,"name":"3"' in pages.read_category_info()
    assert [one["name"] for one in pages.read_at_page_by_id(3, 0, 2)] == ["n3"]
    assert [one["name"] for one in pages.read_at_page_by_name("5", 0, 2)] == ["n5"]
    with pytest.raises(ConfigError, match="not an indexed field"):
        pages.set_category_field("name")


@needs_library
def test_errors_of_writing_and_reading(tmp_path):
    write(tmp_path / "six")
    with pytest.raises(StorageError, match="a file of this name exists"):
        FileWriter(str(tmp_path / "six"))
    with pytest.raises(DataError, match="should be dict"):
        FileWriter(str(tmp_path / "new")).add_schema({"x": 3})
    with pytest.raises(DataError, match="cannot be read"):
        FileReader(str(tmp_path / "nowhere"))


def test_arguments_are_checked_before_the_package_is_needed(tmp_path):
    with pytest.raises(ConfigError, match="shard_num"):
        FileWriter(str(tmp_path / "new"), 0)
    with pytest.raises(ConfigError, match="a list of names"):
        FileReader("nowhere", columns="label")
    with pytest.raises(DataError, match="data_batch_"):
        Cifar10ToMR(str(tmp_path), "new")


@needs_library
def test_writing_is_silent_and_leaves_the_environment(tmp_path):
    script = """
import os
before = dict(os.environ)
import runner.dataset as ds
from runner.mindrecord import FileWriter
writer = FileWriter("new")
writer.add_schema({"x": {"type": "int32"}})
writer.write_raw_data([{"x": 1}])
writer.commit()
next(ds.MindDataset("new").create_dict_iterator())
assert dict(os.environ) == before
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@needs_library
def test_cifar_10_becomes_jpeg_files(tmp_path):
    images, labels = write_cifar_10(tmp_path / "cifar", 12)
    converter = Cifar10ToMR(str(tmp_path / "cifar"), str(tmp_path / "new"))
    assert converter.transform(["label"]) == SUCCESS
    for end in ("", "_test"):
        data = ds.MindDataset(str(tmp_path / f"new{end}"), shuffle=False).map(vision.Decode(), "data")
        found = list(data.create_dict_iterator(num_epochs=1, output_numpy=True))
        assert [int(one["label"]) for one in found] == labels
        assert [int(one["id"]) for one in found] == list(range(12))
        assert np.abs(np.array([one["data"] for one in found]).astype(int) - images).max() <= 4  # JPEG


@needs_library
def test_mnist_becomes_jpeg_files(tmp_path):
    images = np.repeat(np.arange(0, 250, 50, dtype=np.uint8), 28 * 28).reshape(5, 28, 28)
    for prefix in ("train", "t10k"):
        for kind, values in (("images-idx3", images), ("labels-idx1", np.arange(5, dtype=np.uint8))):
            header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
            (tmp_path / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + values.tobytes()))
    assert MnistToMR(str(tmp_path), str(tmp_path / "new"), 2).transform() == SUCCESS
    for name in ("new_train.mindrecord0", "new_test.mindrecord0"):
        found = rows(tmp_path / name)
        assert [int(one["label"]) for one in found] == list(range(5))
        decoded = np.array([vision.Decode()(one["data"]) for one in found])
        assert np.abs(decoded.astype(int) - images[..., None]).max() <= 1


@needs_library
def test_folders_of_classes_keep_the_bytes_of_their_files(tmp_path):
    for folder, name in (("n01", "a.JPEG"), ("n01", "note.txt"), ("n02", "b.jpg"), ("n02", "empty.jpg")):
        (tmp_path / "images" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / folder / name).write_bytes(b"" if name == "empty.jpg" else name.encode())
    (tmp_path / "map.txt").write_text("n02 1\nn01 0\nn03 2\n")
    converter = ImageNetToMR(str(tmp_path / "map.txt"), str(tmp_path / "images"), str(tmp_path / "new"))
    assert converter.transform() == SUCCESS
    found = {
        one["image"].tobytes(): (int(one["label"]), os.fsdecode(one["file_name"][()])) for one in rows(tmp_path / "new")
    }
    paths = [str(tmp_path / "images" / name) for name in ("n01/a.JPEG", "n02/b.jpg")]
    assert found == {b"a.JPEG": (0, paths[0]), b"b.jpg": (1, paths[1])}


@needs_library
def test_a_csv_file_keeps_its_values(tmp_path):
    (tmp_path / "table.csv").write_text("id,name,math\n1,Lily,78.5\n2,Lucy,99\n")
    assert CsvToMR(str(tmp_path / "table.csv"), str(tmp_path / "new")).transform() == SUCCESS
    found = [{name: value[()] for name, value in one.items()} for one in rows(tmp_path / "new")]
    assert found == [{"id": 1, "math": 78.5, "name": b"Lily"}, {"id": 2, "math": 99.0, "name": b"Lucy"}]


@needs_library
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_a_tfrecord_file_is_converted(tmp_path):
    (tmp_path / "examples").write_bytes(tf_record([{"x": [k], "f": [0.5, 1.5], "n": [b"a%d" % k]} for k in range(3)]))
    script = """
import tensorflow as tf
from runner.mindrecord import SUCCESS, TFRecordToMR
read = tf.io.FixedLenFeature
features = {"x": read([], tf.int64), "f": read([2], tf.float32), "n": read([], tf.string)}
assert TFRecordToMR("examples", "new", features).transform() == SUCCESS
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True)
    found = rows(tmp_path / "new")
    assert [int(one["x"]) for one in found] == [0, 1, 2]
    assert [bytes(one["n"][()]) for one in found] == [b"a0", b"a1", b"a2"]
    np.testing.assert_array_equal([one["f"] for one in found], [[0.5, 1.5]] * 3)


def test_without_tensorflow_the_error_has_the_installation(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install tensorflow"):
        TFRecordToMR("examples", "new", {})


COLUMNS = {
    "whole numbers": (["1", " -2 ", "3"], "int64", [1, -2, 3]),
    "numbers": (["1", "2.5", "1e3"], "float64", [1.0, 2.5, 1000.0]),
    "larger than int64": (["1", str(1 << 63)], "float64", [1.0, float(1 << 63)]),
    "flags": (["True", "False", "True"], "int32", [1, 0, 1]),
    "text": (["1", "x", ""], "string", ["1", "x", ""]),
    "underscores": (["1_0", "2_0"], "string", ["1_0", "2_0"]),
}


@table(("texts", "kind", "values"), COLUMNS.values())
def test_types_of_csv_columns(tmp_path, texts, kind, values):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a,b", *(f"0,{text}" for text in texts)]))
    kinds, found = csv_records(path, ["b"])
    assert (kinds, [row["b"] for row in found]) == ({"b": kind}, values)


def test_errors_of_csv_files(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1\n")
    with pytest.raises(DataError, match="1 fields in line 2"):
        csv_records(path, None)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="no such column"):
        csv_records(path, ["c"])
    path.write_text("a,b\n")
    with pytest.raises(DataError, match="without rows"):
        csv_records(path, None)

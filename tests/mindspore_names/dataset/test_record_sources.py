"""MindRecord and TFRecord files as datasets. The package that reads them is an extra: CI has the tests without it."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from record_bytes import tf_record
from runner.mindrecord import FileWriter

import runner
import runner.dataset as ds
from runner.errors import ConfigError, DataError
from runner.mindspore.dataset import sources

needs_library = pytest.mark.skipif(find_spec("mindspore") is None, reason="the extra mindrecord is not installed")
ROWS = 10
SCHEMA = {
    "name": {"type": "string"},
    "label": {"type": "int32"},
    "data": {"type": "bytes"},
    "f": {"type": "float64"},
    "a": {"type": "float32", "shape": [-1]},
    "n": {"type": "int64"},
    "b": {"type": "int64", "shape": [2, -1]},
}
EXAMPLES = [
    {"x": [k - 1], "v": list(range(k + 1)), "f": [0.5 * k, 2.25], "name": [b"f%d" % k], "two": [b"ab", b"c"]}
    for k in range(4)
]


def row(k: int) -> dict:
    arrays = {"a": np.arange(k + 1, dtype=np.float32) / 4, "b": np.full((2, 3), k, np.int64)}
    return {"name": f"row{k}", "label": k - 1, "data": bytes([255, k, 0]), "f": k + 0.5, "n": k + (1 << 40), **arrays}


@pytest.fixture
def written(tmp_path: Path) -> str:
    writer = FileWriter(str(tmp_path / "rows"), 3)
    writer.add_schema(SCHEMA, "for tests")
    writer.add_index(["name", "label"])
    writer.write_raw_data([row(k) for k in range(ROWS)])
    writer.commit()
    return str(tmp_path / "rows0")


def labels(data: ds.MindDataset) -> list[int]:
    return [int(one["label"]) for one in data.create_dict_iterator(num_epochs=1, output_numpy=True)]


@needs_library
def test_rows_of_mindrecord_are_those_written(written):
    data = ds.MindDataset(written, shuffle=False)
    assert (data.get_dataset_size(), data.get_col_names()) == (ROWS, sorted(SCHEMA))
    for k, found in enumerate(data.create_dict_iterator(num_epochs=1, output_numpy=True)):
        given = row(k)
        expected = {
            "name": np.array(given["name"].encode()),
            "data": np.frombuffer(given["data"], np.uint8),
            "label": np.array(given["label"], np.int32),
            "f": np.array(given["f"]),
            "n": np.array(given["n"]),
            "a": given["a"],
            "b": given["b"],
        }
        assert {name: (value.dtype.str, value.shape) for name, value in found.items()} == {
            name: (value.dtype.str, value.shape) for name, value in expected.items()
        }
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@needs_library
def test_a_sample_in_the_form_of_the_reference(written):
    first = next(ds.MindDataset(written, ["label", "data"], shuffle=False).create_dict_iterator(num_epochs=1))
    assert list(first) == ["label", "data"]
    assert first["data"].dtype is runner.uint8
    assert first["label"].shape == ()


@needs_library
def test_order_samplers_and_shards(written):
    everything = list(range(-1, ROWS - 1))
    shuffled = ds.MindDataset(written)
    assert sorted(labels(shuffled)) == everything != labels(shuffled)
    assert labels(ds.MindDataset(written, sampler=ds.SubsetSampler([3, 0]))) == [2, -1]
    assert labels(ds.MindDataset(written, shuffle=False, num_samples=3)) == everything[:3]
    padding = {"label": 77, "name": "none"}
    shards = [
        ds.MindDataset(written, list(padding), None, False, 4, k, padded_sample=padding, num_padded=2) for k in range(4)
    ]  # MindSpore 2.10 gives the same shards
    assert [labels(shard) for shard in shards] == [[-1, 3, 7], [0, 4, 8], [1, 5, 77], [2, 6, 77]]
    part = labels(ds.MindDataset([written], shuffle=False))  # a list: only these files
    assert part == everything[: len(part)] != everything


@needs_library
def test_a_network_trains_with_the_rows_of_a_file(written):
    data = ds.MindDataset(written, ["b", "f"], shuffle=False).batch(5)
    assert [str(kind) for kind in data.column_types()] == ["Int32[5, 2, 3]", "Float32[5]"]


@needs_library
def test_examples_of_tfrecord_without_a_schema(tmp_path):
    for part in range(2):
        (tmp_path / f"part{part}").write_bytes(tf_record(EXAMPLES[2 * part : 2 * part + 2]))
    data = ds.TFRecordDataset(str(tmp_path / "part*"), shuffle=False)
    for example, found in zip(EXAMPLES, data.create_dict_iterator(num_epochs=1, output_numpy=True), strict=True):
        assert found["x"].tolist() == example["x"]
        assert found["v"].tolist() == example["v"]
        np.testing.assert_array_equal(found["f"], np.array(example["f"], np.float32))
        assert found["name"].tobytes() == example["name"][0]
        assert found["two"].tobytes() == b"abc "  # as in MindSpore: to the longest, with spaces
        kinds = {name: value.dtype.name for name, value in found.items()}
        assert kinds == {"f": "float32", "name": "uint8", "two": "uint8", "v": "int64", "x": "int64"}


@needs_library
def test_examples_of_tfrecord_with_a_schema(tmp_path):
    path = tmp_path / "examples"
    path.write_bytes(tf_record(EXAMPLES))
    schema = ds.Schema()
    schema.add_column("x", runner.int64, [])
    schema.add_column("f", runner.float32, [2])
    described = tmp_path / "schema.json"
    described.write_text(schema.to_json())
    for given in (schema, str(described)):
        data = ds.TFRecordDataset(str(path), given, shuffle=False)
        rows = list(data.create_dict_iterator(num_epochs=1, output_numpy=True))
        assert [list(one) for one in rows] == [["x", "f"]] * 4
        assert [one["x"].shape for one in rows] == [()] * 4
        assert [int(one["x"]) for one in rows] == [-1, 0, 1, 2]
    described.write_text(json.dumps({"numRows": 3, **json.loads(schema.to_json())}))
    assert ds.TFRecordDataset(str(path), str(described)).get_dataset_size() == 3
    assert ds.TFRecordDataset(str(path), schema, ["f"], num_samples=2).get_col_names() == ["f"]
    assert ds.TFRecordDataset(str(path), num_shards=2, shard_id=1).get_dataset_size() == 2


@needs_library
def test_damaged_files_are_errors_of_data(tmp_path, written):
    bad = tmp_path / "bad"
    bad.write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=r"bad\.db"):
        ds.MindDataset(str(bad))
    Path(f"{bad}.db").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=r"(?s)MindRecord files cannot be read.*header"):
        ds.MindDataset(str(bad))
    with pytest.raises(DataError, match="not valid TFRecordDataset files"):
        ds.TFRecordDataset(str(bad), shuffle=False)
    with pytest.raises(ConfigError, match=r"(?s)no such column.*allowed .*label"):
        ds.MindDataset(written, ["labels"])


def test_a_missing_file():
    with pytest.raises(DataError, match=r"(?s)a data file is missing.*nowhere"):
        ds.MindDataset("nowhere")
    with pytest.raises(DataError, match="a data file is missing"):
        ds.TFRecordDataset("nowhere")


def test_without_the_package_the_error_has_the_installation(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mindspore", None)
    sources.library.cache_clear()
    (tmp_path / "examples").write_bytes(tf_record(EXAMPLES))
    try:
        with pytest.raises(ConfigError, match=r'(?s)need the package mindspore.*pip install "runner-ml\[mindrecord\]"'):
            ds.TFRecordDataset(str(tmp_path / "examples"))
        with pytest.raises(ConfigError, match="need the package mindspore"):
            FileWriter(str(tmp_path / "new"))
    finally:
        sources.library.cache_clear()


def test_only_a_file_of_records_imports_the_package():
    script = """
import sys, runner, runner.dataset as ds
from runner.mindrecord import FileWriter, Cifar10ToMR, SUCCESS
ds.MindDataset, ds.TFRecordDataset, ds.Schema()
assert not {"mindspore", "tensorflow"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True)

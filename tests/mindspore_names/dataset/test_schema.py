"""Schemas of TFRecord files: the JSON forms are those that MindSpore 2.10 printed for the same calls."""

import json

import pytest
from tables import table

import runner
from runner.dataset import Schema
from runner.errors import ConfigError, DataError


def test_columns_one_by_one():
    schema = Schema()
    assert json.loads(schema.to_json()) == {"columns": None}
    schema.add_column("a", runner.int64, [2])
    schema.add_column("b", "uint8")
    schema.add_column("c", runner.float32, [])
    schema.add_column(name="d", de_type="string", shape=[-1, 2])
    schema.add_column("e", runner.string)
    assert json.loads(str(schema))["columns"] == [
        {"name": "a", "rank": 1, "shape": [2], "type": "int64"},
        {"name": "b", "rank": 1, "type": "uint8"},
        {"name": "c", "rank": 0, "shape": [], "type": "float32"},
        {"name": "d", "rank": 2, "shape": [-1, 2], "type": "string"},
        {"name": "e", "rank": 1, "type": "string"},
    ]


def test_columns_of_dicts_and_files(tmp_path):
    columns = {"image": {"shape": [3, 3], "type": "int8"}, "label": {"shape": [1], "type": "int8"}}
    one, other = Schema(), Schema()
    one.parse_columns(columns)
    other.parse_columns([{"name": name, **given} for name, given in columns.items()])
    assert one.to_json() == other.to_json()
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"datasetType": "TF", "numRows": 3, "columns": {"x": {"type": "int64", "rank": 0}}}))
    expected = {"columns": [{"name": "x", "rank": 0, "type": "int64"}], "datasetType": "TF", "numRows": 3}
    assert json.loads(Schema(path).to_json()) == expected
    assert (Schema.get_num_rows(str(path)), Schema.get_num_rows(one)) == (3, 0)


ERRORS = {
    "a type": (lambda s: s.add_column("x", "int23"), "int32"),
    "no type": (lambda s: s.parse_columns([{"name": "x"}]), "without a type"),
    "no name": (lambda s: s.parse_columns([{"type": "int8"}]), "without a name"),
    "no columns": (lambda s: s.from_json({"datasetType": "TF"}), "not a schema"),
    "a key": (lambda s: s.from_json({"columns": [], "rows": 1}), "unknown key"),
    "a length": (lambda s: s.add_column("x", "int8", [-2]), "shape"),
}


@table(("call", "text"), ERRORS.values())
def test_errors_of_schemas(call, text):
    with pytest.raises(ConfigError, match=text):
        call(Schema())


def test_a_missing_schema():
    with pytest.raises(DataError, match="a schema is missing"):
        Schema("nowhere.json")

"""A stored preprocessing that is damaged or edited gives an error, or one that can be written again."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from damage import damaged

from runner.dataset import stored_preprocessing
from runner.errors import DataError, RunnerError
from runner.host.json import read_object

SAMPLES: dict[str, dict[str, Any]] = {
    "images": {
        "reader": "image_folder",
        "image_size": 8,
        "channels": 3,
        "mean": [0.5, 0.25, 0.1],
        "deviation": [0.1, 0.2, 0.3],
        "class_names": ["a", "b"],
    },
    "arrays": {"reader": "npz", "inputs": [{"name": "x", "shape": [2, 3], "is_integer": False}], "scale": 0.5},
    "csv": {
        "reader": "csv",
        "delimiter": ",",
        "features": [
            {"kind": "number", "name": "x", "mean": 0.1, "deviation": 2.0},
            {"kind": "category", "name": "y", "categories": ["a", "b"], "has_missing": True},
        ],
        "class_names": None,
    },
}


def places(values: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside."""
    inside = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, value in inside:
        yield (*path, name)
        yield from places(value, (*path, name))


@pytest.mark.parametrize("kind", SAMPLES)
def test_what_was_written_is_read(kind: str) -> None:
    assert stored_preprocessing(json.loads(json.dumps(SAMPLES[kind]))).as_json() == SAMPLES[kind]


@pytest.mark.parametrize("kind", SAMPLES)
def test_values_of_another_form(kind: str) -> None:
    problems = set()
    for path in places(SAMPLES[kind]):
        for wrong in (None, -1, 1 << 60, "zz", [], {}, [[]], True, 1e300, ["a", "a"]):
            values = copy.deepcopy(SAMPLES[kind])
            inner: Any = values
            for name in path[:-1]:
                inner = inner[name]
            inner[path[-1]] = wrong
            try:
                found = stored_preprocessing(values)
            except DataError as error:
                problems.add(error.what)
            else:
                assert stored_preprocessing(found.as_json()).as_json() == found.as_json()
    assert problems == {"not a stored preprocessing"}


@pytest.mark.parametrize("kind", SAMPLES)
def test_damaged_files(kind: str, tmp_path) -> None:
    codes = set()
    for _, content in damaged(json.dumps(SAMPLES[kind]).encode(), kind, 200):
        (tmp_path / "preprocessing.json").write_bytes(content)
        try:
            stored_preprocessing(read_object(tmp_path / "preprocessing.json"))
        except RunnerError as error:
            codes.add(error.exit_code)
    assert codes == {7}


def test_an_error_names_the_value() -> None:
    with pytest.raises(DataError) as caught:
        stored_preprocessing({"reader": "pickle"})
    assert str(caught.value) == (
        "DataError: not a stored preprocessing\n"
        "  value of  reader\n"
        "  expected  catalog, image_folder, npz, csv\n"
        "  found     'pickle'\n"
        "  repair    train again, or restore the file from a backup"
    )

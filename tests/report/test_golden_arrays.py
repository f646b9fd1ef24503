"""Metrics of golden files that are arrays: element by element."""

from dataclasses import replace

import pytest
from tables import table

from runner.report.ci import ComparedValue, Golden, _problem, compare

MATRIX = [[50, 1, 0], [2, 100, 3], [0, 0, 7]]
GOLDEN = Golden({"cpu": "a"}, 4, {"accuracy": 0.5, "confusion_matrix": MATRIX}, {"sha256": "", "at": {}}, {})


def changed(**places) -> Golden:
    """A run with other elements: `m12` is the one of row 1, column 2."""
    matrix = [list(row) for row in MATRIX]
    for name, value in places.items():
        matrix[int(name[1])][int(name[2])] = value
    return replace(GOLDEN, metrics={"accuracy": 0.5, "confusion_matrix": matrix})


def wrong(golden: Golden, found: Golden) -> list[tuple]:
    return [tuple(row[:3]) for row in compare(golden, found)[0] if row.differs]


def test_equal_arrays_are_one_value():
    rows, _ = compare(GOLDEN, changed())
    assert ComparedValue("confusion_matrix", "3x3 numbers", "3x3 numbers", False) in rows
    assert wrong(GOLDEN, changed()) == []


def test_every_element_that_differs_is_named():
    assert wrong(GOLDEN, changed(m01=2, m11=99)) == [
        ("confusion_matrix[0, 1]", 1.0, 2.0),
        ("confusion_matrix[1, 1]", 100.0, 99.0),
    ]


@table(
    ("places", "names"),
    [
        ({"m11": 70}, []),
        ({"m11": 69}, ["confusion_matrix[1, 1]"]),
        ({"m02": 10}, []),
        ({"m02": 11}, ["confusion_matrix[0, 2]"]),
    ],
)
def test_another_machine_is_held_to_the_tolerance(places, names):
    """By default a fifth and ten samples."""
    found = replace(changed(**places), key={"cpu": "b"})
    assert [row[0] for row in wrong(GOLDEN, found)] == names


def test_the_tolerance_of_the_file(tmp_path):
    exact = replace(GOLDEN, exact=False, tolerance={"confusion_matrix": {"rtol": 0.0, "atol": 1.0}})
    assert wrong(exact, changed(m00=49)) == []
    (row,) = (row for row in compare(exact, changed(m00=48))[0] if row.differs)
    assert row.allowed == "rtol 0, atol 1"


@pytest.mark.parametrize("other", [0.5, None, [[1, 2], [3, 4]], [1, 2, 3]])
def test_what_has_another_shape(other):
    metrics = {"accuracy": 0.5} | ({} if other is None else {"confusion_matrix": other})
    for pair in ((GOLDEN, replace(GOLDEN, metrics=metrics)), (replace(GOLDEN, metrics=metrics), GOLDEN)):
        (found,) = wrong(*pair)
        assert found[0] == "confusion_matrix"
        assert "3x3 numbers" in found


@table("metric", [[[1, 2], [3]], [["1"]], [[True]], [], [[]], {"a": 1}, "x", None, [[1e300]]])
def test_files_with_what_is_no_array(metric):
    assert _problem(GOLDEN) is None
    text = "a metric that is neither a number nor nested lists of numbers"
    assert _problem(replace(GOLDEN, metrics={"confusion_matrix": metric})) == text

"""The confusion matrix on the page of a run, against the numbers of its journal."""

import json
from functools import partial

import numpy as np
import pytest
from pages import cells, page, section
from run_folders import leave
from tables import table

from runner.cli import run_command
from runner.rundir import REPORT

main = partial(run_command, "report")
RNG = np.random.default_rng(2)
MATRIX = [[50, 1, 0, 0], [0, 100, 3, 7], [9, 0, 30, 0], [0, 0, 0, 0]]
TITLE = "Confusion matrix"


def made(folder, matrix, names=None):
    evaluations = [(1, {"confusion_matrix": [[1]]}), (2, {"accuracy": 0.5, "confusion_matrix": matrix})]
    place = leave(folder, [2.0, 1.0], evaluations)
    summary = json.loads((place / "summary.json").read_text())
    (place / "summary.json").write_text(json.dumps(summary | ({} if names is None else {"class_names": names})))
    assert main([str(place)]) == 0
    return page((place / REPORT).read_text())


def titles(root):
    return [one.all("h2")[0].text for one in root.all("section")]


def headings(grid):
    return [[cell.text for cell in row.all("th")] for row in grid.all("tr")]


def test_the_matrix_is_that_of_the_last_evaluation(tmp_path):
    part = section(made(tmp_path / "a", MATRIX, ["ant", "bee", "cow", "dog"]), TITLE)
    grid, errors, classes = part.all("table")
    assert cells(grid) == [[str(count) for count in row] for row in MATRIX]
    assert headings(grid) == [["true \\ predicted", "ant", "bee", "cow", "dog"], ["ant"], ["bee"], ["cow"], ["dog"]]
    assert cells(errors) == [
        ["cow", "ant", "9", "23.1%"],
        ["bee", "dog", "7", "6.36%"],
        ["bee", "cow", "3", "2.73%"],
        ["ant", "bee", "1", "1.96%"],
    ]
    assert cells(classes) == [
        ["ant", "51", "0.84746", "0.98039"],
        ["bee", "110", "0.9901", "0.90909"],
        ["cow", "39", "0.90909", "0.76923"],
        ["dog", "0", "0", "-"],
    ]
    assert "180 of 200 samples are right" in part.text


def test_colours_are_shares(tmp_path):
    """Right predictions by their share of the class, errors relative to the largest share of all errors."""
    (grid, *_) = section(made(tmp_path / "a", MATRIX), TITLE).all("table")
    drawn = {
        (k, m): cell.attributes.get("style")
        for k, row in enumerate(row for row in grid.all("tr") if row.all("td"))
        for m, cell in enumerate(row.all("td"))
    }
    assert drawn[0, 0] == f"background:color-mix(in srgb,var(--c1) {round(70 * 50 / 51)}%,transparent)"
    assert drawn[2, 0] == "background:color-mix(in srgb,var(--c2) 70%,transparent)"
    assert drawn[1, 3] == f"background:color-mix(in srgb,var(--c2) {round(70 * (7 / 110) / (9 / 39))}%,transparent)"
    assert drawn[0, 2] is drawn[3, 3] is None
    assert grid.all("td")[1].attributes["title"] == "0 as 1: 1 (1.96%)"


@table("names", [None, ["a"], "abcd", [1, 2, 3, 4], {"a": 1}])
def test_classes_without_names_have_numbers(names, tmp_path_factory):
    root = made(tmp_path_factory.mktemp("t") / "a", MATRIX, names)
    assert headings(section(root, TITLE).all("table")[0])[0][1:] == ["0", "1", "2", "3"]


def test_many_classes_have_tables_only(tmp_path):
    matrix = RNG.integers(0, 9, (60, 60)) + 100 * np.eye(60, dtype=int)
    part = section(made(tmp_path / "a", matrix.tolist()), TITLE)
    errors, classes = part.all("table")
    assert len(cells(errors)) == 10
    assert {row[2] for row in cells(errors)} == {"8"}
    assert [int(row[1]) for row in cells(classes)] == matrix.sum(1).tolist()


def test_two_classes_have_no_list_of_errors(tmp_path):
    part = section(made(tmp_path / "a", [[5, 1], [2, 6]]), TITLE)
    assert len(part.all("table")) == 2


def test_labels_have_a_row_each(tmp_path):
    counts = [[[50, 2], [3, 45]], [[90, 0], [10, 0]]]
    (rows,) = section(made(tmp_path / "a", counts, ["red", "blue"]), TITLE).all("table")
    assert cells(rows) == [["red", "45", "2", "3", "50", "0.95745", "0.9375"], ["blue", "0", "0", "10", "90", "-", "0"]]


@table("matrix", [[[0, 0], [0, 0]], [[0, 0, 0]] * 3, [[3]]])
def test_matrices_with_few_samples(matrix, tmp_path_factory):
    part = section(made(tmp_path_factory.mktemp("t") / "a", matrix), TITLE)
    assert cells(part.all("table")[0]) == [[str(count) for count in row] for row in matrix]


@pytest.mark.parametrize("matrix", [0.5, [1, 2], [[1, 2, 3], [4, 5, 6]], [[1, -1], [0, 1]], [[1], [2, 3]], [[["x"]]]])
def test_what_is_no_confusion_matrix_has_no_section(matrix, tmp_path):
    assert TITLE not in titles(made(tmp_path / "a", matrix))


def test_names_are_text(tmp_path):
    evil = '<img src=x onerror=alert(1)>"'
    root = made(tmp_path / "a", [[5, 1, 0], [2, 6, 0], [0, 1, 1]], [evil, "b", "c"])
    assert len(root.all("script")) == 1
    assert not root.all("img")
    assert evil in section(root, TITLE).text

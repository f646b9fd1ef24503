"""`runner compare --metrics`: two runs without their dumps, in every form."""

import csv
import io
import json
from functools import partial
from pathlib import Path

import pytest
from run_folders import leave, varied

from runner.cli import run_command
from runner.errors import ConfigError
from runner.report import compare
from runner.report.compare import MetricTolerance

main = partial(run_command, "compare")


@pytest.fixture
def runs(tmp_path):
    """B has another learning rate; its third loss is a tenth higher, and so is its accuracy."""
    a = leave(tmp_path / "a", [4.0, 2.0, 1.0, 0.5], [(4, {"accuracy": 0.5})])
    b = leave(
        tmp_path / "b", [4.0, 2.0, 1.1, 0.5], [(4, {"accuracy": 0.55})], config=varied(optimizer__learning_rate=0.1)
    )
    return str(a), str(b)


def compared(capsys, *words) -> tuple[int, dict]:
    code = main([*words, "--metrics", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_run_and_itself(runs, capsys):
    code, found = compared(capsys, runs[0], runs[0])
    assert (code, found["same"], found["config"], found["manifest"]) == (0, True, [], [])
    assert (found["losses"]["steps"], found["losses"]["identical"]) == (4, 4)


def test_what_differs_is_told(runs, capsys):
    code, found = compared(capsys, *runs)
    assert (code, found["same"]) == (6, False)
    assert found["config"] == [{"key": "optimizer.learning_rate", "a": 0.01, "b": 0.1}]
    losses = found["losses"]
    assert losses["first"] == {"global_step": 3, "a": 1.0, "b": 1.1}
    assert (losses["differing"], losses["identical"]) == (1, 3)
    assert losses["max_abs"] == pytest.approx(0.1)
    assert losses["max_rel"] == pytest.approx(0.1 / 1.1)
    assert [row["metric"] for row in found["metrics"] if row["differs"]] == ["accuracy"]


@pytest.mark.parametrize(("words", "code"), [(["--rtol", "0.1"], 0), (["--atol", "0.11"], 0), (["--rtol", "0.05"], 6)])
def test_tolerance(runs, words, code, capsys):
    assert compared(capsys, *runs, *words)[0] == code


def test_steps_of_one_run_only(tmp_path, capsys):
    a, b = leave(tmp_path / "a", [2.0, 1.0]), leave(tmp_path / "b", [2.0, 1.0, 1.0])
    code, found = compared(capsys, str(a), str(b))
    assert (code, found["losses"]["only_a"], found["losses"]["only_b"]) == (6, 0, 1)


def test_runs_without_metrics_are_not_the_same(tmp_path, capsys):
    a, b = leave(tmp_path / "a", []), leave(tmp_path / "b", [])
    code, found = compared(capsys, str(a), str(b))
    assert (code, found["losses"]["steps"], found["losses"]["max_abs"]) == (6, 0, None)


def test_a_loss_of_zero(tmp_path, capsys):
    a, b = leave(tmp_path / "a", [1.0, 0.5]), leave(tmp_path / "b", [1.0, 0.0])
    code, found = compared(capsys, str(a), str(b))
    assert (code, found["losses"]["max_rel"], found["metrics"][0]["rel"]) == (6, "inf", "inf")


def test_csv_is_read_back(runs, capsys):
    assert main([*runs, "--csv"]) == 6
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    by_key = {(row["part"], row["key"]): row for row in rows}
    assert by_key["config", "optimizer.learning_rate"]["B"] == "0.1"
    assert by_key["metrics", "accuracy"]["differs"] == "True"
    assert by_key["losses", "differing"]["A"] == "1"


def test_markdown_has_whole_tables(tmp_path, capsys):
    a = leave(tmp_path / "a", config=varied(network__name="a|b"))
    assert main([str(a), str(leave(tmp_path / "b")), "--md"]) == 0
    text = capsys.readouterr().out
    assert "a\\|b" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert tables
    assert {line.replace("\\|", "").count("|") for line in tables} <= {4, 7}


def test_the_screen_shows_it(runs, capsys):
    assert main([*runs, "--metrics"]) == 6
    out = capsys.readouterr().out
    assert out.startswith("different: accuracy differs; 1 of 4 losses differ, first at step 3")
    assert "optimizer.learning_rate" in out


def test_runs_without_a_dump_are_compared_by_metrics(runs, capsys):
    assert main([runs[0], runs[0]]) == 0
    assert f"there is no dump in {runs[0]}" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["--dumps", "--all", "--strict"])
def test_dumps_can_be_demanded(runs, word, monkeypatch):
    calls = []
    monkeypatch.setattr(compare.dumps, "main", lambda *given: calls.append(given) or 0)
    assert main([*runs, word]) == 0
    assert calls == [(tuple(map(Path, runs)), compare.Tolerance(None, 0.0), word == "--all", word == "--strict", False)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["{a}", "--metrics"], "runner compare"),
        (["{a}", "{b}", "--metrics", "--dumps"], "--dumps and --metrics"),
        (["{a}", "{b}", "--md", "--json"], "not allowed with"),
        (["{a}", "{b}", "--metrics", "--rtol", "-1"], "of at least 0"),
        (["{a}", "nowhere", "--metrics"], "does not exist"),
        (["{a}", "{a}/.hydra", "--metrics"], "not a run directory"),
    ],
)
def test_bad_words(runs, words, expected):
    with pytest.raises(ConfigError) as caught:
        main([word.format(a=runs[0], b=runs[1]) for word in words])
    assert expected in str(caught.value)


def test_help(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "--metrics" in out
    assert f"rtol {MetricTolerance.rtol:g} and atol {MetricTolerance.atol:g} by default" in out
    assert "--all" in out


# Metrics that are arrays

MATRIX = [[40, 2], [4, 50]]


def with_matrix(folder, matrix):
    return str(leave(folder, [2.0, 1.0], [(2, {"accuracy": 0.5, "confusion_matrix": matrix})]))


def test_elements_of_arrays_are_counted(tmp_path, capsys):
    a, b = with_matrix(tmp_path / "a", [[40, 2], [3, 51]]), with_matrix(tmp_path / "b", MATRIX)
    code, found = compared(capsys, a, b)
    (row,) = (row for row in found["metrics"] if row["metric"] == "confusion_matrix")
    assert (code, row["a"], row["b"]) == (6, [[40, 2], [3, 51]], MATRIX)
    assert (row["elements"], row["differing"], row["abs"], row["rel"]) == (4, 2, 1.0, 0.25)
    assert compared(capsys, a, b, "--atol", "1")[0] == 0
    assert compared(capsys, a, a)[0] == 0
    assert main([a, b, "--metrics"]) == 6
    out = capsys.readouterr().out
    assert "DIFFERS in 2 of 4 numbers" in out
    assert "2x2 numbers" in out
    assert "confusion_matrix differs" in out
    assert main([a, b, "--metrics", "--md"]) == 6
    assert "DIFFERS in 2 of 4 numbers" in capsys.readouterr().out
    assert main([a, b, "--metrics", "--csv"]) == 6
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert ["metrics", "confusion_matrix", "2x2 numbers", "2x2 numbers", "1.0", "0.25", "True"] in rows


@pytest.mark.parametrize("other", [0.5, [[1, 2, 3]], [1, 2]])
def test_arrays_of_other_shapes(other, tmp_path, capsys):
    a, b = with_matrix(tmp_path / "a", other), with_matrix(tmp_path / "b", MATRIX)
    for pair in ((a, b), (b, a)):
        code, found = compared(capsys, *pair)
        (row,) = (row for row in found["metrics"] if row["differs"])
        assert (code, row["metric"], row["abs"]) == (6, "confusion_matrix", None)
        assert main([*pair, "--metrics"]) == 6
        assert "2x2 numbers" in capsys.readouterr().out


@pytest.mark.parametrize("other", [[[1, 2], [3]], [["x"]], [[None]], [[[]]]])
def test_what_is_no_array_is_no_metric(other, tmp_path, capsys):
    a = with_matrix(tmp_path / "a", other)
    _, found = compared(capsys, a, a)
    assert [row["metric"] for row in found["metrics"]] == ["loss", "accuracy"]

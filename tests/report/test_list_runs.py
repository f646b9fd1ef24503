"""`runner ls`: what is selected, in what order, and that the directory of a run is always whole."""

import json
from pathlib import Path

import pytest
from run_folders import NO_PROCESS, leave, varied
from tables import table
from terminals import on_terminal

from runner import cli
from runner.config.groups.entries import BUILT_IN
from runner.nn.metrics.base import direction_of, is_scalar
from runner.report.list import LARGER_IS_BETTER


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def summarize(folder: Path, loss: float, metrics: dict, maximized=("accuracy",), **values) -> None:
    """Give a run the results of a summary."""
    path = folder / "summary.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"loss": loss, "metrics": metrics, "maximized": [*maximized], **values}))


@pytest.fixture
def five(place) -> dict[str, Path]:
    """Runs by name: the newest is the last one; `worse` has a lower accuracy and a lower loss than `better`."""
    made = {}
    for number, (name, optimizer, state, loss, accuracy) in enumerate(
        [
            ("worse", "adam", "ok", 0.1, 0.5),
            ("better", "adam", "ok", 0.2, 0.75),
            ("other", "sgd", "ok", 0.3, 0.625),
            ("broke", "sgd", "failed", None, None),
            ("newest", "adam", "interrupted", None, None),
        ]
    ):
        config = varied(optimizer__name=optimizer, optimizer__learning_rate=0.1 * (number + 1), seed=number)
        started = f"2026-01-0{number + 1}T00:00:00+00:00"
        made[name] = leave(place / "outputs" / name, config=config, state=state, started=started)
        if loss is None:
            (made[name] / "summary.json").unlink()
        else:
            summarize(made[name], loss, {"accuracy": accuracy, "loss": 1 - accuracy})
    return made


def names(out: str) -> list[str]:
    """The names of the listed runs, in order."""
    return [Path(line.split()[-1]).name for line in out.splitlines() if "outputs/" in line]


@table(
    ("words", "expected"),
    [
        ("", "newest broke other better worse"),
        ("--status ok", "other better worse"),
        ("--status failed --status interrupted", "newest broke"),
        ("--sort accuracy", "better other worse newest broke"),
        ("--sort eval.loss", "better other worse newest broke"),
        ("--sort loss", "worse better other newest broke"),  # the last loss of the training is in metrics.jsonl: 1.0
        ("--sort optimizer.learning_rate", "worse better other broke newest"),
        ("--sort started --limit 2", "newest broke"),
        ("--sort experiment", "newest broke other better worse"),
        ("--limit 1", "newest"),
        ("--best", "better"),
        ("--best --sort loss", "worse"),
        ("--best --sort accuracy --where optimizer.name=sgd", "other"),
        ("--best --status failed", ""),
        ("--where optimizer.name=adam", "newest better worse"),
        ("--where optimizer=adam", "newest better worse"),
        ("--where seed=3", "broke"),
        ("--where optimizer.learning_rate=1e-1", "worse"),
        ("--where experiment=lenet --where mode=pynative --limit 20", "newest broke other better worse"),
        ("--where mode=graph", ""),
        ("--where status=failed", "broke"),
        ("--status ok --sort accuracy --where optimizer.name=adam --limit 20", "better worse"),
    ],
)
def test_selection(five, capsys, words, expected):
    if "loss" in words and "eval" not in words:
        for name in ("newest", "broke"):
            (five[name] / "metrics.jsonl").write_text("")
    assert cli.main(["ls", *words.split()]) == 0
    out = capsys.readouterr().out
    assert names(out) == expected.split()
    assert expected or out == "no run matches\n"


@table(
    ("words", "error"),
    [
        ("--where optimizer.nam=adam", "no run has this key\n  key      optimizer.nam\n  nearest  optimizer.name"),
        ("--sort acuracy", "no run has this key\n  key      acuracy\n  nearest  accuracy"),
        ("--where adam", "not a condition\n  value    adam\n  allowed  KEY=VALUE"),
        ("--where =adam", "not a condition"),
        ("--status done", "wrong usage\n  reason  argument --status: invalid choice"),
        ("--limit 0", "wrong usage\n  reason  argument --limit: 0 is not a whole number of at least 1"),
        ("networks --best", "wrong usage\n  reason  --best is for lists of runs, and networks are none"),
    ],
)
def test_wrong_selections(five, capsys, words, error):
    assert cli.main(["ls", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"ConfigError: {error}")


def test_objects_for_programs(five, capsys):
    assert cli.main(["ls", "--json", "--where", "optimizer=adam", "--sort", "accuracy"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [Path(row["run_dir"]).name for row in rows] == ["better", "worse", "newest"]
    better = rows[0]
    assert (better["status"], better["loss"], better["metrics"]) == ("ok", 0.2, {"accuracy": 0.75, "eval.loss": 0.25})
    assert better["config"] == {"accuracy": 0.75, "optimizer": "adam"}
    assert (better["mode"], better["network"], better["seconds"]) == ("pynative", "lenet5", 2.5)
    assert cli.main(["ls", "--json", "--status", "running"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    (five["better"] / "metrics.jsonl").unlink()
    assert cli.main(["ls", "nowhere", "--json"]) == 2


def test_an_unfinished_run_has_the_figures_of_its_last_events(place, capsys):
    run = leave(place / "outputs" / "r", [2.0, 1.5], [(2, {"accuracy": 0.5, "confusion_matrix": [[1]]})], "interrupted")
    (run / "summary.json").unlink()
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"event": "step", "global_st')
    assert cli.main(["ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["steps"], row["loss"], row["metrics"]) == (2, 1.5, {"accuracy": 0.5})


def test_small_losses_have_digits(place, capsys):
    summarize(leave(place / "outputs" / "r"), 0.00030331, {"accuracy": 0.0})
    assert cli.main(["ls"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-3:] == ["3.0e-04", "0.0000", "outputs/r"]


def test_a_long_journal_is_read_at_its_end(place, capsys):
    run = leave(place / "outputs" / "r", [1.0] * 5000 + [0.25], state="interrupted")
    (run / "summary.json").unlink()
    assert cli.main(["ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["steps"], row["loss"]) == (5001, 0.25)


def test_output_that_is_no_terminal_has_the_same_columns_always(five, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    expected = ["started", "status", "experiment", "mode", "device", "loss", "accuracy", "folder"]
    for flags in ([], ["--status", "failed"]):
        assert cli.main(["ls", *flags]) == 0
        head, *rows = capsys.readouterr().out.splitlines()
        assert head.split() == expected
        assert all(len(row.split()) == len(expected) + 1 for row in rows)  # the time has two words
    assert cli.main(["ls", "--sort", "seed"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == [*expected[:-1], "seed", "folder"]


def test_the_metrics_without_a_summary_have_the_directions_of_the_registry():
    directions = {name: direction_of(made) for name, made in BUILT_IN.items() if is_scalar(made)}
    assert {name for name, direction in directions.items() if direction == "maximize"} == LARGER_IS_BETTER


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_a_terminal_shows_whole_directories_and_as_many_columns_as_fit(place, columns):
    run = leave(place / "multirun/2026-11-23/08-10-52/117", experiment="a_long_name_of_an_experiment")
    summarize(run, 0.125, {"accuracy": 0.9875}, steps=1234, train_seconds=70.5)
    leave(place / "outputs/2026-11-23/08-10-52", state="running", pid=NO_PROCESS)
    head, *rows = on_terminal(columns, "ls")
    assert {row.split()[-1] for row in rows} == {str(run.relative_to(place)), "outputs/2026-11-23/08-10-52"}
    assert max(map(len, [head, *rows])) <= columns
    expected = {
        40: "status folder",
        80: "status mode device loss accuracy folder",  # a long name gives way, and a shorter column has its place
        120: "started status experiment mode loss accuracy folder",
        200: "started status experiment network dataset mode device steps seconds loss accuracy folder",
    }
    assert head.split() == expected[columns].split()
    assert ("0.9875" in rows[0] + rows[1]) == (columns > 40)


def test_a_directory_wider_than_the_terminal_is_whole(place):
    run = leave(place / "outputs" / "x" / ("long_" * 30))
    summarize(run, 0.125, {"accuracy": 0.9875})
    head, row = on_terminal(80, "ls")
    assert head.split() == ["status", "loss", "accuracy", "folder"]
    assert row.split() == ["ok", "0.1250", "0.9875", str(run.relative_to(place))]


def test_a_metric_of_runs_without_accuracy_has_a_column_on_a_terminal(place):
    summarize(leave(place / "outputs" / "r"), 0.5, {"mae": 0.375, "loss": 2.0}, ())
    assert "mae" in on_terminal(120, "ls")[0].split()

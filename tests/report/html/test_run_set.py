"""The result by which several runs are ranked, and its direction: what the runs state of their metrics."""

import json
from pathlib import Path

from run_folders import leave
from tables import table

from runner.report.html.run_set import RunSet
from runner.report.record import RunRecord


def runs(folder: Path, metric: str, values, maximized, **more) -> RunSet:
    """Runs with these values of a metric; `maximized` None is a run without a summary, () an older one."""
    found = []
    for number, value in enumerate(values):
        place = leave(folder / str(number), [2.0, 1.0 + number], [(2, {metric: value, **more})])
        summary = json.loads((place / "summary.json").read_text())
        if maximized is None:
            (place / "summary.json").unlink()
        elif maximized != ():
            (place / "summary.json").write_text(json.dumps(summary | {"maximized": maximized}))
        found.append(RunRecord(place))
    return RunSet(found)


@table(
    ("metric", "maximized", "target", "best"),
    [
        ("within", ["within"], "within", "1"),
        ("within", [], "loss", "0"),
        ("accuracy", ["accuracy"], "accuracy", "1"),
        ("accuracy", [], "accuracy", "0"),  # of a script, whose metric of this name is better when it is small
        ("accuracy", (), "accuracy", "1"),  # older runs, and those that have not ended
        ("accuracy", None, "accuracy", "1"),
        ("r2", (), "r2", "1"),
        ("mae", (), "loss", "0"),
        ("mae", ["mae"], "mae", "1"),
        ("within", (), "loss", "0"),
        ("within", None, "loss", "0"),
        ("loss", ["loss"], "eval.loss", "1"),
        ("within", {"within": 1}, "loss", "0"),
        ("within", [["within"], 3, None, "within"], "within", "1"),
        ("within", "within", "loss", "0"),
    ],
)
def test_the_target_and_its_direction(metric, maximized, target, best, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    found = runs(folder, metric, [0.25, 0.75, 0.5], maximized)
    assert (found.target, found.ranked()[0].folder.name) == (target, best)


def test_the_accuracy_comes_before_other_metrics(tmp_path):
    found = runs(tmp_path, "within", [0.25, 0.75], ["within", "accuracy"], accuracy=0.5)
    assert (found.target, found.maximized >= {"within", "accuracy"}) == ("accuracy", True)


def test_a_run_that_has_not_ended_is_ranked_as_the_others_state(tmp_path):
    ended = runs(tmp_path / "ended", "within", [0.25, 0.5], ["within"]).runs
    running = runs(tmp_path / "running", "within", [0.75], None).runs
    found = RunSet([*ended, *running])
    assert (found.target, found.ranked()[0]) == ("within", running[0])


def test_an_evaluation_has_the_loss_of_the_test_split(tmp_path):
    place = leave(tmp_path / "a", [], [(0, {"mae": 1.0, "loss": 2.0})])
    assert RunSet([RunRecord(place)]).target == "eval.loss"

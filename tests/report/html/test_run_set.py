"""The result by which several runs are ranked, and its direction: what the runs state of their metrics."""

import json
from pathlib import Path

from run_folders import leave
from tables import table

from runner.report.html.run_set import RunSet, Search
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


def varied_runs(folder: Path, configs: list[dict], accuracies: list[float], overrides: str = "") -> list[RunRecord]:
    found = []
    for number, (config, accuracy) in enumerate(zip(configs, accuracies, strict=True)):
        place = leave(folder / str(number), [2.0, float(number)], [(2, {"accuracy": accuracy})], config=config)
        (place / ".hydra" / "overrides.yaml").write_text(overrides)
        found.append(RunRecord(place))
    return found


MOMENTUM = {"name": "momentum", "learning_rate": 0.1, "momentum": 0.9}
ADAM = {"name": "adam", "learning_rate": 0.001, "beta1": 0.9, "eps": 1e-8}


@table(
    ("optimizers", "overrides", "keys"),
    [
        ([MOMENTUM, ADAM], "", ["optimizer.name"]),
        ([MOMENTUM, ADAM], "- optimizer.learning_rate=1\n", ["optimizer.name", "optimizer.learning_rate"]),
        ([MOMENTUM, ADAM, ADAM | {"beta1": 0.8}], "", ["optimizer.name", "optimizer.beta1"]),
        ([MOMENTUM, MOMENTUM | {"learning_rate": 1}], "", ["optimizer.learning_rate"]),
    ],
)
def test_keys_that_follow_from_the_option_of_their_group(optimizers, overrides, keys, tmp_path_factory):
    configs = [{"optimizer": one, "dump": {"name": f"d{k}"}, "save_graphs": k} for k, one in enumerate(optimizers)]
    found = RunSet(varied_runs(tmp_path_factory.mktemp("k"), configs, [0.5] * len(configs), overrides))
    assert found.keys == keys  # nothing that only observes
    assert "optimizer.name" not in keys or found.label("optimizer.name") == "optimizer"


@table(
    ("accuracies", "mode", "rate"),
    [
        ([0.5, 0.5, 0.9, 0.9], False, True),
        ([0.5, 0.9, 0.5, 0.9], True, False),
        ([0.5, 0.6, 0.7, 0.8], True, True),
        ([0.5, 0.5, 0.5, 0.5], False, False),
    ],
)
def test_a_key_with_an_effect(accuracies, mode, rate, tmp_path_factory):
    configs = [{"rate": rate, "mode": mode} for rate in (1, 2) for mode in ("graph", "pynative")]
    found = RunSet(varied_runs(tmp_path_factory.mktemp("e"), configs, accuracies))
    assert (found.has_effect("mode", "accuracy"), found.has_effect("rate", "accuracy")) == (mode, rate)


def test_without_runs_that_differ_only_in_a_key_it_may_have_an_effect(tmp_path):
    found = RunSet(varied_runs(tmp_path, [{"a": 1, "b": 1}, {"a": 2, "b": 2}], [0.5, 0.5]))
    assert found.has_effect("a", "accuracy")


@table(
    ("search", "target", "best"),
    [
        (None, "accuracy", "2"),
        (Search("loss", "minimize"), "loss", "0"),
        (Search("accuracy", "minimize"), "accuracy", "0"),
        (Search("loss", "maximize"), "loss", "2"),
        (Search("unknown", "minimize"), "accuracy", "2"),
    ],
)
def test_runs_are_ranked_by_what_was_searched(search, target, best, tmp_path_factory):
    records = varied_runs(tmp_path_factory.mktemp("s"), [{"a": k} for k in range(3)], [0.1, 0.2, 0.3])
    found = RunSet(records, search)
    assert (found.target, found.ranked()[0].folder.name) == (target, best)

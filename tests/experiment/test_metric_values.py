"""Metrics of a run that are arrays or wrong: in its files, on the console, in sweeps, and in what reads them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tables import table

import runner
from runner import cli, nn
from runner.errors import TrainingError
from runner.experiment.run import as_json
from runner.experiment.sweep import journal
from runner.experiment.sweep.journal import read
from runner.experiment.tracking.tracking import of_row, of_summary

QUIET = ("callbacks=quiet", "device.threads=1")
SMALL = ("+experiment=lenet_seed", "optimizer=adam", "optimizer.learning_rate=0.003", "max_steps=60", *QUIET)
CLASSES = "eval.metrics=[accuracy,confusion_matrix,f1,loss,precision,recall,top_5]"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_metrics_of_classes_agree_with_their_matrix(mode):
    summary = runner.run([*SMALL, CLASSES, f"mode={mode}", "eval.every=epoch", "max_steps=88"])
    folder, metrics = Path(summary["run_dir"]), summary["metrics"]
    found = rows(folder)
    assert [row["event"] for row in found if row["event"] == "eval"] == ["eval"] * 2
    assert {name: found[-1][name] for name in metrics} == metrics
    assert json.loads((folder / "summary.json").read_text())["metrics"] == metrics
    matrix = np.array(metrics["confusion_matrix"])
    assert matrix.shape == (10, 10)
    assert all(type(count) is int for row in metrics["confusion_matrix"] for count in row)
    right, true, predicted = np.diag(matrix), matrix.sum(1), matrix.sum(0)
    assert 0.2 < metrics["accuracy"] == pytest.approx(right.sum() / matrix.sum())
    kept = true + predicted > 0
    expected = {
        "precision": right / np.maximum(predicted, 1),
        "recall": right / np.maximum(true, 1),
        "f1": 2 * right / np.maximum(true + predicted, 1),
    }
    for name, shares in expected.items():
        assert metrics[name] == pytest.approx(shares[kept].mean())
    assert metrics["accuracy"] <= metrics["top_5"] <= 1


def test_both_modes_count_the_same():
    graph, pynative = (runner.run([*SMALL, CLASSES, f"mode={mode}"])["metrics"] for mode in ("graph", "pynative"))
    assert np.abs(np.subtract(graph["confusion_matrix"], pynative["confusion_matrix"])).sum() <= 4


@pytest.mark.parametrize(("metrics", "line"), [("accuracy,confusion_matrix", True), ("confusion_matrix", False)])
def test_the_console_prints_numbers_only(metrics, line, capsys):
    assert cli.main([*SMALL, f"eval.metrics=[{metrics}]"]) == 0
    out = capsys.readouterr().out
    assert ("accuracy 0." in out) == ("on the test split" in out) == line
    assert "confusion" not in out
    assert "run directory: " in out


def test_everything_that_reads_a_run_takes_its_matrix(capsys, place):
    """`ls`, `report`, `compare` and `golden` of a run, resumed as well; the matrix is part of a golden file."""
    words = [*SMALL, CLASSES]
    for name in "ab":
        assert cli.main([*words, f"hydra.run.dir={name}"]) == 0
    assert cli.main(["resume", "a", "max_steps=70"]) == 0
    assert cli.main(["ls", "."]) == 0
    assert cli.main(["report", "a"]) == 0
    assert cli.main(["report", "a", "b", "-o", "both.html"]) == 0
    assert cli.main(["compare", "a", "b", "--metrics"]) == 6
    assert cli.main(["compare", "b", "b", "--metrics", "--csv"]) == 0
    assert cli.main(["compare", "b", "b", "--metrics", "--md"]) == 0
    assert "10x10 numbers" in capsys.readouterr().out
    assert cli.main(["golden", "--update", "g.json", "b"]) == 0
    assert cli.main(["golden", "--check", "g.json", "b"]) == 0
    golden = json.loads((place / "g.json").read_text())
    summary = json.loads((place / "b/summary.json").read_text())
    assert golden["metrics"]["confusion_matrix"] == summary["metrics"]["confusion_matrix"]
    golden["metrics"]["confusion_matrix"][3][4] += 1
    (place / "g.json").write_text(json.dumps(golden))
    assert cli.main(["golden", "--check", "g.json", "b"]) == 6
    assert "confusion matrix[3, 4]" in capsys.readouterr().err


def test_a_sweep_has_the_numbers_only(capsys, place):
    assert cli.main(["-m", *SMALL, CLASSES, "seed=1,2", "hydra.sweep.dir=s", "--junit", "j.xml"]) == 0
    ended = [row for row in read(place / "s")[0] if row["event"] == "end"]
    assert [set(row["metrics"]) for row in ended] == [{"accuracy", "f1", "loss", "precision", "recall", "top_5"}] * 2
    assert "f1" in (out := capsys.readouterr().out)
    assert "confusion" not in out
    text = (place / "j.xml").read_text()
    assert 'name="accuracy"' in text
    assert 'name="confusion_matrix"' not in text
    assert cli.main(["report", "s"]) == 0


def test_one_run_as_junit(place):
    assert cli.main([*SMALL, CLASSES, "--junit", "j.xml"]) == 0
    text = (place / "j.xml").read_text()
    assert 'name="f1"' in text
    assert 'name="confusion_matrix"' not in text


def test_a_damaged_summary_of_a_job(place):
    (place / "s").mkdir()
    journal.end(place / "s", 0, place / "s" / "0", summary={"loss": 1.0, "metrics": {"accuracy": 0.5, "m": [[1]]}})
    journal.end(place / "s", 1, place / "s" / "1", summary={"loss": 1.0, "metrics": [1]})
    assert [row["metrics"] for row in read(place / "s")[0]] == [{"accuracy": 0.5}, None]


def test_trackers_receive_numbers_only():
    matrix = [[1, 2], [3, 4]]
    row = {"event": "eval", "epoch": 1, "global_step": 4, "accuracy": 0.5, "confusion_matrix": matrix}
    assert [point[:3] for point in of_row(row)] == [("eval/accuracy", 0.5, 4)]
    summary = {"steps": 4, "loss": 1.0, "metrics": {"accuracy": 0.5, "confusion_matrix": matrix}}
    names = {point.name for point in of_summary(summary)}
    assert names == {"summary/steps", "summary/loss", "summary/metrics.accuracy"}


# Metrics of users


class Fixed:
    """A metric without a base class, whose value is given."""

    def __init__(self, value):
        self.value = value

    def clear(self):
        """Nothing is kept."""

    def update(self, output, target):
        """Nothing is kept."""

    def eval(self):
        return self.value


class FixedArray(Fixed):
    is_scalar = False


@table(
    ("metric", "expected"),
    [
        (Fixed(3), 3.0),
        (Fixed(np.float32(0.5)), 0.5),
        (Fixed(np.array(0.25)), 0.25),
        (Fixed(np.int64(7)), 7.0),
        (FixedArray(np.array([[1, 2]])), [[1, 2]]),
        (FixedArray([0.5, 1.5]), [0.5, 1.5]),
        (FixedArray(np.float64(0.5)), 0.5),
    ],
)
def test_values_as_json(metric, expected):
    made = as_json({"own": metric}, {"own": metric.eval()})["own"]
    assert json.loads(json.dumps(made)) == expected
    assert type(made) is type(expected)


REPAIR = "is_scalar = False in the class Fixed, for an array"


@table(
    ("metric", "rows"),
    [
        (
            Fixed(np.array([1.0, 2.0])),
            {"given": "an array (2,)", "repair": REPAIR},
        ),
        (Fixed(None), {"given": "None", "allowed": "a number, as the result of eval()"}),
        (Fixed("0.5"), {"given": "'0.5'"}),
        (Fixed(1j), {"given": "1j"}),
        (FixedArray([]), {"given": "[]"}),
        (FixedArray({"a": 1}), {"given": "{'a': 1}"}),
        (FixedArray([[1, 2], [3]]), {"given": "[[1, 2], [3]]"}),
    ],
)
def test_values_that_are_no_numbers(metric, rows):
    with pytest.raises(TrainingError) as caught:
        as_json({"own": metric}, {"own": metric.eval()}, epoch=2)
    assert caught.value.what == "the value of a metric is not a number"
    assert rows.items() <= caught.value.rows.items()
    assert (caught.value.rows["metric"], caught.value.rows["epoch"]) == ("own", "2")


def test_a_metric_that_is_not_finite_is_null(caplog):
    metrics = {"one": Fixed(math.inf), "many": FixedArray([1.0, math.nan]), "good": FixedArray([1])}
    values = as_json(metrics, {name: metric.eval() for name, metric in metrics.items()}, epoch=2, global_step=8)
    assert values == {"one": None, "many": None, "good": [1]}
    assert caplog.messages == [f"the metric {name} is not finite after step 8: it is null" for name in ("one", "many")]


def test_a_loss_that_is_not_finite():
    metrics = {"mine": nn.Loss(), "one": Fixed(math.nan), "many": FixedArray([1])}
    with pytest.raises(TrainingError) as caught:
        as_json(metrics, {"mine": math.nan, "one": math.nan, "many": [1]}, epoch=2)
    assert caught.value.what == "the loss of the evaluation is not finite"
    assert list(caught.value.rows) == ["mine", "one", "epoch", "repair"]


NAN_ONCE = """
import runner


@runner.register.metric("nan_once")
class NanOnce:
    evaluations = 0

    def clear(self): ...

    def update(self, output, target): ...

    def eval(self):
        NanOnce.evaluations += 1
        return float("nan") if NanOnce.evaluations == 1 else 1.0
"""


def test_a_run_goes_on_after_a_metric_that_is_not_finite(place, capsys):
    """Only NaN in the first evaluation, also in what reads the files: here of a run that ends with it, and a sweep."""
    (place / "own.py").write_text(NAN_ONCE)
    words = ["--code", "own.py", *SMALL, "eval.metrics=[accuracy,nan_once]", "eval.every=epoch"]
    assert cli.main([*words, "epochs=2", "max_steps=88", "hydra.run.dir=a"]) == 0
    assert [row["nan_once"] for row in rows(Path("a")) if row["event"] == "eval"] == [None, 1.0]
    sweep = ["-m", "--junit", "j.xml", *words, "max_steps=1", "seed=1", "hydra.sweep.dir=s", "hydra/launcher=pool"]
    assert cli.main(sweep) == 0
    capsys.readouterr()
    assert cli.main(["resume", "s/0", "max_steps=2", "expect.nan_once.min=0"]) == 0
    for command in (["ls", "."], ["report", "a"], ["report", "s"], ["watch", "a"], ["compare", "a", "a"]):
        assert cli.main(command) == 0
    assert cli.main(["golden", "--update", "g.json", "a"]) == 0
    assert cli.main(["golden", "--check", "g.json", "a"]) == 0


@pytest.mark.parametrize("mode", [0, 1])
def test_a_model_takes_metrics_without_a_base_class(mode):
    from runner import dataset
    from runner.train.model import Model

    data = dataset.NumpySlicesDataset((np.ones((4, 2), np.float32), np.zeros(4, np.int32)), ["x", "y"]).batch(2)
    loss = nn.SoftmaxCrossEntropyWithLogits(True, "sum")
    model = Model(nn.Dense(2, 3), loss, metrics={"own": Fixed(2.5), "loss": nn.Loss()}, mode=mode)
    values = model.eval(data)
    assert values["own"] == 2.5
    assert 0 < values["loss"] < 5

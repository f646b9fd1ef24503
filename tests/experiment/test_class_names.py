"""Names of classes reach losses, metrics and callbacks that have a parameter for them, and the summary of the run."""

import json
from pathlib import Path

import numpy as np
import pytest

import runner
import runner.dataset as ds
from runner import cli, nn, register
from runner.errors import ConfigError
from runner.train.callback import Callback

NAMES = ("ant", "bee", "cow\udcff")
MODES = pytest.mark.parametrize("mode", ["graph", "pynative"])
QUIET = ("network=mlp", "dataset.batch_size=20", "max_steps=2", "device.threads=1")
RECEIVED: dict[str, object] = {}


def rows(split: str, named: bool) -> ds.Dataset:
    rng = np.random.default_rng(len(split))
    x = rng.normal(size=(40, 5)).astype(np.float32)
    data = ds.NumpySlicesDataset({"x": x, "y": (np.arange(40) % 3).astype(np.int32)}, shuffle=False)
    data.class_names = NAMES if named else None
    return data


def named_loss(class_names: tuple[str, ...], num_classes: int) -> nn.Cell:
    RECEIVED["loss"] = class_names, num_classes
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


class NamedMetric:
    """Share of the samples of one class, which larger is better."""

    direction = "maximize"

    def __init__(self, class_names: tuple[str, ...] | None = None, wanted: str = "bee") -> None:
        RECEIVED["metric"] = class_names
        self.number = 1 if class_names is None else class_names.index(wanted)
        self.clear()

    def clear(self) -> None:
        self.hits = self.samples = 0

    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        self.hits += int((output.argmax(-1) == self.number).sum())
        self.samples += len(target)

    def eval(self) -> float:
        return self.hits / self.samples


class NamedCallback(Callback):
    """Records its facts."""

    def __init__(self, class_names: tuple[str, ...] | None = None, total_steps: int = 0) -> None:
        RECEIVED["callback"] = class_names, total_steps


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    RECEIVED.clear()
    register.dataset("named_rows")(lambda split: rows(split, True))
    register.dataset("plain_rows")(lambda split: rows(split, False))
    register.loss("named_loss")(named_loss)
    register.metric("named_metric")(NamedMetric)
    register.callback("named_callback")(NamedCallback)
    return tmp_path


def forget() -> None:
    for name, kind in (("dataset", "named_rows"), ("dataset", "plain_rows")):
        register.KINDS[name].discard(kind)
    for name in ("loss", "metric", "callback"):
        register.KINDS[name].discard(f"named_{name}")


def run(folder: str, *words: str) -> dict:
    quiet = ("callbacks=quiet", f"hydra.run.dir={folder}")
    return runner.run([*QUIET, *quiet, *words])


OWN = (
    "dataset=named_rows",
    "loss=named_loss",
    "eval.metrics=[accuracy,loss,named_metric]",
    "callbacks.named_callback=true",
)


@MODES
def test_those_with_a_parameter_receive_the_names(mode, place):
    summary = run("r", *OWN, f"mode={mode}")
    assert RECEIVED == {"loss": (NAMES, 3), "metric": NAMES, "callback": (NAMES, 2)}
    assert summary == json.loads(Path("r/summary.json").read_text())
    assert summary["class_names"] == ["ant", "bee", "cow\\udcff"]
    assert summary["maximized"] == ["accuracy", "named_metric"]


def test_a_prediction_gives_the_loss_the_names_of_the_training(place, capsys):
    run("r", *OWN, "checkpoint.every_steps=1")
    np.save("x.npy", np.zeros((2, 5), np.float32))
    RECEIVED.clear()
    assert cli.run_command("predict", ["r", "x.npy"]) == 0
    assert RECEIVED["loss"] == (("ant", "bee", "cow\\udcff"), 3)


def test_without_names_defaults_hold(place):
    words = ("dataset=plain_rows", "eval.metrics=[named_metric]", "callbacks.named_callback=true")
    summary = run("r", *words)
    assert RECEIVED == {"metric": None, "callback": (None, 2)}
    assert ("class_names" in summary, summary["maximized"]) == (False, ["named_metric"])


def test_names_that_are_required_and_missing_are_an_error(place):
    with pytest.raises(ConfigError, match="the dataset does not determine class_names") as caught:
        run("r", "dataset=plain_rows", "loss=named_loss")
    assert caught.value.rows["where"].startswith(__file__)
    assert caught.value.exit_code == 2


def test_an_evaluation_that_never_happens_states_no_direction(place):
    summary = run("r", "dataset=named_rows", "eval.every=never")
    assert (summary["metrics"], summary["maximized"]) == ({}, [])


def test_the_report_ranks_by_an_own_metric_without_its_code(place, capsys):
    shares = {}
    for seed in (1, 2, 3):
        metrics = run(f"runs/{seed}", "dataset=named_rows", "eval.metrics=[loss,named_metric]", f"seed={seed}")[
            "metrics"
        ]
        shares[metrics["named_metric"]] = seed
    assert len(shares) > 1
    forget()
    assert cli.run_command("report", ["runs"]) == 0
    text = Path("runs/report.html").read_text()
    assert f"<dt>best named_metric</dt><dd>{max(shares):.4f}</dd>" in text


def test_the_summary_of_a_script_has_its_own_metrics(place):
    """Those of the model that was evaluated last, not of the trained one."""
    network = nn.Dense(5, 3)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = runner.Model(network, loss, nn.Momentum(network.trainable_params(), 0.1, 0.9), {"loss"})
    own = runner.Model(network, loss, None, {"share": NamedMetric(), "loss": nn.Loss()})
    with runner.record("r", {}) as recorded:
        recorded.train(model, 1, rows("train", True).batch(8), test_dataset=rows("test", True).batch(8))
        recorded.evaluate(own, rows("other", True).batch(8))
    summary = json.loads(Path("r/summary.json").read_text())
    assert (summary["maximized"], [*summary["metrics"]]) == (["share"], ["share", "loss"])
    assert summary["class_names"] == ["ant", "bee", "cow\\udcff"]
    found = json.loads(Path("r/eval/worst.json").read_text())
    assert (found["global_step"], found["samples"], found["classes"]) == (5, 40, 3)

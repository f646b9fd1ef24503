"""Each kind of the user's code in runs: its keys and facts, and the errors of what does not fit."""

import json
from pathlib import Path

import pytest
from tables import table

import runner
from runner.errors import RunnerError
from runner.experiment.resume import resume

CODE = """
from pathlib import Path
from typing import Literal

import numpy as np

import runner
from runner import nn, ops
from runner.dataset import Dataset, NumpySlicesDataset
from runner.train.callback import Callback


@runner.register.dataset("own_points")
def points(split: Literal["train", "test"], noise: float = 0.1) -> Dataset:
    rng = np.random.default_rng(split == "test")
    label = np.arange(16, dtype=np.int32) % 2
    values = label[:, None] + rng.normal(0, noise, (16, 3))
    data = NumpySlicesDataset({"x": values, "label": label})
    data.class_names = ("low", "high")
    return data


@runner.register.network("own_net")
class Net(nn.Cell):
    def __init__(self, num_classes: int, num_features: int) -> None:
        super().__init__()
        self.head = nn.Dense(num_features, num_classes)

    def construct(self, x):
        return self.head(x)


@runner.register.loss("own_loss")
class Loss(nn.Cell):
    activation = "softmax"

    def __init__(self, num_classes: int, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self.classes = scale, num_classes
        self.one_hot, self.mean, self.log_softmax = ops.OneHot(), ops.ReduceMean(), nn.LogSoftmax()

    def construct(self, output, target):
        return self.mean(self.log_softmax(output) * self.one_hot(target, self.classes)) * -self.scale


@runner.register.metric("own_metric")
class Rows:
    def __init__(self, class_names: tuple[str, ...], factor: float = 1.0) -> None:
        self.factor, self.names = factor, class_names

    def clear(self):
        self.rows = 0

    def update(self, output, target):
        self.rows += len(target)

    def eval(self):
        return self.factor * self.rows + len(self.names)


@runner.register.optimizer("own_sgd")
class SGD(nn.Optimizer):
    def __init__(self, params, learning_rate: float = 0.5, half: bool = False) -> None:
        super().__init__(params, learning_rate)
        self.factor = 0.5 if half else 1.0

    def construct(self, gradients):
        for parameter, gradient in zip(self.parameters, gradients):
            self.assign(parameter, parameter - gradient * self.factor * self.learning_rate)


@runner.register.schedule("own_line")
def line(step: int, *, learning_rate: float, total_steps: int, end: float = 0.5) -> float:
    return learning_rate * (1 - (1 - end) * step / total_steps)


@runner.register.callback("own_log")
class Log(Callback):
    def __init__(self, run_dir: Path, total_steps: int, class_names: tuple[str, ...], every: int = 2, file: str = "o"):
        self.path, self.every, self.lines = Path(run_dir) / file, every, [f"{total_steps} {class_names}"]

    def step_end(self, run_context):
        run = run_context.original_args()
        if run.cur_step_num % self.every == 0:
            self.lines.append(f"{run.cur_step_num} {float(run.optimizer.learning_rate.asnumpy()):.4f}")
        self.path.write_text("\\n".join(self.lines))


@runner.register.callback("own_mark")
class Mark(Callback):
    def begin(self, run_context):
        Path("MARK").touch()
"""
WORDS = (
    *("dataset=own_points", "network=own_net", "loss=own_loss", "optimizer=own_sgd", "callbacks=quiet"),
    *("optimizer.schedule.name=own_line", "eval.metrics=[own_metric]", "dataset.batch_size=4"),
)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Run with the code of a project whose text is changed."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, change: tuple[str, str] = ("", "")) -> dict:
        assert change[0] in CODE
        source = tmp_path / "own.py"
        source.write_text(CODE.replace(*change))
        exec(compile(source.read_text(), str(source), "exec"), {"__name__": "own_kinds"})
        return runner.run([*WORDS, *words])

    return run


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_the_keys_and_facts_of_each_kind(mode, own):
    keys = ("optimizer.schedule.end=0.2", "metrics.own_metric.factor=3", "callbacks.own_log.every=4", "loss.scale=2")
    summary = own(
        *keys, f"mode={mode}", "epochs=2", "dataset_sink_mode=false", "hydra.run.dir=r", "callbacks.own_mark=true"
    )
    assert summary["metrics"]["own_metric"] == 3 * 16 + 2
    assert Path("MARK").exists()
    rates = [f"{0.5 * (1 - 0.8 * step / 8):.4f}" for step in (3, 7)]
    assert Path("r/o").read_text().splitlines() == ["8 ('low', 'high')", f"4 {rates[0]}", f"8 {rates[1]}"]
    assert json.loads(Path("r/config.json").read_text())["callbacks"]["own_log"] == {"every": 4, "file": "o"}


def test_the_key_of_a_loss_scales_it(own):
    once, twice = (own(f"loss.scale={scale}", "max_steps=1", "mode=graph")["loss"] for scale in (1, 2))
    assert twice == pytest.approx(2 * once)
    assert once == pytest.approx(own("max_steps=1", "mode=pynative")["loss"])


def test_the_keys_of_a_metric_may_change_when_a_run_is_resumed(own):
    own("max_steps=2", "hydra.run.dir=r", "metrics.own_metric.factor=1")
    resumed = resume("r", ["max_steps=4", "metrics.own_metric.factor=2"])
    assert (resumed["steps"], resumed["metrics"]["own_metric"]) == (4, 34)


WRONG = [
    ("batched", ("return data\n", "return data.batch(2)\n"), "a dataset returns single samples\n"),
    (
        "shapes",
        ("return data\n", 'return data if split == "train" else data.project(["label"])\n'),
        "different columns",
    ),
    ("class", ("16, dtype=np.int32) % 2", '16, dtype=np.int32) % (2 + (split == "test"))'), "  split        test\n"),
    ("names", ('("low", "high")', "5"), "not a list of names\n"),
    ("no_names", ('    data.class_names = ("low", "high")\n', ""), "does not determine class_names\n"),
    ("no_super", ("        super().__init__()\n        self.head", "        self.head"), "own.py:26 in __init__"),
    (
        "no_construct",
        ("def construct(self, x)", "def forward(self, x)"),
        "a cell that does not define construct\n  cell  Net",
    ),
    ("no_return", ("return self.head(x)", "self.head(x)"), "construct returns nothing\n  cell  Net\n"),
    ("no_loss", ("return self.mean(", "self.mean("), "construct returns nothing\n  cell  Loss\n"),
    ("vector", ("return self.mean(", "return (lambda loss: loss)("), "the loss of a batch is not a single number\n"),
    (
        "operands",
        ("self, output, target):\n        return", "self, output):\n        return"),
        "Loss does not take (output, target)",
    ),
    (
        "update",
        ("def update(self, output, target)", "def update(self, output)"),
        "update does not take (output, target)",
    ),
    ("text", ("(1 - (1 - end) * step / total_steps)", '0 or "fast"'), "a learning rate must be a number\n"),
    ("negative", ("return learning_rate * (1 -", "return learning_rate * (-1 -"), "own.py:72"),
]


@table(("name", "change", "expected"), WRONG)
def test_what_does_not_fit(name, change, expected, own):
    with pytest.raises(RunnerError) as caught:
        own("max_steps=1", "mode=graph", "optimizer.schedule.end=0.5", change=change)
    assert caught.value.exit_code == 2, caught.value
    assert expected in str(caught.value)


def test_a_callback_without_keys_takes_no_value(own):
    with pytest.raises(RunnerError, match=r"this callback has no keys\n  key      callbacks.own_mark\n  value    3"):
        own("max_steps=1", "callbacks.own_mark=3")


def test_a_callback_that_stops_the_training_before_it_begins(own):
    with pytest.raises(RunnerError, match="stopped the training before the first step"):
        own("callbacks.own_mark=true", change=('Path("MARK").touch()', "run_context.request_stop()"))

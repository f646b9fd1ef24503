"""The code of a user: a network, a dataset, a loss, a metric, a callback, an optimizer and a schedule.

In the place that the variable FAIL names, an exception is raised; with FAIL=edit the callback edits its own file.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from processes import ROOT, called, ended

CODE = '''
import os
from pathlib import Path
from typing import Literal

import numpy as np

import runner
from runner import nn
from runner.dataset import Dataset, GeneratorDataset, NumpySlicesDataset
from runner.dataset.transforms.transform import RandomTransform
from runner.train.callback import Callback


def fail(place):
    if os.environ.get("FAIL") == place:
        raise ValueError(f"failed in {place}")


class Rows:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        if row == 20:
            fail("sample")
            if os.environ.get("FAIL") == "ragged":
                return self.x[row][:2], self.y[row]
        return self.x[row], self.y[row]


class Same(RandomTransform):
    """Random: it is applied to each batch, by the threads that prepare them."""

    def infer(self, sample):
        return sample

    def apply(self, batch, visits):
        if batch.max() > 2:
            fail("transform")
        return batch[:, :2] if os.environ.get("FAIL") == "other shape" else batch * 1


@runner.register.network("mixer")
class Mixer(nn.Cell):
    """A line with a layer in between."""

    def __init__(self, input_shape: tuple[int, ...], hidden: int = 4) -> None:
        super().__init__()
        fail("constructor")
        self.first = nn.Dense(input_shape[0], hidden)
        self.last = nn.Dense(hidden + (os.environ.get("FAIL") == "shape"), 1)

    def construct(self, x):
        fail("construct")
        return self.last(self.first(x))


@runner.register.dataset("waves")
def waves(split: Literal["train", "test"], count: int = 32) -> Dataset:
    fail("dataset")
    x = np.random.default_rng(len(split)).normal(size=(count, 3)).astype(np.float32)
    data = GeneratorDataset(Rows(x, x.sum(1, keepdims=True)), ["x", "y"], shuffle=False)
    return data.map(Same(), "x") if os.environ.get("FAIL") in ("transform", "other shape") else data


@runner.register.loss("distance")
class Distance(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MSELoss()

    def construct(self, output, target):
        fail("loss")
        return self.inner(output, target)


@runner.register.metric("mine")
class Mine:
    direction = "minimize"

    def clear(self):
        self.total = 0.0

    def update(self, output, target):
        fail("metric")
        self.total += float(abs(output - target).sum())

    def eval(self):
        return self.total


@runner.register.callback("marker")
class Marker(Callback):
    def __init__(self, run_dir: Path, file: str = "marked") -> None:
        self.path = run_dir / file

    def step_end(self, run_context):
        fail("callback")

    def end(self, run_context):
        self.path.write_text("done")
        if os.environ.get("FAIL") == "edit":
            with open(__file__, "a") as file:
                file.write("# edited while it was running")


@runner.register.schedule("ramp")
def ramp(step: int, learning_rate: float) -> float:
    fail("schedule")
    return learning_rate


@runner.register.optimizer("descent")
class Descent(nn.SGD):
    def __init__(self, params, learning_rate: float = 0.01) -> None:
        super().__init__(params, learning_rate)
        fail("optimizer")

    def construct(self, gradients):
        fail("update")
        return super().construct(gradients)
'''
WORDS = (
    *("network=mixer", "dataset=waves", "dataset.batch_size=8", "loss=distance", "eval.metrics=[mine]"),
    *("callbacks=quiet", "callbacks.marker.file=marked", "optimizer=descent", "optimizer.schedule.name=ramp"),
    *("max_steps=2", "device.threads=1", "checkpoint.every_steps=1", "dataset_sink_mode=false"),
)


def write_project(folder: Path, project: str = 'code = ["own"]\n') -> Path:
    """A repository with the code in the package `own`; `project` is its runner.toml, "" for none. Returns the file."""
    (folder / "own").mkdir(parents=True)
    if project:
        (folder / "runner.toml").write_text(project)
    file = folder / "own" / "parts.py"
    file.write_text(CODE)
    return file


def failing(place: str, words: Sequence[str], cwd: Path) -> tuple[int, str, str]:
    """Exit code, output and errors of `runner` with these words, whose code fails in a place."""
    environment = {**os.environ, "FAIL": place, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return ended(subprocess.Popen([sys.executable, "-m", "runner", *words], cwd=cwd, env=environment, **pipes))


def ran(words: Sequence[str], cwd: Path) -> str:
    """What `runner` prints; it succeeds."""
    code, out, err = called(words, cwd)
    assert code == 0, err
    return out

"""Whole runs of a network with a branch and a loop on values: both modes, sinks, dumps, and a resume."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NETWORK = """
import runner
from runner import nn, ops


@runner.register.network("branching")
class Branching(nn.Cell):
    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.first = nn.Dense(input_shape[0] * input_shape[1] * input_shape[2], 16)
        self.last = nn.Dense(16, num_classes)

    def construct(self, x):
        h = self.first(self.flatten(x))
        if h[0].sum() > 0:
            h = ops.ReLU()(h)
        else:
            h = ops.Tanh()(h)
        while ops.Abs()(h).max() > 0.5:
            h = h * 0.8
        return self.last(h)
"""
SETTINGS = (
    *("network=branching", "dataset=synthetic", "dataset.num_samples=160", "dataset.image_size=8", "callbacks=quiet"),
    *("device.threads=1", "optimizer.learning_rate=0.05"),
)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.runner]\ncode = ["network"]\n')
    (tmp_path / "network.py").write_text(NETWORK)

    def command(*words: str) -> str:
        call = [sys.executable, "-m", "runner", *words]
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            call, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return command


def last_step(folder: Path) -> dict:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["event"] == "step"][-1]


def test_dumps_of_both_modes_compare_as_equal(run, tmp_path):
    for mode in ("graph", "pynative"):
        dump = "dump=sync", "dump.iteration='0|3|9'", "dataset_sink_mode=false", "epochs=2", "save_graphs=true"
        run(*SETTINGS, *dump, f"mode={mode}", f"hydra.run.dir={mode}")
    compared = run("compare", "graph", "pynative", "--rtol", "1e-3", "--atol", "1e-6")
    assert "operators" in compared
    losses = [last_step(tmp_path / mode)["loss"] for mode in ("graph", "pynative")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_resumed_and_a_sunk_run_are_the_uninterrupted_one(run, tmp_path):
    run(*SETTINGS, "epochs=2", "mode=graph", "dataset_sink_mode=false", "hydra.run.dir=single")
    run(*SETTINGS, "epochs=2", "mode=graph", "hydra.run.dir=sunk")
    run(*SETTINGS, "epochs=1", "mode=graph", "hydra.run.dir=halved")
    run("resume", "halved", "epochs=2")
    states = []
    for name in ("single", "sunk", "halved"):
        (path,) = sorted((tmp_path / name / "checkpoints").rglob("state.safetensors"))[-1:]
        states.append(path.read_bytes())
    assert states[0] == states[1] == states[2]

"""What has to stay true: both modes compute the same, and the network learns."""

from pathlib import Path

import pytest

import runner

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    """Code and configs are those of the project file in the working directory."""
    monkeypatch.chdir(ROOT)


def run(folder, *overrides):
    """The summary of a run of the first experiment."""
    return runner.run(["+experiment=first", "callbacks=quiet", f"hydra.run.dir={folder}", *overrides])


def test_a_training_stops_when_it_no_longer_improves(tmp_path):
    assert run(tmp_path, "callbacks.patience.steps=5", "~expect")["steps"] < 600


def test_both_modes_make_the_same_step(tmp_path):
    losses = [run(tmp_path / mode, f"mode={mode}", "max_steps=1", "~expect")["loss"] for mode in ("graph", "pynative")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_the_network_learns(tmp_path, mode):
    assert run(tmp_path / mode, f"mode={mode}")["metrics"]["accuracy"] >= 0.9

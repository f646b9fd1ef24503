"""Tiny runs that are tracked, and what their plain files say."""

import json
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE

ROOT = Path(__file__).parents[2]
# 160 samples are 5 batches: 20 steps are 4 epochs.
SMALL = (
    *("dataset=synthetic", "dataset.num_samples=160", "callbacks=quiet", "device.threads=1"),
    *("dataset_sink_mode=false", "epochs=4", "checkpoint.every_steps=5", "optimizer.learning_rate=0.05"),
    "tracking.every_seconds=0.02",
)


def words(folder: Path, name: str, *overrides: str) -> list[str]:
    """What is typed for a small run in a folder."""
    return [f"tracking={name}", *SMALL, *overrides, f"hydra.run.dir={folder}"]


def points(folder: Path) -> list[tuple[str, int, float]]:
    """What `metrics.jsonl` says, as (name, step, value), by the names that trackers are told."""
    found = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        group = "" if row["event"] == "step" else "eval/"
        values = [name for name in row if name not in ("event", "epoch", "step", "global_step")]
        found += [(group + name, row["global_step"], row[name]) for name in values]
    return found


def said(folder: Path, name: str = "summary") -> dict:
    """A JSON file of a run."""
    return json.loads((folder / f"{name}.json").read_text())


def killed(folder: Path, name: str, row: int, *overrides: str) -> None:
    """Run in another process, which is gone without any cleanup when it writes a row of `metrics.jsonl`, from 1.

    Its tracker has been told of all rows before.
    """
    code = f"""
import os, time, runner
from runner.host import files
from runner.experiment.tracking.tracking import Follower
count, told, usual = 0, 0, Follower._rows
def rows(self):
    global told
    usual(self)
    told = self._tail._offset
Follower._rows = rows
def before(operation, path):
    global count
    count += operation == "write" and path.name == "metrics.jsonl"
    if count == {row}:
        while told < path.stat().st_size:
            time.sleep(0.01)
        os._exit(9)
files.before_operation = before
runner.run({words(folder, name, *overrides)!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder.parent, env={"PYTHONPATH": str(ROOT)}, timeout=PATIENCE
    )
    assert done.returncode == 9

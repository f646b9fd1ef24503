"""Folders of runs as they are left, written by hand: for what reads them."""

import json
import os
from pathlib import Path

NO_PROCESS = 2**31 - 2  # no process has this number

CONFIG = {
    "mode": "pynative",
    "seed": 1,
    "network": {"name": "lenet5"},
    "optimizer": {"name": "momentum", "learning_rate": 0.01},
}


def rows_of(losses, evaluations=()) -> list[dict]:
    """Events: losses of the steps from 1 on, then (step, metrics) of evaluations."""
    steps = [{"event": "step", "epoch": 1, "step": k, "global_step": k, "loss": x} for k, x in enumerate(losses, 1)]
    return steps + [{"event": "eval", "epoch": 1, "global_step": step, **metrics} for step, metrics in evaluations]


def leave(folder: Path, losses=(2.0, 1.0), evaluations=(), state="ok", config=CONFIG, **status) -> Path:
    """A run that ended, or whatever `state` says."""
    folder.mkdir(parents=True)
    known = {"experiment": "lenet", "network": "lenet5", "dataset": "digits", "mode": "pynative", "device": "CPU"}
    times = {"started": "2026-01-02T03:04:05+00:00", "finished": "2026-01-02T03:04:15+00:00"}
    said = {"status": state, "pid": os.getpid(), **times, **known, "exit_code": 0, "error": None, **status}
    (folder / "status.json").write_text(json.dumps(said))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").write_text(json.dumps({"seed": 1, "packages": {"numpy": "2.0"}, "threads": 2}))
    text = "".join(json.dumps(row) + "\n" for row in rows_of(losses, evaluations))
    (folder / "metrics.jsonl").write_text(text)
    speeds = {"train_seconds": 2.5, "compile_seconds": 0.5, "init_seconds": 1.0, "first_loss_seconds": 1.25}
    summary = {"status": state, **known, "steps_per_second": 20.0, "peak_rss_mb": 100.0, **speeds}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "overrides.yaml").write_text("- +experiment=lenet\n- 'expect={loss: {max: 1}}'\n")
    return folder


def varied(**changes) -> dict:
    """The config with other values of its keys: `optimizer__learning_rate=0.1` is a nested one."""
    made = json.loads(json.dumps(CONFIG))
    for name, value in changes.items():
        *groups, key = name.split("__")
        place = made
        for group in groups:
            place = place[group]
        place[key] = value
    return made

"""Sweeps of tiny jobs, what they leave, and how to kill them."""

import fcntl
import hashlib
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import TextIO

import pytest
from patience import wait_until

from runner.config.compose import CommandLine
from runner.experiment.sweep import sweep
from runner.experiment.sweep.controller import table_lines
from runner.experiment.sweep.journal import Outcome, SweepState
from runner.host import files

TIMES = ("init_seconds", "compile_seconds", "first_loss_seconds", "train_seconds", "steps_per_second", "peak_rss_mb")
# 64 samples are 2 batches: 4 steps, each of them saved.
TINY = (
    *("dataset=synthetic", "dataset.num_samples=64", "dataset_sink_mode=false", "epochs=2", "checkpoint.every_steps=1"),
    *("callbacks=quiet", "device.threads=1", "eval.every=never", "optimizer.learning_rate=0.05"),
)
TWELVE = (*TINY, "seed=1,2,3,4", "mode=pynative", "dataset.batch_size=8,16,32", "max_steps=4")


def swept(folder: Path, *words: str) -> list[Outcome]:
    """Run a sweep in a folder."""
    return sweep.start(CommandLine((*words, f"hydra.sweep.dir={folder}")))


def sweep_state(folder: Path) -> SweepState:
    """What the journal of a sweep says."""
    made = SweepState(folder)
    made.update()
    return made


def table(folder: Path) -> list[str]:
    """The table that is printed at the end of a sweep."""
    return table_lines(sweep_state(folder).outcomes())


def traces(folder: Path) -> dict[str, object]:
    """What must not depend on where a sweep was killed: every file of every job, and its summary without times."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.parent == folder or ".hydra" in name:
            continue
        if path.name == "summary.json":
            summary = json.loads(path.read_text())
            found[name] = {
                key: value for key, value in summary.items() if key not in (*TIMES, "run_dir", "host_interactions")
            }
        elif path.name not in (".lock", "status.json", "manifest.json", "console.log"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def rows(folder: Path, event: str) -> list[dict]:
    """The rows of a journal of one kind; none when there is no journal."""
    path = folder / "sweep.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [row for row in map(json.loads, lines) if row["event"] == event]


def killed(monkeypatch: pytest.MonkeyPatch, folder: Path, words: tuple[str, ...], number: int, only: str = "") -> bool:
    """Run a sweep in a process of its own, and let the power fail at the operation `number`, in whatever process.

    From there on no process of the sweep does anything any more. `only` counts writes to files of one name. Returns
    whether the sweep was killed.
    """
    count = multiprocessing.get_context("fork").Value("i", 0)

    def before(operation: str, path: Path) -> None:
        counts = not only or (operation == "write" and path.name == only)
        with count.get_lock():
            count.value += counts
            dead = count.value >= number
        if dead:
            os.kill(os.getpid(), signal.SIGKILL)

    process = os.fork()
    if not process:
        code = 1
        try:
            monkeypatch.setattr(files, "before_operation", before)
            swept(folder, *words)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    wait_until_free(folder)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def wait_until_free(folder: Path) -> None:
    """Return when no process of a sweep is left: they all hold its lock."""
    lock = folder / ".lock"
    if lock.exists():
        with lock.open() as file:
            wait_until(lambda: not is_locked(file))


def is_locked(file: TextIO) -> bool:
    """Whether another process holds the lock of an open file; ours from now on when none does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False

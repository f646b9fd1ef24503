"""Sweeps on a cluster: jobs in Slurm's queue are not submitted again, and the signal before a time limit saves.

`squeue` is a script here. With a real Slurm on this machine, the last test submits to it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from patience import wait_until
from sweep_runs import TINY, rows, sweep_state, swept

from runner import cli
from runner.errors import ConfigError, StorageError
from runner.experiment.sweep import launchers, sweep
from runner.experiment.sweep.journal import append

needs_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="needs hydra-submitit-launcher")


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """A `squeue` that lists what it finds in a file; with a second file it fails. It notes how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "squeue"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/calls\n'
        f"if [ -e {folder}/broken ]; then echo 'slurm_load_jobs error: no contact' >&2; exit 1; fi\n"
        f"cat {folder}/listed\n"
    )
    script.chmod(0o755)
    (folder / "listed").write_text("")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(launchers, "POLL_SECONDS", 0.01)
    return folder


def test_the_ids_of_the_queue(squeue):
    assert launchers.listed_jobs() == frozenset()
    (squeue / "listed").write_text("12_0\n12_3\n7\n")
    assert launchers.listed_jobs() == {"12_0", "12_3", "7"}
    assert (squeue / "calls").read_text().splitlines()[0] == f"--noheader --array --format=%i --user={os.getuid()}"


def test_a_queue_that_cannot_be_read(squeue, monkeypatch):
    (squeue / "broken").touch()
    with pytest.raises(StorageError) as caught:
        launchers.listed_jobs()
    assert caught.value.rows["reason"] == "slurm_load_jobs error: no contact"
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError) as missing:
        launchers.listed_jobs()
    assert missing.value.rows["missing"] == "squeue"
    assert "--force" in missing.value.rows["hint"]


def half_done(folder: Path) -> None:
    """A sweep whose second job was submitted to Slurm as 7_1 and has not ended; the process of the sweep was killed."""
    swept(folder, *TINY, "seed=1,2")
    path = folder / "sweep.jsonl"
    kept = [line for line in path.read_text().splitlines() if '"job": 1' not in line]
    path.write_text("\n".join(kept) + "\n")
    append(folder, "submit", job=1, cluster="slurm", id="7_1")


def test_another_launcher_is_refused_while_jobs_are_queued(tmp_path, squeue, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    half_done(Path("mine"))
    (squeue / "listed").write_text("7_1\n")
    before = (tmp_path / "mine/sweep.jsonl").read_bytes()
    assert cli.main(["resume", "mine"]) == 2
    error = capsys.readouterr().err
    assert "jobs of the sweep are in Slurm's queue" in error
    assert "1 (7_1)" in error
    assert "scancel 7_1" in error
    (squeue / "broken").touch()
    assert cli.main(["resume", "mine"]) == 5
    assert (tmp_path / "mine/sweep.jsonl").read_bytes() == before
    assert cli.main(["resume", "mine", "--force"]) == 0  # does not look at the queue
    assert [row["job"] for row in rows(Path("mine"), "start")] == [0, 1]


def test_a_job_that_left_the_queue_runs_again(tmp_path, squeue, monkeypatch):
    monkeypatch.chdir(tmp_path)
    half_done(Path("mine"))
    (squeue / "listed").write_text("7_10\n17_1\n8\n")  # jobs of others
    assert [one.status for one in sweep.resume(Path("mine"))] == ["ok", "ok"]
    assert [row["job"] for row in rows(Path("mine"), "start")] == [0, 1]


@needs_submitit
def test_a_resumed_sweep_waits_for_its_jobs_in_the_queue(tmp_path, squeue, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    half_done(Path("mine"))
    (squeue / "listed").write_text("7_1\n")
    calls = []

    def listed():
        """The third time the job has ended: as by its own process, with its row."""
        calls.append(1)
        if len(calls) == 3:
            raise StorageError("Slurm's queue cannot be read", reason="the controller restarts")
        if len(calls) < 5:
            return frozenset({"7_1"})
        append(Path("mine"), "start", job=1, folder="1", pid=1)
        append(Path("mine"), "end", job=1, folder="1", status="ok", exit_code=0, loss=0.5, metrics={})
        return frozenset()

    monkeypatch.setattr(launchers, "listed_jobs", listed)
    found = sweep.resume(Path("mine"), ["hydra/launcher=submitit_slurm"])
    assert [(one.status, one.loss) for one in found][1] == ("ok", 0.5)
    assert "waiting for jobs in Slurm's queue: 1 (7_1)" in capsys.readouterr().out
    assert len(calls) == 5


@needs_submitit
def test_a_job_that_vanishes_from_the_queue_was_killed(tmp_path, squeue, monkeypatch):
    monkeypatch.chdir(tmp_path)
    half_done(Path("mine"))
    append(Path("mine"), "start", job=1, folder="1", pid=1)
    (Path("mine") / "1/status.json").write_text('{"status": "running"}')
    answers = iter([frozenset({"7_1"}), frozenset({"7_1"}), frozenset()])
    monkeypatch.setattr(launchers, "listed_jobs", lambda: next(answers))
    with pytest.raises(sweep.SweepError):
        sweep.resume(Path("mine"), ["hydra/launcher=submitit_slurm"])
    assert sweep_state(Path("mine")).outcome(1).status == "killed"


def sweeping(folder: Path, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    """A sweep in a process of its own, whose job trains until it is stopped."""
    command = [
        sys.executable,
        "-m",
        "runner",
        "-m",
        *TINY,
        "mode=graph",
        "seed=choice(1)",
        *words,
        f"hydra.sweep.dir={folder}",
    ]
    return subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)


@needs_submitit
def test_the_signal_before_the_time_limit_saves_and_the_job_goes_on(tmp_path):
    """submitit's own launcher of processes sends a job that was preempted off again."""
    folder, journal = tmp_path / "mine", tmp_path / "mine/sweep.jsonl"
    words = ("epochs=300", "checkpoint.every_steps=1000000", "hydra/launcher=submitit_local")
    process = sweeping(folder, *words)
    try:
        metrics = folder / "0/metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, lambda: process.poll() is None)
        os.kill(rows(folder, "start")[0]["pid"], signal.SIGUSR2)
        assert process.wait(300) == 0
    finally:
        process.kill()
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    found = [(row["event"], row.get("status")) for row in events if row["event"] in ("start", "end")]
    assert found == [("start", None), ("end", "interrupted"), ("start", None), ("end", "ok")]
    steps = [json.loads(line)["global_step"] for line in metrics.read_text().splitlines() if '"step"' in line]
    assert steps == list(range(1, 601))


def has_slurm() -> bool:
    return (
        shutil.which("sinfo") is not None and not subprocess.run(["sinfo"], capture_output=True, check=False).returncode
    )


@needs_submitit
@pytest.mark.skipif(not has_slurm(), reason="needs a Slurm")
def test_a_killed_sweep_finds_its_jobs_in_a_real_slurm(tmp_path):
    folder = tmp_path / "mine"
    process = sweeping(folder, "epochs=20", "hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=5")
    try:
        journal = folder / "sweep.jsonl"
        wait_until(lambda: journal.exists() and rows(folder, "submit"), lambda: process.poll() is None)
    finally:
        process.kill()
        process.wait()
    assert [one.status for one in sweep.resume(folder)] == ["ok"]
    assert len(rows(folder, "submit")) == 1
    assert len(rows(folder, "start")) == 1

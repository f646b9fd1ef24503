"""What the guardian writes when the first rank has been killed, and what it leaves alone."""

import json
import os
import subprocess
import sys

import pytest
from patience import wait_until

from runner.experiment.ranks import guardian
from runner.experiment.ranks.guardian import guarded, record_if_killed
from runner.host import files

RUNNING = {"status": "running", "pid": 77, "experiment": "lenet"}


def status(folder):
    return json.loads((folder / "status.json").read_text())


def test_a_killed_run_has_failed(tmp_path):
    files.write_json(tmp_path / "status.json", RUNNING)
    record_if_killed(tmp_path, 77)
    found = status(tmp_path)
    assert {**found, **RUNNING, "status": "failed"} == found
    assert (found["exit_code"], found["error"].splitlines()[0]) == (137, "TrainingError: the run was killed")
    assert found["finished"]


@pytest.mark.parametrize("other", [{"status": "ok"}, {"status": "interrupted"}, {"pid": 78}])
def test_a_run_that_has_ended_or_is_continued_keeps_its_status(tmp_path, other):
    files.write_json(tmp_path / "status.json", RUNNING | other)
    record_if_killed(tmp_path, 77)
    assert status(tmp_path) == RUNNING | other


def test_a_process_that_works_in_the_folder_keeps_its_status(tmp_path, monkeypatch):
    """While another one has the lock; it is a run that continues if it keeps it."""
    monkeypatch.setattr(guardian, "PAUSE_SECONDS", 0)
    files.write_json(tmp_path / "status.json", RUNNING)
    with files.locked(tmp_path / ".lock"):
        record_if_killed(tmp_path, 77)
    assert status(tmp_path) == RUNNING


def test_a_lock_that_a_killed_process_still_has_is_awaited(tmp_path, monkeypatch):
    files.write_json(tmp_path / "status.json", RUNNING)
    lock = files.locked(tmp_path / ".lock")
    lock.__enter__()
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            lock.__exit__(None, None, None)

    monkeypatch.setattr(guardian.time, "sleep", pause)
    record_if_killed(tmp_path, 77)
    assert (len(pauses), status(tmp_path)["status"]) == (3, "failed")


@pytest.mark.parametrize("content", [None, b"{", b"[]"])
def test_without_a_status_nothing_is_written(tmp_path, content):
    if content is not None:
        (tmp_path / "status.json").write_bytes(content)
    record_if_killed(tmp_path, 77)
    assert (tmp_path / "status.json").exists() == (content is not None)


def test_the_guardian_ends_with_the_run(tmp_path):
    """A process that leaves the context writes its own status."""
    running = {"status": "running", "pid": os.getpid()}
    files.write_json(tmp_path / "status.json", running)
    with guarded(tmp_path):
        assert status(tmp_path) == running
    assert status(tmp_path) == running


KILLED = """
import os, signal, sys
from pathlib import Path
from runner.experiment.ranks import guardian
from runner.experiment.ranks.guardian import guarded
from runner.host import files

folder = Path(sys.argv[1])
with files.locked(folder / ".lock"), guarded(folder):
    files.write_json(folder / "status.json", {"status": "running", "pid": os.getpid()})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_guardian_records_a_process_that_was_killed(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    assert killed.returncode == -9
    wait_until(lambda: status(tmp_path)["status"] == "failed")

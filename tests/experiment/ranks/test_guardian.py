"""What the guardian writes when the first rank has been killed, and what it leaves alone."""

import json
import os

import pytest

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


def test_a_process_that_works_in_the_folder_keeps_its_status(tmp_path):
    files.write_json(tmp_path / "status.json", RUNNING)
    with files.locked(tmp_path / ".lock"):
        record_if_killed(tmp_path, 77)
    assert status(tmp_path) == RUNNING


@pytest.mark.parametrize("content", [None, b"{", b"[]"])
def test_without_a_status_nothing_is_written(tmp_path, content):
    if content is not None:
        (tmp_path / "status.json").write_bytes(content)
    record_if_killed(tmp_path, 77)
    assert (tmp_path / "status.json").exists() == (content is not None)


def test_the_guardian_ends_with_the_run(tmp_path):
    """It looks at the status at the end, which is still that of a running process here."""
    files.write_json(tmp_path / "status.json", {"status": "running", "pid": os.getpid()})
    with guarded(tmp_path):
        assert status(tmp_path)["status"] == "running"
    assert status(tmp_path)["status"] == "failed"

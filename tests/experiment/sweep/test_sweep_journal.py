"""`sweep.jsonl`: rows from many processes, torn ends, damaged lines, disks that fail."""

import errno
import json
import os

import pytest

from runner.errors import ConfigError, DataError, StorageError
from runner.experiment.sweep import journal, pool
from runner.experiment.sweep.controller import SweepController
from runner.experiment.sweep.journal import SweepState, settle
from runner.host import files

START = {"job": 0, "folder": "0"}
HEAD = {"version": 1, "call": {"overrides": []}, "config": {}, "config_sha256": "0", "threads": 1}


@pytest.fixture
def begun(tmp_path):
    journal.append(tmp_path, "sweep", **HEAD)
    journal.append(tmp_path, "jobs", first=0, overrides=[["seed=1"], ["seed=2"]])
    return tmp_path


def known(folder) -> SweepState:
    made = SweepState(folder)
    made.update()
    return made


def test_rows_of_many_processes_are_whole(begun):
    def work() -> int:
        for _ in range(5):
            journal.append(begun, "start", job=0, folder="x" * 3000, pid=os.getpid())
        return 0

    pool.run_all(enumerate([work] * 16), 16, lambda number, code: bool(code))
    rows, end = journal.read(begun)
    assert len(rows) == 2 + 80
    assert len({row["pid"] for row in rows[2:]}) == 16
    assert end == (begun / "sweep.jsonl").stat().st_size


def test_reading_goes_on_where_it_ended(begun):
    rows, end = journal.read(begun)
    assert [row["event"] for row in rows] == ["sweep", "jobs"]
    assert journal.read(begun, end) == ([], end)
    journal.append(begun, "start", **START)
    assert [row["event"] for row in journal.read(begun, end)[0]] == ["start"]


@pytest.mark.parametrize("torn", [b'{"event": "start", "jo', b"{", b'{"event": "start", "job": 0, "folder": "0"}'])
def test_a_torn_last_line_is_no_row_and_goes_away(begun, torn):
    path = begun / "sweep.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert len(journal.read(begun)[0]) == 2
    journal.append(begun, "start", **START)
    assert [row["event"] for row in journal.read(begun)[0]] == ["sweep", "jobs", "start"]
    assert path.read_bytes().startswith(whole)


END = {"event": "end", "job": 0, "folder": "0", "status": "ok", "exit_code": 0}
NO_RESULTS = {"loss": {}}, {"loss": "1"}, {"loss": True}, {"metrics": {"accuracy": "x"}}, {"metrics": [0.5]}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"),
        ("nonsense", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not an event of a sweep"),
        ('{"event": ["sweep"]}', "not an event of a sweep"),
        ('{"event": "other"}', "not an event of a sweep"),
        ('{"event": "start", "job": "0", "folder": "0"}', "job is not int"),
        ('{"event": "start", "job": true, "folder": "0"}', "job is not int"),
        ('{"event": "end", "job": 0, "folder": "0", "status": "ok"}', "exit_code is not int"),
        ('{"event": "jobs", "first": 0}', "overrides is not list"),
        ('{"event": "trial", "job": 0, "params": [], "state": "failed"}', "params is not dict"),
        (
            '{"event": "trial", "job": 0, "params": {}, "state": "complete"}',
            "state and value of a trial do not match",
        ),
        (
            '{"event": "trial", "job": 0, "params": {}, "state": "complete", "value": NaN}',
            "not JSON",
        ),
        (
            '{"event": "trial", "job": 0, "params": {}, "state": "failed", "value": 0.5}',
            "state and value of a trial do not match",
        ),
        ('{"event": "jobs", "first": 0, "overrides": [["seed=1", 2]]}', "overrides are not lists of text"),
        *((json.dumps({**END, **results}), "loss and metrics of a job are not numbers") for results in NO_RESULTS),
    ],
)
def test_a_damaged_line_is_named(begun, line, reason):
    path = begun / "sweep.jsonl"
    path.write_text(path.read_text() + line + "\n")
    journal.append(begun, "start", **START)
    with pytest.raises(DataError) as caught:
        known(begun)
    assert (caught.value.rows["file"], caught.value.rows["reason"]) == (f"{path}:3", reason)


def test_a_folder_that_is_no_sweep(tmp_path):
    with pytest.raises(ConfigError, match="not a sweep directory") as caught:
        journal.read(tmp_path)
    assert caught.value.rows["missing"] == "sweep.jsonl"
    (tmp_path / "sweep.jsonl").write_text('{"event": "swe')
    with pytest.raises(ConfigError, match="not a sweep directory"):
        known(tmp_path)
    journal.append(tmp_path, "sweep", **{**HEAD, "version": 2})
    with pytest.raises(DataError, match="not a journal of this version"):
        known(tmp_path)


@pytest.mark.parametrize("operation", ["open", "write", "fsync"])
def test_a_disk_that_fails_is_told(begun, monkeypatch, operation):
    def before(what, path):
        if what == operation:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "before_operation", before)
    with pytest.raises(StorageError, match="cannot append to a file") as caught:
        journal.append(begun, "start", **START)
    assert caught.value.rows["reason"] == "No space left on device"


def test_how_jobs_stand(begun):
    state = known(begun)
    assert [one.status for one in state.outcomes()] == ["missing", "missing"]
    journal.append(begun, "start", job=0, folder="a/0")
    journal.append(begun, "start", job=1, folder="a/1")
    journal.append(begun, "end", job=1, folder="a/1", status="failed", exit_code=6, error="MismatchError: no")
    state.update()
    assert [one.status for one in state.outcomes()] == ["killed", "failed"]
    assert state.failed()
    assert state.done() == frozenset()
    first, second = state.outcomes()
    assert (first.folder, first.overrides) == (begun / "a/0", ("seed=1",))
    assert (second.exit_code, second.error) == (6, "MismatchError: no")
    journal.append(begun, "start", job=1, folder="a/1")  # again
    journal.append(begun, "end", job=1, folder="a/1", status="ok", exit_code=0, loss=0.5, metrics={"accuracy": 1.0})
    state.update()
    assert (state.outcome(1).loss, state.outcome(1).metrics) == (0.5, {"accuracy": 1.0})
    assert state.done() == {1}
    assert state.failed()
    journal.append(begun, "resume", overrides=[])
    state.update()
    assert not state.failed()
    assert state.done() == {1}


def test_jobs_that_could_not_write_their_end(begun):
    """One had finished and one had not, by what their folders say."""
    for number in (0, 1):
        journal.append(begun, "start", job=number, folder=str(number))
        (begun / str(number)).mkdir()
    (begun / "0/status.json").write_text('{"status": "ok"}')
    (begun / "0/summary.json").write_text(json.dumps({"loss": 0.25, "metrics": {"accuracy": 0.5}}))
    (begun / "1/status.json").write_text('{"status": "runn')
    state = known(begun)
    settle(state, [0, 1], "it died")
    state.update()
    first, second = state.outcomes()
    assert (first.status, first.exit_code, first.loss, first.metrics) == ("ok", 0, 0.25, {"accuracy": 0.5})
    assert (second.status, second.exit_code, second.error) == ("killed", 1, "it died")


def test_the_results_of_jobs_become_trials_of_a_search(begun):
    """Once: a job that failed before keeps that value after a successful rerun."""
    journal.append(begun, "start", **START)
    journal.append(begun, "end", **START, status="ok", exit_code=0, loss=0.5, metrics={"accuracy": 0.75})
    journal.append(begun, "start", job=1, folder="1")
    journal.append(begun, "end", job=1, folder="1", status="failed", exit_code=1)
    controller = SweepController(known(begun), fail_fast=False, force=False)
    assert controller.trial_value(0, {"seed": "1"}, "accuracy") == 0.75
    assert controller.trial_value(1, {"seed": "2"}, "accuracy") is None
    journal.append(begun, "end", job=1, folder="1", status="ok", exit_code=0, metrics={"accuracy": 1.0})
    assert controller.trial_value(1, {"seed": "2"}, "accuracy") is None
    rows = [row for row in journal.read(begun)[0] if row["event"] == "trial"]
    assert [(row["job"], row["params"], row["state"], row["value"]) for row in rows] == [
        (0, {"seed": "1"}, "complete", 0.75),
        (1, {"seed": "2"}, "failed", None),
    ]

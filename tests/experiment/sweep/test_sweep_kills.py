"""A sweep that is killed anywhere and resumed ends with the table and the bytes of one that was not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE, wait_until
from soak import SOAK
from sweep_runs import TINY, TWELVE, killed, rows, sweep_state, swept, table, traces, wait_until_free

from runner.errors import BusyError
from runner.experiment.sweep import sweep

ROOT = Path(__file__).parents[3]
BRAKE = ROOT / "tests/support/brake.py"
# `make soak` takes every place to die at.
BOUNDARIES = range(1, 27) if SOAK else (15,)  # the head, the jobs, 12 starts and 12 ends
PLACES = range(1, 900, 5) if SOAK else (540,)  # of about 800 operations
POOL = "hydra/launcher=pool"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The sweep that nobody disturbs, with Hydra's own launcher."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    swept(folder, *TWELVE)
    assert len(table(folder)) == 13
    assert len(traces(folder)) == 12 * 14  # 4 checkpoints of 2 files, config, metrics, summary, 2 networks, inputs
    return folder


def go_on(folder: Path) -> None:
    if not rows(folder, "sweep"):  # killed before it was a sweep
        with pytest.raises(sweep.ConfigError, match="not a sweep directory"):
            sweep.resume(folder)
        return
    sweep.resume(folder)


def same(folder: Path, whole: Path) -> None:
    if rows(folder, "sweep"):
        assert table(folder) == table(whole)
        assert traces(folder) == traces(whole)


@pytest.mark.parametrize("number", BOUNDARIES)
def test_at_every_boundary_of_a_job(tmp_path, monkeypatch, whole, number):
    folder = tmp_path / "sweep"
    assert killed(monkeypatch, folder, (*TWELVE, POOL), number, only="sweep.jsonl")
    done = sweep_state(folder).done() if rows(folder, "sweep") else frozenset()
    assert len(done) <= max(0, number - 3)
    started = len(rows(folder, "start"))
    go_on(folder)
    same(folder, whole)
    again = [row["job"] for row in rows(folder, "start")[started:]]
    assert not done & set(again)
    assert len(again) == len(set(again))


@pytest.mark.parametrize("number", PLACES)
def test_in_the_middle_of_jobs(tmp_path, monkeypatch, whole, number):
    folder = tmp_path / "sweep"
    if not killed(monkeypatch, folder, (*TWELVE, POOL), number):
        pytest.skip("the sweep has fewer operations")
    go_on(folder)
    same(folder, whole)


def test_twice_with_the_other_launcher(tmp_path, monkeypatch, whole):
    folder = tmp_path / "sweep"
    assert killed(monkeypatch, folder, TWELVE, 200)
    first = len(sweep_state(folder).done())
    assert 0 < first < 12
    sweep.resume(folder, [POOL])
    same(folder, whole)


# Real processes


STOPS = 12


def start(folder: Path, *words: str) -> subprocess.Popen:
    """A sweep whose jobs wait after so many steps until a signal comes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = (*words, POOL, "hydra.launcher.n_jobs=2", f"hydra.sweep.dir={folder}")
    command = [sys.executable, BRAKE, str(STOPS), "-m", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def of(folder: Path) -> list[psutil.Process]:
    """Every process of a sweep: its jobs are forks with the same command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if f"hydra.sweep.dir={folder}" in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_orphan_is_left(tmp_path, number, code):
    """Whatever ends the parent: its jobs save their state and end, and go on from there."""
    words = (*TINY, "epochs=60", "mode=pynative", "seed=1,2,3", "checkpoint.every_steps=40")
    folder, whole = tmp_path / "sweep", tmp_path / "whole"
    running = start(folder, *words)
    wait_until(lambda: [rows_in(folder / f"{job}/metrics.jsonl") for job in (0, 1)] == [STOPS, STOPS])
    assert len(of(folder)) == 3
    with pytest.raises(BusyError, match="another process is using this directory"):
        sweep.resume(folder)
    running.send_signal(number)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == code
    assert "Traceback" not in errors
    wait_until(lambda: not of(folder))
    ends = {row["job"]: (row["status"], row["exit_code"]) for row in rows(folder, "end")}
    assert ends == dict.fromkeys((0, 1), ("interrupted", 143 if number == signal.SIGKILL else code))
    if number != signal.SIGKILL:
        assert f"runner resume {folder}" in errors
        return
    assert rows_in(folder / "1/metrics.jsonl") == STOPS
    wait_until_free(folder)
    sweep.resume(folder)
    swept(whole, *words)
    assert table(folder) == table(whole)
    gone_on, expected = traces(folder), traces(whole)
    more = gone_on.keys() - expected.keys()  # where the two jobs were interrupted
    assert {name: gone_on[name] for name in gone_on.keys() - more} == expected
    assert {name.split("/")[0] for name in more} == {"0", "1"}
    assert {name.split("/")[1] for name in more} == {"checkpoints"}


def rows_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0

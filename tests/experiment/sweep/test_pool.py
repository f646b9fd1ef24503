"""The supervisor of processes: how many at once, how they end, and that none is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE, wait_until

from runner.config.compose import CommandLine
from runner.errors import StorageError
from runner.experiment import launch, run as experiment
from runner.experiment.sweep import pool
from runner.host.process import Terminated, stopped_by_signals

ROOT = Path(__file__).parents[3]


def run(works, at_once=2, ended=None) -> dict[int, int]:
    """Return codes by number."""
    codes: dict[int, int] = {}

    def note(number: int, code: int) -> bool:
        codes[number] = code
        return ended is not None and ended(number, code)

    pool.run_all(enumerate(works), at_once, note)
    return codes


def failing() -> int:
    raise ValueError("a work failed")


def killing() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_every_work_has_its_process_and_its_code(capfd):
    codes = run([lambda: 0, lambda: 6, failing, killing, os.getpid])
    assert {number: codes[number] for number in range(4)} == {0: 0, 1: 6, 2: 1, 3: -signal.SIGKILL}
    assert "ValueError: a work failed" in capfd.readouterr().err
    assert run([]) == {}


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_run_at_once(tmp_path, monkeypatch, at_once):
    """The first ones wait until that many run; the supervisor never has more children than that."""
    running, most = set(), []
    fork = os.fork

    def counted() -> int:
        process = fork()
        if process:
            running.add(process)
            most.append(len(running))
        return process

    def work() -> int:
        (tmp_path / str(os.getpid())).touch()
        wait_until(lambda: len(list(tmp_path.iterdir())) >= at_once)
        return 0

    def ended(number: int, code: int) -> bool:
        running.intersection_update(child.pid for child in psutil.Process().children())
        return False

    monkeypatch.setattr(os, "fork", counted)
    assert run([work] * 7, at_once, ended) == dict.fromkeys(range(7), 0)
    assert len(most) == 7
    assert max(most) == at_once


def test_the_others_are_stopped_when_that_is_asked_for(tmp_path):
    def saving() -> int:
        try:
            (tmp_path / "begun").touch()
            time.sleep(PATIENCE)
        except KeyboardInterrupt as stop:
            (tmp_path / "saved").write_text(type(stop).__name__)
            raise
        return 0

    def refusing() -> int:
        wait_until((tmp_path / "begun").exists)
        return 7

    def late() -> int:
        (tmp_path / "late").touch()
        return 0

    with stopped_by_signals():
        codes = run([saving, refusing, late], ended=lambda number, code: code == 7)
    assert codes == {0: 143, 1: 7}
    assert (tmp_path / "saved").read_text() == "Terminated"
    assert not (tmp_path / "late").exists()


def test_an_error_of_the_supervisor_leaves_nobody():
    def ended(number: int, code: int) -> bool:
        raise StorageError("the disk is full")

    before = set(psutil.Process().children())
    with pytest.raises(StorageError):
        run([lambda: 0, lambda: time.sleep(PATIENCE)], ended=ended)
    assert set(psutil.Process().children()) <= before


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_signals_are_passed_on(tmp_path, number, kind):
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    codes: dict[int, int] = {}

    def work() -> int:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(PATIENCE)
        return 0

    def interrupt() -> None:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with stopped_by_signals(), pytest.raises(KeyboardInterrupt) as caught:
        pool.run_all(enumerate([work] * 3), 2, lambda which, code: bool(codes.update({which: code})))
    thread.join()
    assert caught.type is kind
    assert codes == dict.fromkeys((0, 1), 143 if kind is Terminated else 130)
    assert {one: signal.getsignal(one) for one in before} == before


def test_sigint_stays_ignored(tmp_path):
    """As in a job that a shell has started in the background."""
    codes: dict[int, int] = {}

    def work() -> int:
        os.kill(os.getppid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return 0

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool.run_all(enumerate([work] * 3), 2, lambda number, code: bool(codes.update({number: code})))
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    except KeyboardInterrupt:
        pytest.fail("the pool was interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
    assert codes == dict.fromkeys(range(3), 0)


def test_the_third_signal_kills(tmp_path, monkeypatch):
    """One that neither saves nor ends is killed when the user insists."""
    seen: list[int] = []
    keep = pool._Signals._keep

    def noted(self, number, frame):
        keep(self, number, frame)
        seen.extend(self.seen[len(seen) :])

    monkeypatch.setattr(pool._Signals, "_keep", noted)

    def stubborn() -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        (tmp_path / "ready").touch()
        time.sleep(PATIENCE)
        return 0

    def insist() -> None:
        wait_until((tmp_path / "ready").exists)
        for count in (1, 2, 3):
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(lambda: len(seen) >= count)  # noqa: B023  two that wait at once would be one

    codes: dict[int, int] = {}
    thread = threading.Thread(target=insist)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        pool.run_all([(0, stubborn)], 1, lambda number, code: bool(codes.update({number: code})))
    thread.join()
    assert codes == {0: -signal.SIGKILL}


ORPHANS = """
import os, signal, subprocess, sys, time
from runner.experiment.sweep import pool
pool.GRACE = 0.5
def work():
    if {stubborn}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep({patience})"]) if {stubborn} else None
    # In one write: where Python does not buffer, the words of two processes would mix.
    os.write(1, (str(os.getpid()) + " " + str(child.pid if child else os.getpid()) + chr(10)).encode())
    time.sleep({patience})
    return 0
pool.run_all([(0, work), (1, work)], 2, lambda number, code: False)
"""


@pytest.mark.parametrize("stubborn", [False, True])
def test_nobody_outlives_a_parent_that_is_killed(stubborn):
    """Also not who ignores SIGTERM, and what it has started itself."""
    code = ORPHANS.format(stubborn=stubborn, patience=PATIENCE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    pids = {int(word) for _ in range(2) for word in parent.stdout.readline().split()}
    processes = [psutil.Process(pid) for pid in pids]
    assert len(processes) == (4 if stubborn else 2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    assert alive == []


def test_64_runs_that_start_together_have_64_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiment, "run", lambda request: {"loss": 0.5})
    made = launch.compose(CommandLine(("seed=1",)))  # all of them at the same second
    monkeypatch.setattr(launch, "compose", lambda call: made)

    def work() -> int:
        launch.run()
        return 0

    assert run([work] * 64, at_once=64) == dict.fromkeys(range(64), 0)
    assert len(list(tmp_path.glob("outputs/*/*/status.json"))) == 64


def test_what_a_process_prints_goes_into_a_file(tmp_path, capfd):
    def work() -> int:
        pool.show_in(tmp_path / "console.log")
        print("said")
        os.write(2, b"warned\n")
        return 0

    assert run([work, work], at_once=1) == {0: 0, 1: 0}
    assert (tmp_path / "console.log").read_text() == "said\nwarned\n" * 2
    assert capfd.readouterr() == ("", "")

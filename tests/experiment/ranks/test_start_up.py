"""Ranks that fail, or do not answer, before the training: one error, one exit code, and nothing waits for ever."""

import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import wait_until
from ranks import finished, kill_all, mpirun, needs_mpi, start, start_each

import runner

pytestmark = needs_mpi

HERE = Path(__file__).parent
LENET = (
    "+experiment=lenet_seed",
    "callbacks=quiet",
    "dataset=synthetic",
    "dataset.num_samples=160",
    "eval.every=never",
)
RANKS = ("parallel=data_parallel", "parallel.gradients_mean=true", "dataset_sink_mode=false")
DEFECT = r"TrainingError: ZeroDivisionError: a defect\n  at +\S+rank_start.py:\d+ in fail.*\n"
RUNNER = (sys.executable, "-m", "runner")
ABORTED = (1, 1 | signal.SIGKILL)  # mpirun combines our code with the signal by which it ended the other process


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("start")


@pytest.fixture(scope="module")
def trained(place) -> Path:
    """A run of two ranks."""
    folder = place / "trained"
    code, _, err = mpirun(2, "-m", "runner", *LENET, *RANKS, "max_steps=3", f"hydra.run.dir={folder}")
    assert code == 0, err
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def error_of(folder: Path) -> tuple[int, str]:
    status = json.loads((folder / "status.json").read_text())
    assert status["status"] == "failed"
    return status["exit_code"], status["error"]


@pytest.mark.parametrize("blind", [0, 1])
def test_a_rank_that_does_not_see_the_run_directory(place, trained, blind):
    """As on two machines without a shared file system: the directory is relative to that of the process."""
    elsewhere = place / f"elsewhere-{blind}"
    elsewhere.mkdir()
    before = content(trained)
    words = [*RUNNER, "resume", trained.name, "epochs=2"]
    groups = [["-n", "1", "-wdir", str(elsewhere if rank == blind else place), *words] for rank in (0, 1)]
    code, out, err = finished(start_each(*groups))
    assert (code, out) == (2, "")
    assert err.count("ConfigError") == err.count("not a run directory") == 1
    assert re.search(rf"\n  path +{trained.name}\n", err)
    assert re.search(rf"\n  rank +{blind} of 2\n  host +{platform.node()}\n  directory +{elsewhere}\n", err)
    assert content(trained) == before


def test_what_no_rank_sees_is_an_error_of_all(place):
    code, _, err = mpirun(2, "-m", "runner", "resume", "nowhere", cwd=place)
    assert (code, err.count("ConfigError"), "rank" in err) == (2, 1, False)


def test_a_config_that_is_wrong_on_one_rank(place):
    """With two errors; the other rank has begun, and creates nothing."""
    words = [*RUNNER, *LENET, *RANKS, "hydra.run.dir=one-wrong"]
    groups = [["-n", "1", "-wdir", str(place), *words, *more] for more in ((), ("epochs=-1", "seed=x"))]
    code, _, err = finished(start_each(*groups))
    assert code == 2
    assert err.count("ConfigError") == err.count("rank       1 of 2") == 2
    assert not (place / "one-wrong").exists()


def test_several_processes_do_not_continue_a_run_of_one(place):
    folder = place / "single"
    runner.run([*LENET, "max_steps=1", f"hydra.run.dir={folder}"])
    before = content(folder)
    code, _, err = mpirun(2, "-m", "runner", "resume", folder, "epochs=2")
    assert (code, err.count("ConfigError")) == (2, 1)
    assert re.search(rf"\n  launched +2 processes\n  repair +without mpirun: runner resume {folder}\n", err)
    assert content(folder) == before


def test_several_processes_do_not_continue_a_sweep(place):
    folder = place / "sweep"
    folder.mkdir()
    (folder / "sweep.jsonl").write_text("")
    code, _, err = mpirun(2, "-m", "runner", "resume", folder)
    assert (code, err.count("ConfigError")) == (2, 1)
    assert "jobs of a sweep are single processes" in err
    assert [path.name for path in folder.iterdir()] == ["sweep.jsonl"]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("miss", 7, r"DataError: a file is missing\n  file +/data/images\n  rank +1 of 2\n  host +\S+\n  directory +/"),
        (
            "fail",
            1,
            r"TrainingError: ZeroDivisionError: a defect\n  at +\S+rank_start.py:\d+ in fail.*\n(.*\n)?  rank +1 of 2",
        ),
        ("usual", 1, r"TrainingError: ZeroDivisionError: a defect\n  at +\S+rank_start.py:\d+ in fail.*\n"),
    ],
)
def test_a_rank_that_cannot_build(place, trained, kind, code, said, resumed):
    """`usual`: it is the first rank. The first one reports and records the error; no rank is aborted."""
    folder = place / f"build-{kind}-{resumed}"
    if resumed:
        shutil.copytree(trained, folder)
        words = ["resume", folder, "epochs=2"]
    else:
        words = [*LENET, *RANKS, f"hydra.run.dir={folder}"]
    found, _, err = mpirun(2, HERE / "rank_start.py", kind, *words)
    assert found == code
    assert len(re.findall(said, err)) == 1
    assert err.count("Error: ") == 1 + (kind != "miss")  # the name of the exception, too
    assert "Abort" not in err
    assert error_of(folder)[0] == code
    assert re.search(said.partition(r"\n")[0], error_of(folder)[1])


def test_a_rank_that_does_not_answer(place):
    folder = place / "silent"
    words = [*LENET, *RANKS, "parallel.timeout_seconds=3", f"hydra.run.dir={folder}"]
    code, _, err = mpirun(2, HERE / "rank_start.py", "stop", *words)
    assert code in ABORTED
    assert err.count("TrainingError: ranks do not answer") == 1
    assert re.search(r"\n  missing +1 of 2 on \S+\n  waited +3 seconds\n  key +parallel.timeout_seconds\n", err)
    assert error_of(folder)[0] == 1


def test_a_process_that_does_not_start(place, trained):
    before = content(trained)
    words = [*RUNNER, "resume", str(trained), "epochs=2", "parallel.timeout_seconds=3"]
    code, _, err = finished(start_each(["-n", "1", *words], ["-n", "1", "sleep", "1000000"]))
    assert code in ABORTED
    assert re.search(r"TrainingError: not all processes of mpirun have started\n  rank +0 of 2\n  host +\S+\n", err)
    assert content(trained) == before


def test_a_signal_while_a_rank_joins_the_others(place, trained):
    """The rank ends with its error. What mpirun makes of that varies, since it exchanges data with the rank at that
    moment: it ends, fails, or waits busily for ever.
    """
    errors = place / "joining.txt"
    line = f"exec {shlex.join([*RUNNER, 'resume', str(trained), 'epochs=2'])} 2> {shlex.quote(str(errors))}"
    process = start_each(["-n", "1", "bash", "-c", line], ["-n", "1", "sleep", "1000000"])
    try:
        rank = _ready_rank(process, _is_starting_mpi)
        os.kill(rank, signal.SIGTERM)
        wait_until(lambda: _state(rank) in ("Z", None))
        assert "Terminated" in errors.read_text()
    finally:
        kill_all(process)
        process.communicate()


def test_a_signal_while_ranks_wait_for_one_that_builds(place):
    folder = place / "signal-building"
    process = start(2, HERE / "rank_start.py", "stop", *LENET, *RANKS, f"hydra.run.dir={folder}")
    rank = _ready_rank(process, lambda pid: (folder / "status.json").exists() and _state(pid) == "S")
    os.kill(rank, signal.SIGTERM)
    code, _, err = finished(process)
    assert "Terminated" in err
    assert code == 143, err
    assert json.loads((folder / "status.json").read_text())["status"] == "interrupted"


def _ready_rank(process: subprocess.Popen, is_ready: Callable[[int], bool]) -> int:
    """The process of the first rank, once it is ready."""
    found: list[int] = []
    wait_until(lambda: found.extend(_first_rank(process.pid)) or found, alive=lambda: process.poll() is None)
    wait_until(lambda: is_ready(found[0]), alive=lambda: process.poll() is None)
    return found[0]


def _first_rank(mpirun_pid: int) -> list[int]:
    """The process of the first rank: a grandchild of mpirun."""
    return [pid for proxy in _children(mpirun_pid) for pid in _children(proxy) if _rank(pid) == "0"]


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _rank(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((line.partition(b"=")[2].decode() for line in variables if line.startswith(b"PMI_RANK=")), None)


def _is_starting_mpi(pid: int) -> bool:
    names = [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]
    return len(names) > 1 and "libmpi" in Path(f"/proc/{pid}/maps").read_text()


def _state(pid: int) -> str | None:
    """The letter of ps; None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


@pytest.mark.parametrize(
    ("place", "rank", "kind"),
    [
        ("compose", 0, "SIGINT"),
        ("compose", 1, "SIGTERM"),
        ("join", 0, "SIGINT"),
        ("join", 1, "SIGTERM"),
        ("end", 0, "SIGTERM"),
        ("end", 1, "SIGTERM"),
        ("end", 1, "SIGINT"),
    ],
)
def test_a_signal_to_one_rank_ends_all(tmp_path, place, rank, kind):
    words = [*LENET, *RANKS, "max_steps=2", "hydra.run.dir=run"]
    code, _, err = mpirun(2, HERE / "rank_signals.py", place, rank, kind, *words, cwd=tmp_path)
    assert code == {"SIGINT": 130, "SIGTERM": 143}[kind], err
    assert err.count({"SIGINT": "Interrupted", "SIGTERM": "Terminated"}[kind]) == 1, err
    if place == "end" and rank == 1:
        status = json.loads((tmp_path / "run/status.json").read_text())
        assert (status["status"], status["exit_code"]) == ("interrupted", code)
    elif place != "end":
        assert not (tmp_path / "run").exists()

"""Directories that belong to one run: who may claim one, and what the others are told to do."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
from run_folders import NO_PROCESS
from tables import table

from runner import rundir
from runner.errors import BusyError, DataError
from runner.host import files
from runner.observe.dump.settings import FILES as DUMP_FILES
from runner.observe.graph.folder import FILES as GRAPH_FILES
from runner.observe.profile.settings import FILES as PROFILE_FILES
from runner.rundir import OWNER, OutputDirectory, Owner, claim, conflict, owner_of

ALL_FILES = (*DUMP_FILES, *GRAPH_FILES, *PROFILE_FILES)


def directory(path: Path) -> OutputDirectory:
    return OutputDirectory(path, "dump.path", ALL_FILES)


def run_folder(place: Path, **status: object) -> Path:
    place.mkdir(parents=True)
    if status:
        (place / "status.json").write_text(json.dumps(status))
    return place


def refused(path: Path, owner: Owner | None = None) -> dict[str, str]:
    error = conflict(directory(path), owner)
    assert isinstance(error, BusyError)
    assert error.exit_code == 4
    assert error.what == "the directory belongs to another run"
    return error.rows


def test_a_new_an_empty_and_a_used_directory_are_claimed(tmp_path):
    """Files of the user do not matter, and stay."""
    owner = owner_of(run_folder(tmp_path / "run"))
    (tmp_path / "empty").mkdir()
    for name in ("data.csv", "0/notes.txt", "iteration_0.txt", "net/model.onnx"):
        (tmp_path / "used" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "used" / name).write_text("mine")
    for name in ("new/below", "empty", "used"):
        assert not claim(directory(tmp_path / name), owner)  # it had belonged to nobody
        assert claim(directory(tmp_path / name), owner)
        record = json.loads((tmp_path / name / OWNER).read_text())
        assert record["id"] == owner.id
        assert (record["run"], record["host"], record["pid"]) == (
            str(tmp_path / "run"),
            os.uname().nodename,
            os.getpid(),
        )
        assert refused(tmp_path / name)["owner"].startswith(f"run {tmp_path / 'run'} (started 20")
    assert (tmp_path / "used/data.csv").read_text() == "mine"
    assert os.listdir(tmp_path / "empty") == [OWNER]


STATES = {
    "ok": ({"status": "ok", "finished": "2026-01-02T03:04:05+00:00", "pid": 7}, "(ok, finished 2026-01-02T03:04:05"),
    "running": ({"status": "running", "pid": os.getpid()}, f"(running as process {os.getpid()})"),
    "killed": ({"status": "running", "pid": NO_PROCESS}, "(killed)"),
}


@table(("status", "text"), STATES.values(), ids=STATES)
def test_the_state_of_the_owner(status, text, tmp_path):
    place = tmp_path / status["status"] / str(status["pid"])
    claim(directory(place / "d"), owner_of(run_folder(place / "run", **status)))
    assert text in refused(place / "d", owner_of(run_folder(place / "other")))["owner"]


def test_other_owners(tmp_path):
    """A sweep, a run that was removed, a script that has ended, a damaged record."""
    sweep = run_folder(tmp_path / "sweep")
    (sweep / "sweep.jsonl").write_text("")
    claim(directory(tmp_path / "a"), owner_of(sweep))
    assert refused(tmp_path / "a")["owner"].startswith(f"sweep {sweep} (started ")
    claim(directory(tmp_path / "b"), owner_of(run_folder(tmp_path / "gone")))
    shutil.rmtree(tmp_path / "gone")
    assert refused(tmp_path / "b")["owner"] == f"run {tmp_path / 'gone'} (removed)"
    claim(directory(tmp_path / "c"), rundir.process_owner())
    assert f"running as process {os.getpid()})" in refused(tmp_path / "c")["owner"]
    record = json.loads((tmp_path / "c" / OWNER).read_text())
    (tmp_path / "c" / OWNER).write_text(json.dumps(record | {"pid": NO_PROCESS, "script": "/a/train.py"}))
    assert refused(tmp_path / "c")["owner"].startswith("script /a/train.py (started ")
    assert refused(tmp_path / "c")["owner"].endswith(f"process {NO_PROCESS}, ended)")
    (tmp_path / "c" / OWNER).write_text("{")
    assert refused(tmp_path / "c", rundir.process_owner())["owner"] == f"unknown: {OWNER} is damaged"
    run = run_folder(tmp_path / "run")
    (run / OWNER).write_text("{}")
    with pytest.raises(DataError, match="damaged"):
        owner_of(run)


LEFT = (
    *("LeNet5/0/iteration_3/x.bin", "LeNet5/iteration_3/x.bin", "0/LeNet5_graph_0/0/3/x", "rank_0/LeNet5/0/3/x"),
    *(".metadata/data_dump.json", "cpu_op_detail_info_0.csv", "step_trace_raw_0_detail_time.csv"),
    *("framework_raw_1.csv", "minddata_pipeline_raw_0.csv", "pipeline_profiling_0.json", "ai_core_metrics_0.json"),
    *("cpu_timeline_display_0.json", "step_trace_point_info.json", "op_trace_0.json", "00_parse_0000.ir"),
    *("trace_code_graph_0.ir", "ms_output_trace_code_graph_1.pb", "execution_order/ms_execution_order_graph_0.csv"),
)


@table("left", LEFT)
def test_files_of_a_run_without_a_record(left, tmp_path):
    """They are of an earlier version, or of MindSpore. The command of the error removes them, and nothing else."""
    place = tmp_path / left.replace("/", "-") / "it's mine"
    (place / left).parent.mkdir(parents=True)
    (place / left).write_text("")
    (place / "data.csv").write_text("")
    rows = refused(place)
    assert rows["owner"] == "not recorded: it has files of a run that wrote no record"
    assert rows["hint"].startswith("another value of dump.path, or remove the files of the earlier run: rm -r ")
    subprocess.run(rows["hint"].partition("run: ")[2], shell=True, check=True)
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["data.csv"]
    assert not claim(directory(place), rundir.process_owner())


def test_the_command_of_the_error_frees_a_claimed_directory(tmp_path):
    owner, other = owner_of(run_folder(tmp_path / "run")), owner_of(run_folder(tmp_path / "other"))
    claim(directory(tmp_path / "d"), owner)
    (tmp_path / "d/LeNet5/0/iteration_0").mkdir(parents=True)
    (tmp_path / "d/notes.txt").write_text("mine")
    command = refused(tmp_path / "d", other)["hint"].partition("run: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert [path.name for path in (tmp_path / "d").rglob("*") if path.is_file()] == ["notes.txt"]
    assert not claim(directory(tmp_path / "d"), other)


def test_the_command_of_the_error_keeps_files_of_the_user_in_folders_of_a_dump(tmp_path):
    """Also in those of the jobs of a sweep."""
    sweep, job = run_folder(tmp_path / "sweep"), run_folder(tmp_path / "sweep/0")
    claim(directory(tmp_path / "d"), owner_of(sweep))
    claim(directory(tmp_path / "d/0"), owner_of(job))
    for folder in ("d/LeNet5/0", "d/0/LeNet5/0", "d/0/Mine/0"):
        for name in ("iteration_0", "iteration_12", "graphs"):
            (tmp_path / folder / name).mkdir(parents=True)
    mine = {tmp_path / "d/0/notes.txt", tmp_path / "d/0/Mine/0/train.py", tmp_path / "d/LeNet5/train.py"}
    for file in mine:
        file.write_text("")
    command = refused(tmp_path / "d")["hint"].partition("run: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert {path for path in (tmp_path / "d").rglob("*") if path.is_file()} == mine
    assert not list((tmp_path / "d").rglob("iteration_*"))
    assert not (tmp_path / "d/0/LeNet5/0").exists()
    assert not claim(directory(tmp_path / "d"), rundir.process_owner())


def test_a_renamed_run_keeps_its_directories_and_a_copy_does_not_get_them(tmp_path):
    run = run_folder(tmp_path / "run")
    claim(directory(tmp_path / "d"), owner_of(run))
    shutil.copytree(run, tmp_path / "copy")
    assert refused(tmp_path / "d", owner_of(tmp_path / "copy"))["owner"].startswith(f"run {run} ")
    run.rename(tmp_path / "renamed")
    assert claim(directory(tmp_path / "d"), owner_of(tmp_path / "renamed"))
    assert json.loads((tmp_path / "d" / OWNER).read_text())["run"] == str(tmp_path / "renamed")
    run_folder(tmp_path / "run")  # another run of that name
    assert refused(tmp_path / "d", owner_of(tmp_path / "run"))["owner"].startswith(f"run {tmp_path / 'renamed'} ")


def _claim_at_once(place: str, number: int, barrier, results) -> None:
    owner = owner_of(run_folder(Path(place) / f"run{number}"))
    barrier.wait()
    try:
        results.put((number, claim(directory(Path(place) / "d"), owner)))
    except BusyError as error:
        results.put((number, error.rows["owner"]))
    barrier.wait()  # the claim of a process that has ended before it wrote anything does not count


@pytest.mark.parametrize("links", [True, False])
def test_of_several_processes_at_once_one_succeeds(tmp_path, monkeypatch, links):
    if not links:
        no_links(monkeypatch)
    fork = get_context("fork")
    barrier, results = fork.Barrier(6), fork.Queue()
    processes = [fork.Process(target=_claim_at_once, args=(str(tmp_path), k, barrier, results)) for k in range(6)]
    for process in processes:
        process.start()
    found = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    (winner,) = [number for number, result in found.items() if result is False]
    assert json.loads((tmp_path / "d" / OWNER).read_text())["run"] == str(tmp_path / f"run{winner}")
    if links:  # without links a process may find a record that is not yet whole
        expected = f"run {tmp_path / f'run{winner}'} (started "
        assert all(result is False or result.startswith(expected) for result in found.values())
    assert os.listdir(tmp_path / "d") == [OWNER]


def no_links(monkeypatch) -> None:
    """A file system without hard links."""

    def link(*paths: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)


def test_a_process_that_is_killed_while_it_claims(tmp_path, monkeypatch):
    """At any operation: the same run claims again, and another one is refused or served, but never both."""

    class Killed(BaseException):
        pass

    number = 0
    while True:
        count, place = 0, tmp_path / str(number)
        owner = owner_of(run_folder(place / "run"))

        def before(operation: str, path: Path, place=place, stop=number) -> None:
            nonlocal count
            if count == stop:
                raise Killed
            count += 1

        with monkeypatch.context() as patch:
            patch.setattr(files, "before_operation", before)
            try:
                claim(directory(place / "d"), owner)
                break
            except Killed:
                pass
        claimed = (place / "d" / OWNER).exists()
        assert claim(directory(place / "d"), owner) == claimed
        refused(place / "d")
        number += 1
    assert number >= 5


def test_a_record_does_not_choose_another_place(tmp_path):
    """Of a run directory from elsewhere: only the path in the config, and numbers below it."""
    good = {"/d": "/d", "/e": "/e/3", "/f": "/f/20260102235959"}
    bad = {"/g": "/etc", "/h": "/h/../etc", "/i": "/i/3/4", "/j": "/j/..", "/k": "/k/x", "/l": 3, "/m": "/n/3"}
    (tmp_path / OWNER).write_text(json.dumps({"id": "0", "directories": good | bad}))
    assert rundir.directories_of(tmp_path) == good
    assert owner_of(tmp_path).directories == good


def test_a_forked_process_is_another_owner(tmp_path):
    claim(directory(tmp_path / "d"), rundir.process_owner())
    assert claim(directory(tmp_path / "d"), rundir.process_owner())
    read, write = os.pipe()
    if not (pid := os.fork()):
        error = conflict(directory(tmp_path / "d"), rundir.process_owner())
        os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert f"running as process {os.getpid()})" in os.read(read, 10000).decode()
    os.close(read)
    os.close(write)


def test_ranks_of_one_script_share_a_directory(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from runner.rundir import OutputDirectory, claim, process_owner\n"
        "print(claim(OutputDirectory(pathlib.Path(sys.argv[1]), 'path', ()), process_owner('0123')))\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "d")]
    outputs = [subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert outputs == ["False\n", "True\n"]
    assert re.fullmatch(r"script of python \(started \S+, process \d+, ended\)", refused(tmp_path / "d")["owner"])


def test_what_a_link_leads_to_is_not_of_an_ended_script(tmp_path):
    kept, dumps = tmp_path / "kept", tmp_path / "dumps"
    for place in (kept / "net_graph_0", dumps / "1" / "net_graph_0"):
        (place / "0" / "2").mkdir(parents=True)
        (place / "0" / "2" / "Add.op.1.0.5").write_text("x")
    (dumps / "0").symlink_to(kept)
    (kept / "notes.txt").write_text("mine")
    (dumps / OWNER).write_text(json.dumps({"id": "1", "script": "/train.py", "pid": NO_PROCESS}))
    rundir.remove_of_ended_script(directory(dumps), Owner("2"))
    assert (kept / "net_graph_0" / "0" / "2" / "Add.op.1.0.5").read_text() == "x"
    assert [path for path in (dumps / "1").rglob("*") if path.is_file()] == []

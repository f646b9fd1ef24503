"""Whole runs and the directories outside of theirs that they fill: never two runs in one, whatever happens to them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from deaths import kill_before
from patience import SlowDisk, wait_until
from soak import thinned

import runner
from runner.cli import run_command
from runner.config.command_line import CommandLine
from runner.errors import BusyError, DataError, TrainingError
from runner.experiment import observers
from runner.experiment.resume import resume
from runner.experiment.sweep import sweep
from runner.host import files
from runner.observe.dump import VARIABLE
from runner.rundir import OWNER, STATUS
from runner.train.checkpoint import state

# 64 samples are 2 batches: 4 steps.
TINY = (
    *("dataset=synthetic", "dataset.num_samples=64", "dataset_sink_mode=false", "epochs=2", "eval.every=never"),
    *("callbacks=quiet", "device.threads=1", "optimizer.learning_rate=0.05"),
)
BRAKE = Path(__file__).parents[1] / "support/brake.py"
STAMPS = re.compile(r"\d{14,20}")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """Where the command is started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").mkdir()
    return tmp_path


def run(name: str, *words: str) -> dict:
    return runner.run([*TINY, *words, f"hydra.run.dir={name}"])


def contents(*folders: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def dump_file(place: Path, name: str = "data_dump.json", path: str = "given", **sections: object) -> Path:
    """The JSON file of seed 002 for an asynchronous dump."""
    common = {
        "dump_mode": 0,
        "path": f"{place}/{path}",
        "net_name": "ResNet50",
        "iteration": "0",
        "input_output": 0,
        "kernels": [],
        "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
    }
    (place / name).write_text(json.dumps({"common_dump_settings": common, **sections}))
    return place / name


# How a run fills the folder `given`: words, the key of the error, and what another run may do there instead.
WAYS = {
    "sync": (("dump=sync", "dump.path={place}/given"), "dump.path"),
    "async": (("dump=async", "dump.path={place}/given"), "dump.path"),
    "npy": (("dump=async", "dump.file_format=npy", "dump.path={place}/given"), "dump.path"),
    "file": (("dump.config=data_dump.json",), "common_dump_settings.path"),
    "environment": ((), "common_dump_settings.path"),
    "result_path": (("profiling=trace", "profiling.result_path=given"), "profiling.result_path"),
    "options": (("profiling.options={result_path: given, training_trace: on}",), "profiling.result_path"),
    "session": (
        ("session.profiling_mode=true", "session.profiling_options={result_path: given, training_trace: on}"),
        "profiling.result_path",
    ),
    "graphs": (("save_graphs=true", "save_graphs_path={place}/given"), "save_graphs_path"),
}


@pytest.mark.parametrize("way", [*thinned(WAYS, every=2)])
def test_a_second_run_is_refused_before_anything_is_written(place, way, monkeypatch):
    """With another batch size, as in the issue: nothing is added to the first one's files and nothing is changed."""
    words, key = WAYS[way]
    words = tuple(word.format(place=place) if "{place}" in word else word for word in words)
    dump_file(place)
    if way == "environment":
        monkeypatch.setenv(VARIABLE, str(place / "data_dump.json"))
    run("first", *words)
    before = contents(place / "given")
    assert len(before) > 3
    for mode in ("graph", "pynative"):
        with pytest.raises(BusyError) as caught:
            run("second", *words, "dataset.batch_size=16", f"mode={mode}")
        assert caught.value.exit_code == 4
        rows = caught.value.rows
        assert (rows["key"], rows["path"]) == (key, str(place / "given"))
        assert re.match(rf"run {place}/first \(ok, finished 20", rows["owner"])
    assert contents(place / "given") == before
    assert not (place / "second").exists()
    subprocess.run(rows["hint"].partition("run: ")[2], shell=True, check=True)
    run("second", *words, "dataset.batch_size=16")
    assert json.loads((place / "given" / OWNER).read_text())["run"] == str(place / "second")


def test_all_directories_are_in_one_error(place):
    words = "dump=async", f"dump.path={place}/d", "save_graphs=true", f"save_graphs_path={place}/g"
    run("first", *words)
    with pytest.raises(BusyError) as caught:
        run("second", *words)
    assert caught.value.rows["key"] == "dump.path"
    assert caught.value.rows["also"].startswith(f"save_graphs_path {place}/g: run {place}/first (ok, finished ")
    assert f"rm -r {place}/g/" in caught.value.rows["also"]


def test_one_run_may_use_one_directory_twice(place):
    run("first", "dump=async", f"dump.path={place}/given", "profiling=trace", "profiling.result_path=given")
    assert {"0", "cpu_op_detail_info_0.csv"} < set(os.listdir(place / "given"))
    with pytest.raises(BusyError):
        run("second", "save_graphs=true", f"save_graphs_path={place}/given")


def test_a_directory_inside_of_the_run_directory_needs_no_record(place):
    run("first", "dump=sync", f"dump.path={place}/first/mine", "save_graphs=true")
    assert not list((place / "first").rglob(OWNER))


@pytest.mark.parametrize("way", ["sync", "async"])
def test_two_runs_at_once(place, way):
    """Of two commands that start at the same time, one runs and one is refused."""
    words = [word.format(place=place) for word in WAYS[way][0]]
    command = [sys.executable, "-m", "runner", *TINY, *words]
    processes = [
        subprocess.Popen([*command, f"hydra.run.dir=run{k}"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for k in range(2)
    ]
    errors = [process.communicate()[1].decode() for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 4]
    winner = codes.index(0)
    assert "BusyError: the directory belongs to another run\n" in errors[1 - winner]
    assert json.loads((place / "given" / OWNER).read_text())["run"] == str(place / f"run{winner}")
    alone = place / "alone"
    run("alone", *(word.replace("given", "whole") for word in words))
    assert alone.is_dir()
    assert names(place / "given") == names(place / "whole")


def names(folder: Path) -> Counter[str]:
    """The files of a dump: names without timestamps."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return Counter(STAMPS.sub("T", name) for name in found)


# Killed and resumed

KINDS = {
    "sync": ("dump=sync", "dump.path={place}/{name}"),
    "async": ("dump=async", "dump.path={place}/{name}"),
    "npy": ("dump=async", "dump.file_format=npy", "dump.path={place}/{name}"),
    "ge": ("dump=ge", "dump.dump_path={name}", "dump.dump_mode=all"),
}
FEW = ("dump.dump_mode=1", "dump.kernels=[Conv2D,ApplyMomentum]", "dump.iteration=all")


def words_of(kind: str, place: Path, name: str) -> list[str]:
    (place / name).mkdir(exist_ok=True)
    words = [word.format(place=place, name=name) for word in KINDS[kind]]
    return [*words, *(FEW if kind != "ge" else ()), "checkpoint.every_steps=2"]


def killed_at(number: int, name: str, words: list[str], marker: Path) -> bool:
    """Run in another process, which is killed at the n-th operation on files; whether it was."""
    process = os.fork()
    if not process:
        operations = kill_before(number)
        try:
            run(name, *words)
        finally:
            marker.write_text(str(len(operations)))
            os._exit(0)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("kind", [*thinned(KINDS, every=2)])
def test_a_killed_and_resumed_run_has_the_files_of_one_that_was_not(place, kind):
    """Killed by SIGKILL at operations on files, in the middle of dumps too: the same names, and none twice."""
    assert not killed_at(10**9, "whole", words_of(kind, place, "expected"), place / "count")
    expected, operations = names(place / "expected"), int((place / "count").read_text())
    assert set(expected.values()) == {1}
    for number in thinned(range(3, operations), every=max(1, operations // 6)):
        folder, name = place / str(number), f"dumped{number}"
        assert killed_at(number, str(number), words_of(kind, place, name), place / "count")
        if (folder / "config.json").exists() and json.loads((folder / "status.json").read_text())["status"] != "ok":
            resume(folder)
            assert names(place / name) == expected, f"killed at operation {number}"
        for done in (place / name, folder):  # 900 dumps of 50 MB fill a disk
            shutil.rmtree(done, ignore_errors=True)


@pytest.mark.parametrize("kind", [*thinned([*KINDS][::-1], every=2)])
def test_steps_before_the_checkpoint_are_kept_and_later_ones_replaced(place, kind):
    words = words_of(kind, place, "given")
    process = subprocess.Popen([sys.executable, str(BRAKE), "3", *TINY, *words, "hydra.run.dir=r"])
    try:
        wait_until(lambda: rows("r") == 3, alive=lambda: process.poll() is None)
        wait_until(lambda: 2 in steps(place / "given"), alive=lambda: process.poll() is None)
    finally:
        process.kill()
        process.wait()
    before = {step: inodes(found) for step, found in steps(place / "given").items()}
    assert set(before) == {0, 1, 2}
    target = next((place / "given").iterdir()) if kind == "ge" else place / "given"
    with pytest.raises(BusyError) as caught:
        run("other", "dump=async", f"dump.path={target}")
    assert caught.value.rows["owner"] == f"run {place}/r (killed; it can be resumed)"
    resume("r")
    after = {step: inodes(found) for step, found in steps(place / "given").items()}
    assert set(after) == {0, 1, 2, 3}
    assert (after[0], after[1]) == (before[0], before[1])
    assert not after[2] & before[2]
    assert len({len(found) for found in after.values()}) == 1


def rows(name: str) -> int:
    path = Path(name) / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def steps(folder: Path) -> dict[int, list[Path]]:
    """The files of every dumped step."""
    found: dict[int, list[Path]] = {}
    for path in folder.rglob("*"):
        number = path.parent.name.removeprefix("iteration_")
        if path.is_file() and number.isdecimal() and (path.suffix == ".bin" or "_graph_" in str(path.parent)):
            found.setdefault(int(number), []).append(path)
    return found


def inodes(paths: list[Path]) -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_mtime_ns) for path in paths}


# Names and readers


def test_two_runs_of_ge_in_one_second_have_two_folders(place, monkeypatch):
    class Frozen(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 1, 2, 23, 59, 59)

    monkeypatch.setattr(observers, "datetime", Frozen)
    for name in ("first", "second"):
        run(name, "dump=ge", "dump.dump_path=given", "dump.dump_step='0'")
    assert sorted(os.listdir(place / "given")) == ["20260102235959", "20260103000000"]
    assert names(place / "given/20260102235959") == names(place / "given/20260103000000")
    # Each run is compared by its own folder, although both have one `dump_path`.
    assert run_command("compare", ["first", "second", "--rtol", "0", "--atol", "0"]) == 0


def test_readers_do_not_take_the_record_for_a_dump(place, capsys):
    words = "dump=async", "profiling=trace"
    for name in ("a", "b"):
        (place / f"{name}p").mkdir()
        run(name, *words, f"dump.path={place}/{name}d", f"profiling.result_path={name}p")
    capsys.readouterr()
    for first, second in (("a", "b"), ("ad", "bd"), ("ad/0", "b")):
        assert run_command("compare", [first, second]) == 0
    assert run_command("report", ["a"]) == 0
    assert "One step" in (place / "a/report.html").read_text()
    converted = place / "converted"
    assert run_command("convert", ["-d", "ad/0/lenet5_graph_0/0/0", "-out", str(converted)]) == 0
    assert not [path for path in converted.rglob("*") if "owner" in path.name]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_device_number_has_no_effect_on_the_cpu(place, mode):
    """Neither on folders nor on names: both runs have the same files."""
    for name, number in (("zero", 0), ("three", 3)):
        run(name, f"mode={mode}", f"device.id={number}", "dump=sync", "dump.support_device=[1]", "profiling=trace")
    assert names(place / "zero/dump") == names(place / "three/dump")
    assert sorted(os.listdir(place / "three/dump/lenet5")) == ["0"]
    assert sorted(os.listdir(place / "zero/profiling")) == sorted(os.listdir(place / "three/profiling"))
    assert (place / "three/profiling/cpu_op_detail_info_0.csv").exists()


def test_graphs_keep_their_numbers_when_a_run_is_resumed(place):
    """The last batch of an epoch is smaller: its graph is number 1, also if a resumed run begins with it."""
    words = (
        *("dump=async", "dump.iteration=all", "dump.dump_mode=1", "dump.kernels=[Conv2D]", "dataset.num_samples=80"),
        *("dataset.drop_remainder=false", "checkpoint.every_steps=1"),
    )
    run("whole", *words)
    run("cut", *words, "max_steps=2")
    resume("cut", ["max_steps=null"])
    assert names(place / "cut/dump") == names(place / "whole/dump")
    assert (place / "whole/dump/0/lenet5_graph_1/1/2").is_dir()


def test_a_profile_replaces_that_of_the_run_before_it_was_resumed(place):
    run("r", "profiling=trace", "max_steps=2", "checkpoint.every_steps=1")
    assert (place / "r/profiling/cpu_op_detail_info_0.csv").exists()
    (place / "r/profiling/notes.csv").write_text("mine")
    resume("r", ["max_steps=null", "profiling.task_trace=off", "profiling.aicpu_trace=off"])
    found = {"cpu_timeline_display_0.json", "step_trace_raw_0_detail_time.csv", "step_trace_point_info.json"}
    found.add("profile_summary_0.json")
    assert set(os.listdir(place / "r/profiling")) == {*found, "notes.csv"}


def test_an_exception_dump_replaces_that_of_an_earlier_failure(place):
    words = "session.enable_exception_dump=1", "optimizer.learning_rate=1e20", "epochs=20"
    with pytest.raises(TrainingError):
        run("r", *words, "checkpoint.every_steps=1")
    folder = place / "r/exception_dump/lenet5/0"
    (folder / "iteration_99").mkdir()
    with pytest.raises(TrainingError):
        resume("r")
    (step,) = [name for name in os.listdir(folder) if name.startswith("iteration_")]
    assert step != "iteration_99"


def test_a_checkpoint_waits_for_the_dumps_of_the_steps_before_it(place, monkeypatch):
    """With a disk that is slower than the training: what a resumed run does not repeat is on the disk."""
    monkeypatch.setattr(files, "before_operation", SlowDisk())
    save, missing = state.save, []

    def checked(folder, *rest):
        found = steps(place / "r/dump")
        missing.extend(step for step in range(len(list(folder.parent.iterdir())) + 1) if len(found.get(step, [])) < 10)
        save(folder, *rest)

    monkeypatch.setattr(state, "save", checked)
    run("r", "dump=async", "dump.iteration=all", "checkpoint.every_steps=1")
    assert not missing


# Sweeps

SWEEP = ("dump=async", "profiling=trace", "profiling.result_path=given", "dump.path=$PLACE/d")


def swept(place: Path, name: str, *words: str, launcher: str = "basic"):
    lines = [word.replace("$PLACE", str(place)) for word in (*TINY, *words, "seed=1,2,3")]
    return sweep.start(CommandLine((*lines, f"hydra/launcher={launcher}", f"hydra.sweep.dir={name}")))


@pytest.mark.parametrize("launcher", ["basic", "pool"])
def test_jobs_of_a_sweep_have_subdirectories(place, capsys, launcher):
    swept(place, "s", *SWEEP, launcher=launcher)
    for folder in ("d", "given"):
        assert sorted(os.listdir(place / folder)) == [OWNER, "0", "1", "2"]
        assert json.loads((place / folder / OWNER).read_text())["run"] == str(place / "s")
    for k in range(3):
        assert json.loads((place / f"d/{k}" / OWNER).read_text())["run"] == str(place / f"s/{k}")
        assert {"0", ".metadata"} < set(os.listdir(place / f"d/{k}"))
        assert "cpu_op_detail_info_0.csv" in os.listdir(place / f"given/{k}")
    run("alone", "dump=async", "seed=2")
    assert run_command("compare", ["s/1", "alone", "--rtol", "0", "--atol", "0"]) == 0
    assert run_command("compare", ["s/0", "alone"]) == 6
    before = contents(place / "d", place / "given")
    with pytest.raises(BusyError) as caught:
        swept(place, "again", *SWEEP, launcher=launcher)
    assert caught.value.rows["owner"].startswith(f"sweep {place}/s (started ")
    with pytest.raises(BusyError):
        run("other", "dump=sync", f"dump.path={place}/d")
    with pytest.raises(BusyError):
        run("other", "dump=sync", f"dump.path={place}/d/1")
    assert not (place / "again").exists()
    assert contents(place / "d", place / "given") == before


def test_jobs_that_share_a_file_of_mindspore(place):
    dump_file(place)
    swept(place, "s", "dump.config=data_dump.json")
    assert sorted(os.listdir(place / "given")) == [OWNER, "0", "1", "2"]
    assert names(place / "given/0") == names(place / "given/1")


def test_a_job_is_resumed_in_its_subdirectory(place):
    swept(place, "s", *SWEEP, "checkpoint.every_steps=1", "dump.iteration=all", "max_steps=2")
    before = names(place / "d/1")
    resume("s/1", ["max_steps=3"])
    assert sorted(os.listdir(place / "d")) == [OWNER, "0", "1", "2"]
    assert set(steps(place / "d/1")) == {0, 1, 2}
    assert before < names(place / "d/1")


# A start that fails before the first step.


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_failed_start_leaves_no_claim(mode, place):
    """The repaired command has the same directories."""
    (place / "profile").mkdir()
    outside = (f"dump.path={place}/dump", f"save_graphs_path={place}/graphs", f"profiling.result_path={place}/profile")
    words = ("dump=sync", "save_graphs=true", "profiling=trace", *outside, f"mode={mode}")
    for _ in range(2):
        with pytest.raises(DataError, match="a data file is missing"):
            run("first", *words, "dataset=mnist", f"dataset.data_dir={place}/none", "~dataset.num_samples")
        assert not [path for name in ("dump", "graphs", "profile") for path in (place / name).rglob("*")]
        assert json.loads((place / "first" / STATUS).read_text())["status"] == "failed"
    run("first", *words)
    assert json.loads((place / "first" / STATUS).read_text())["status"] == "ok"
    assert json.loads((place / "dump" / OWNER).read_text())["run"] == str(place / "first")


def test_a_run_that_has_begun_is_not_replaced(place):
    """Nor one with files of someone else."""
    with pytest.raises(TrainingError):
        run("first", "optimizer.learning_rate=1e30", "callbacks=default")
    with pytest.raises(BusyError, match="the run directory is not empty"):
        run("first")
    with pytest.raises(DataError):
        run("second", "dataset=mnist", f"dataset.data_dir={place}/none", "~dataset.num_samples")
    (place / "second" / "notes.md").write_text("mine")
    with pytest.raises(BusyError, match="the run directory is not empty"):
        run("second")
    assert (place / "second" / "notes.md").read_text() == "mine"

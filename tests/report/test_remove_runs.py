"""`runner rm`: only what runner made, nothing that runs, nothing that others need, all of it or nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import wait_until
from processes import ended, kill_group, started
from run_folders import NO_PROCESS, leave, varied
from sweep_runs import TINY, swept
from tables import table

from runner import cli
from runner.experiment.sweep import journal
from runner.host import files
from runner.rundir import OWNER, run_directories

REAL = ("dataset=synthetic", "dataset.num_samples=64", "callbacks=quiet", "max_steps=2", "eval.every=never")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(capsys):
    def called(*words: object) -> tuple[int, str]:
        code = cli.main([*map(str, words)])
        return code, "".join(capsys.readouterr())

    return called


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Names, and contents of files, below a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def test_a_run_is_removed_with_its_bytes(place, call):
    run = leave(place / "outputs/2026-01-02/a")
    other = leave(place / "outputs/2026-01-02/b")
    count = sum(path.is_file() for path in run.rglob("*"))
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    text = f"outputs/2026-01-02/a: ok, {count} files, {size:,} bytes\n"
    before = snapshot(place)
    assert call("rm", "outputs/2026-01-02/a", "--dry-run") == (0, f"would remove {text}")
    assert snapshot(place) == before
    assert call("rm", "outputs/2026-01-02/a") == (0, f"removed {text}")
    assert os.listdir(run.parent) == ["b"]
    assert [*run_directories(place)] == [other]
    code, out = call("rm", "outputs/2026-01-02/a")
    assert (code, out.splitlines()[0]) == (2, "ConfigError: the run does not exist")


def test_several_are_removed_or_none(place, call):
    for name in "ab":
        leave(place / "outputs" / name)
    before = snapshot(place)
    code, out = call("rm", "outputs/a", "outputs/none", "outputs/b")
    assert (code, snapshot(place)) == (2, before)
    leave(place / "outputs" / "c", state="running")
    before = snapshot(place)
    code, out = call("rm", "outputs/a", "outputs/c")
    assert (code, snapshot(place)) == (4, before)
    assert "the run is running" in out
    code, out = call("rm", "outputs/a", "outputs/b", "outputs/../outputs/a/", "outputs/b/")
    assert (code, out.count("\nremoved ")) == (0, 2)
    assert "removed 2 directories: " in out
    assert os.listdir(place / "outputs") == ["c"]


def test_real_runs_of_every_kind_have_nothing_of_others(place, call):
    """A list of known names that lacks one would refuse what runner itself has written."""
    words = ("mode=graph", "save_graphs=true", "dump=async", "profiling=trace", "session.enable_exception_dump=1")
    assert cli.main([*REAL, *words, "hydra.run.dir=a", "hydra.output_subdir=records"]) == 0
    assert cli.main([*REAL[:-1], "hydra.run.dir=b"]) == 0
    assert cli.main(["eval", "b", "hydra.run.dir=c"]) == 0
    assert cli.main(["report", "b"]) == 0
    swept(place / "s", *TINY, "seed=1,2")
    assert cli.main(["report", "s"]) == 0
    call("ls")  # reads what the others printed
    for name in ("a", "c", "b", "s"):
        code, out = call("rm", name)
        assert code == 0, out
        assert out.startswith(f"removed {name}: {'sweep of 2 runs' if name == 's' else 'ok'}, ")
    assert os.listdir(place) == []


@table(
    ("name", "said"),
    [
        ("other", "not a directory of a run or of a sweep"),
        ("outputs", "not a directory of a run or of a sweep"),
        ("app", "not a directory of a run or of a sweep"),
        ("file", "the run does not exist"),
        ("link", "a link is not the directory of a run"),
        ("link/", "a link is not the directory of a run"),
        (".", "the current directory is in the directory of the run"),
        ("..", "not a directory of a run or of a sweep"),
        ("linked_lock", "a run directory whose lock is a link"),
    ],
)
def test_what_is_not_removed(tmp_path_factory, monkeypatch, call, name, said):
    here = leave(tmp_path_factory.mktemp("above") / "run")
    monkeypatch.chdir(here)
    leave(here / "outputs" / "r")
    (here / "other").mkdir()
    (here / "other" / "status.json").write_text('{"status": "green"}')
    (here / "app" / ".hydra").mkdir(parents=True)  # of another program with Hydra
    (here / "app" / ".hydra" / "config.yaml").write_text("db: mysql\n")
    (here / "file").write_text("x")
    (here / "link").symlink_to("outputs/r")
    leave(here / "linked_lock")
    (here / "linked_lock" / ".lock").symlink_to(here / "nowhere")
    before = snapshot(here)
    for flags in ([], ["--force"]):
        code, out = call("rm", *flags, name)
        assert code == 2
        assert out.startswith(f"ConfigError: {said}\n")
        assert snapshot(here) == before


def test_damaged_and_unfinished_runs_are_removed(place, call):
    damaged = leave(place / "outputs" / "damaged", config=varied() | {"runner": {"debug": False}})
    (damaged / "status.json").write_text("{")
    (damaged / "metrics.jsonl").unlink()
    os.mkfifo(damaged / "metrics.jsonl")
    (place / "outputs" / "claimed" / ".hydra").mkdir(parents=True)  # killed at once
    begun = place / "outputs" / "begun" / ".hydra"
    begun.mkdir(parents=True)
    (begun / "config.yaml").write_text("mode: graph\nrunner:\n  debug: false\n")
    leave(place / "outputs" / "killed", state="running", pid=NO_PROCESS)
    names = sorted(os.listdir(place / "outputs"))
    for name, state in zip(names, ("broken", "broken", "broken", "killed"), strict=True):
        code, out = call("rm", f"outputs/{name}")
        assert code == 0, out
        assert f"outputs/{name}: {state}, " in out
    assert os.listdir(place / "outputs") == []


def test_files_of_others_stay_unless_forced(place, call):
    run = leave(place / "outputs" / "r")
    (run / "notes.txt").write_text("mine")
    code, out = call("rm", "outputs/r")
    assert (code, (run / "notes.txt").read_text()) == (2, "mine")
    assert "the directory has files that runner did not write\n  path   outputs/r\n  files  notes.txt\n" in out
    assert call("rm", "outputs/r", "--force")[0] == 0
    assert not run.exists()


def test_files_of_others_stay_at_every_level(place, call):
    """By name, by content, and as links; what killed processes have left is not of others."""
    words = ("mode=graph", "save_graphs=true", "dump=async", "profiling=trace", "session.op_debug_level=3")
    assert cli.main([*REAL, *words, "tracking=tensorboard", "hydra.run.dir=r"]) == 0
    left = Path("r/checkpoints/.CKP-1_2.0123456789ab.old")
    left.mkdir()
    (left / "state.safetensors").write_text("x")
    Path("r/.status.json.0123456789ab.tmp").write_text("x")
    folders = [path for path in sorted(Path("r").rglob("*")) if path.is_dir() and left not in (path, *path.parents)]
    assert len(folders) > 15
    for folder in (Path("r"), *folders):
        for name in ("notes.md", "best.onnx", ".draft.tmp", "results.json"):
            (folder / name).write_text("mine")
            code, out = call("rm", "r")
            assert (code, (folder / name).read_text()) == (2, "mine")
            assert f"files  {(folder / name).relative_to('r')}\n" in out
            (folder / name).unlink()
        (folder / "link").symlink_to(place)
        assert call("rm", "r")[0] == 2
        (folder / "link").unlink()
    for name in ("eval/paper/thesis.tex", "model/old/network.onnx", "checkpoints/mine/state.safetensors"):
        Path("r", name).parent.mkdir(parents=True)
        Path("r", name).write_text("mine")
        code, out = call("rm", "r")
        assert code == 2
        assert f"files  {os.path.dirname(name)}\n" in out
        shutil.rmtree(Path("r", name).parent)
    code, out = call("rm", "r")
    assert code == 0, out


def test_an_edited_copy_of_code_is_of_the_user(place, call):
    run = leave(place / "r")
    (run / "code" / "pears").mkdir(parents=True)
    (run / "code" / "pears" / "net.py").write_text("x = 1\n")
    hashes = {"pears/net.py": files.sha256(run / "code" / "pears" / "net.py")}
    (run / "manifest.json").write_text(json.dumps({"code_sha256": hashes}))
    assert call("rm", "r", "--dry-run")[0] == 0
    (run / "code" / "pears" / "net.py").write_text("x = 2\n")
    code, out = call("rm", "r")
    assert code == 2
    assert "files  code/pears/net.py\n" in out


def test_a_status_alone_does_not_make_a_run(place, call):
    (place / "mine").mkdir()
    (place / "mine" / "status.json").write_text('{"status": "ok", "started": "2026-01-02", "pid": 1}')
    for flags in ((), ("--force",)):
        assert call("rm", "mine", *flags)[0] == 2
    assert (place / "mine" / "status.json").exists()


def test_a_run_that_is_inside_another_one_is_protected_too(place, call):
    run = leave(place / "outputs" / "r")
    leave(run / "again" / "inner", state="running")
    assert call("rm", "outputs/r", "--force")[0] == 4
    (run / "again" / "inner" / "status.json").unlink()
    assert call("rm", "outputs/r")[0] == 2
    assert call("rm", "outputs/r", "--force")[0] == 0


def test_the_run_of_another_machine(place, call):
    run = leave(place / "outputs" / "r", state="running", host="elsewhere")
    code, out = call("rm", "outputs/r")
    assert (code, run.exists()) == (4, True)
    assert "the run may be running on another machine" in out
    assert "elsewhere" in out
    assert call("rm", "outputs/r", "--force")[0] == 0


def test_the_lock_of_a_run_protects_it(place, call):
    run = leave(place / "outputs" / "r")
    with files.locked(run / ".lock"):
        code, out = call("rm", "outputs/r", "--force")
        assert (code, run.exists()) == (4, True)
        assert "another process is using this directory" in out
    assert call("rm", "outputs/r")[0] == 0


def test_what_another_run_began_with_stays(place, call):
    base = leave(place / "outputs" / "base")
    load = {"checkpoint": {"load": "outputs/base/checkpoints/CKP-1_2", "prefix": "CKP"}}
    tuned = leave(place / "outputs" / "tuned", config=varied() | load)
    code, out = call("rm", "outputs/base")
    assert (code, base.exists()) == (4, True)
    assert "another run has files of this one in its config" in out
    assert "needed by  outputs/tuned (checkpoint.load)" in out
    assert call("rm", "outputs/base", "outputs/tuned", "--dry-run")[0] == 0
    evaluated = varied(session={"graph_run_mode": 0}) | {"checkpoint": {"load": str(base / "checkpoints/CKP-1_2")}}
    (tuned / "config.json").write_text(json.dumps(evaluated))  # which has ended
    assert call("rm", "outputs/base", "--dry-run")[0] == 0
    (tuned / "status.json").write_text(json.dumps({"status": "interrupted", "started": ""}))
    assert call("rm", "outputs/base")[0] == 4
    assert call("rm", "outputs/base", "--force")[0] == 0
    assert not base.exists()


@table(
    ("value", "code"),
    [
        ("outputs/base/model/network.onnx", 4),
        ("outputs/tuned/../base/model/network.onnx", 4),
        ("linked/model/network.onnx", 4),
        ("outputs/base2/network.onnx", 0),
        ("base", 0),
        ("a/\0", 0),
        ("a/" * 3000, 0),
        (["outputs/base"], 0),
        (None, 0),
    ],
)
def test_any_path_in_a_config_counts(tmp_path_factory, monkeypatch, call, value, code):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    leave(Path("outputs/base"))
    Path("linked").symlink_to("outputs/base")
    leave(Path("outputs/tuned"), config=varied(network__path=value))
    assert call("rm", "outputs/base", "--dry-run")[0] == code


def test_a_run_beside_it_needs_it_wherever_that_is(place, call):
    leave(place / "elsewhere" / "base")
    load = {"checkpoint": {"load": str(place / "elsewhere" / "base")}}
    leave(place / "elsewhere" / "tuned", config=varied() | load)
    assert call("rm", "elsewhere/base")[0] == 4
    assert call("rm", "elsewhere/tuned")[0] == 0
    assert call("rm", "elsewhere/base")[0] == 0


def leave_sweep(folder: Path) -> Path:
    """A sweep of two jobs that have ended."""
    for number in "01":
        leave(folder / number)
    (folder / "multirun.yaml").write_text("")
    call = {"overrides": ["seed=1,2"], "config_dir": None}
    journal.append(folder, "sweep", version=1, call=call, config={}, config_sha256="ab", threads=1)
    return folder


def test_a_job_is_removed_with_its_sweep(place, call):
    sweep = leave_sweep(place / "multirun" / "s")
    code, out = call("rm", "multirun/s/0")
    assert (code, (sweep / "0").exists()) == (4, True)
    assert "the run is a job of a sweep" in out
    assert "runner rm multirun/s removes the sweep" in out
    assert call("rm", "multirun/s/0", "--force")[0] == 0
    assert not (sweep / "0").exists()
    (sweep / "mine").mkdir()
    assert call("rm", "multirun/s")[0] == 2
    (sweep / "mine").rmdir()
    code, out = call("rm", "multirun/s", "multirun/s/1")
    assert code == 0
    assert out.startswith("removed multirun/s: sweep of 1 runs, ")
    assert os.listdir(place / "multirun") == []


def test_folders_of_jobs_have_nothing_of_others(place, call):
    sweep = leave_sweep(place / "s")
    (sweep / "adam").mkdir()
    for number in "01":
        (sweep / number).rename(sweep / "adam" / number)
    (sweep / "adam" / "notes.txt").write_text("mine")
    (sweep / "adam" / "0" / "code").mkdir()
    (sweep / "adam" / "0" / "code" / "status.json").write_text('{"colour": "green"}')  # of the user's package
    code, out = call("rm", "s")
    assert code == 2
    assert "  files  adam/notes.txt\n" in out
    (sweep / "adam" / "notes.txt").unlink()
    code, out = call("rm", "s")
    assert (code, os.listdir(place)) == (0, [])
    assert out.startswith("removed s: sweep of 2 runs, ")


def test_a_sweep_that_works_stays(place, call):
    sweep = leave_sweep(place / "multirun" / "s")
    with files.locked(sweep / ".lock"):
        assert call("rm", "multirun/s")[0] == 4
    status = json.loads((sweep / "1" / "status.json").read_text())
    (sweep / "1" / "status.json").write_text(json.dumps(status | {"status": "running"}))
    code, out = call("rm", "multirun/s", "--force")
    assert (code, sweep.exists()) == (4, True)
    assert "multirun/s/1" in out
    (sweep / "1" / "status.json").unlink()
    (sweep / "sweep.jsonl").write_text("{")  # damaged
    assert call("rm", "multirun/s")[0] == 0
    assert not sweep.exists()


def test_directories_outside_of_the_run_are_named_and_stay(place, call):
    run = leave(place / "outputs" / "r")
    (place / "dumps").mkdir()
    (place / "dumps" / "0").write_text("x")
    record = {"id": "0123", "directories": {str(place / "dumps"): str(place / "dumps")}}
    (run / OWNER).write_text(json.dumps(record))
    code, out = call("rm", "outputs/r")
    assert code == 0
    assert f"  not removed: {place / 'dumps'}, which the run filled\n" in out
    assert (place / "dumps" / "0").read_text() == "x"


def test_a_run_that_is_running_stays_until_it_has_ended(place):
    long = ("epochs=100000", "hydra.run.dir=r", "dataset=synthetic", "callbacks=quiet", "mode=pynative")
    process = started(long, place)
    try:
        wait_until((place / "r" / "metrics.jsonl").exists, lambda: process.poll() is None)
        code, _, err = ended(started(("rm", "r", "--force"), place))
        assert (code, (place / "r" / "status.json").exists()) == (4, True)
        assert "the run is running" in err
    finally:
        kill_group(process)
    assert ended(started(("rm", "r"), place))[0] == 0
    assert os.listdir(place) == []


def test_two_removals_at_once(place):
    for number in range(20):
        leave(place / "outputs" / str(number))
    words = ("rm", *(f"outputs/{number}" for number in range(20)))
    outcomes = [ended(process) for process in [started(words, place) for _ in range(3)]]
    assert 0 in [code for code, _, _ in outcomes]
    assert {code for code, _, _ in outcomes} <= {0, 2, 4}, outcomes  # it came too late, or met the other one
    assert os.listdir(place / "outputs") == []


def test_a_removal_that_is_killed_leaves_nothing_half(place, monkeypatch):
    """The process ends at each of its operations: the run is whole or gone, and the next removal takes the rest."""
    script = (
        "import os, sys\n"
        "from runner import cli\n"
        "from runner.host import files\n"
        "left = int(sys.argv[1])\n"
        "def before(operation, path):\n"
        "    global left\n"
        "    left -= 1\n"
        "    if left < 0: os.kill(os.getpid(), 9)\n"
        "files.before_operation = before\n"
        "sys.exit(cli.main(['rm', 'outputs/r']))\n"
    )
    whole = snapshot(leave(place / "whole"))
    for number in (0, 1, 2, 3, 5, 8, 10):
        shutil.rmtree(place / "outputs", ignore_errors=True)
        leave(place / "outputs" / "r")
        leave(place / "outputs" / "s")
        done = subprocess.run([sys.executable, "-c", script, str(number)], capture_output=True, check=False)
        assert done.returncode == -9
        runs = [path.name for path in run_directories(place / "outputs")]
        assert sorted(runs) in (["r", "s"], ["s"])
        if "r" in runs:
            assert [*map(os.path.basename, snapshot(place / "outputs/r"))][-1] == [*map(os.path.basename, whole)][-1]
        if "r" not in runs:
            assert (
                cli.main(["rm", "outputs/r", "--dry-run"]) == cli.main(["rm", "outputs/r"]) == 0
            )  # it was not finished
            assert os.listdir(place / "outputs") == ["s"]
        assert cli.main(["rm", "outputs/s"]) == 0
        assert os.listdir(place / "outputs") == (["r"] if "r" in runs else [])

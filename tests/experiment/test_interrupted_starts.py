"""A start that ends before the run is recorded, in whatever way, does not block its directory, nor promise a resume."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import NO_PROCESS
from soak import thinned

from runner import cli, rundir
from runner.errors import BusyError
from runner.host import files
from runner.host.process import own_identity

TINY = ("dataset=synthetic", "dataset.num_samples=32", "max_steps=1", "callbacks=quiet", "eval.every=end")
TRAIN = (*TINY, "hydra.run.dir=r")
EVAL = ("eval", "base", "hydra.run.dir=r")
ENDS = {"kill": (-signal.SIGKILL, "os.kill(os.getpid(), 9)"), "signal": (143, "os.kill(os.getpid(), 15)")}
ENDS["full disk"] = (5, 'raise OSError(28, "full")')  # no other operation succeeds
DIES = """\
import os, sys
from runner import cli
from runner.host import files
from runner.host.process import own_identity
left = int(sys.argv[1])
def before(operation, path):
    global left
    left -= 1
    if left < 0: {end}
files.before_operation = before
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def operations_of_a_start(words, monkeypatch) -> int:
    """How many operations a command makes until its config is recorded."""
    seen = []
    with monkeypatch.context() as patched:
        patched.setattr(files, "before_operation", lambda operation, path: seen.append((operation, Path(path).name)))
        assert cli.main([*words]) == 0
    assert cli.main(["rm", "r"]) == 0
    return seen.index(("rename", "config.json")) + 1


@pytest.mark.parametrize("words", [TRAIN, EVAL], ids=["train", "eval"])
@pytest.mark.parametrize("end", ENDS)
def test_the_repeated_command_has_the_directory(words, end, monkeypatch, capfd):
    if words == EVAL:
        assert cli.main([*TINY, "hydra.run.dir=base"]) == 0
    script = DIES.format(end=ENDS[end][1])
    for number in thinned(range(operations_of_a_start(words, monkeypatch)), 5):
        for repeat in (words, ("rm", "r")):
            command = [sys.executable, "-c", script, str(number), *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found = os.listdir("r") if Path("r").exists() else None
            assert done.returncode == ENDS[end][0], (number, found, done.stderr)
            assert "resume" not in done.stderr or rundir.can_be_resumed(Path("r")), (number, found, done.stderr)
            if repeat[0] == "rm" and not found:
                continue  # nothing says whose it is
            assert cli.main([*repeat]) == 0, (number, repeat, found, capfd.readouterr().err)
            assert Path("r/summary.json").exists() == (repeat == words)
            if repeat == words:
                assert cli.main(["rm", "r"]) == 0


def test_what_a_start_does_not_replace(place):
    """A run that can be resumed, a claim whose process is alive, and what other programs have."""
    status = {"status": "running", "pid": NO_PROCESS, "started": ""}
    for name, content in {
        "killed": {"status.json": json.dumps(status), "config.json": "{}"},
        "hydra": {".hydra/config.yaml": "db: mysql\n"},
        "lock": {".lock": "of another program"},
        "code": {"code/mine.py": ""},
    }.items():
        for file, text in content.items():
            (place / name / file).parent.mkdir(parents=True, exist_ok=True)
            (place / name / file).write_text(text)
        with pytest.raises(BusyError, match="the run directory is not empty"):
            rundir.claim_run(place / name, given=True)
        assert {file: (place / name / file).read_text() for file in content} == content
    (place / "alive" / ".hydra").mkdir(parents=True)
    with files.locked(place / "alive" / ".lock"), pytest.raises(BusyError, match="another process is using"):
        rundir.claim_run(place / "alive", given=True)


def test_no_resume_is_promised_while_a_process_has_the_directory(place):
    (place / "r").mkdir()
    for name in ("status.json", ".lock"):
        (place / "r" / name).write_text(json.dumps({"status": "running", "started": "", **own_identity()}))
    (place / "r/config.json").write_text("{}")
    with pytest.raises(BusyError, match="the run directory is not empty") as caught:
        rundir.claim_run(place / "r", given=True)
    assert caught.value.rows["hint"] == "another directory: a process is using this one"


COMMANDS = {
    "report": (("report", "base"), "base"),
    "golden": (("golden", "--update", "golden.json", "base"), "."),
    "export": (("export", "base", "--to", "exported"), "."),
    "new": (("new", "pears"), "pears"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_repeated_command_removes_what_a_killed_one_has_left(name, monkeypatch, capfd):
    words, folder = COMMANDS[name]
    assert cli.main([*TINY, "mode=graph", "hydra.run.dir=base"]) == 0
    seen = []
    with monkeypatch.context() as patched:
        patched.setattr(files, "before_operation", lambda operation, path: seen.append(operation))
        assert cli.main([*words]) == 0
    script, left = DIES.format(end=ENDS["kill"][1]), 0
    for number in thinned(range(len(seen)), 1 + len(seen) // 4):
        if name == "new":
            files.remove(Path("pears"))
        command = [sys.executable, "-c", script, str(number), *words]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
        left += sum(files.is_temporary(path.name) for path in Path(folder).rglob("*"))
        if name != "new" or not Path("pears/pyproject.toml").exists():
            assert cli.main([*words]) == 0
            assert [path for path in Path().rglob("*") if files.is_temporary(path.name)] == []
    assert left or name == "new"

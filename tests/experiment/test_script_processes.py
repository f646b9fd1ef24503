"""Scripts with a run directory, as processes: killed, interrupted, failing, resumed, two at once."""

import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import recorded_script
from patience import PATIENCE, wait_until
from soak import SOAK, thinned

from runner.host import files
from runner.report.record import RunRecord

ROOT = Path(__file__).parents[2]
OF_THE_PROCESS = (
    *("init_seconds", "compile_seconds", "first_loss_seconds", "train_seconds", "steps_per_second", "peak_rss_mb"),
    *("run_dir", "host_interactions"),
)
KINDS = [("pynative", "off"), ("pynative", "4"), ("graph", "off"), ("graph", "-1"), ("graph", "4")]
EVERY = 1 if SOAK else 19


class Dead(BaseException):
    """The process is gone: nothing may be written any more."""


def traces(folder: Path) -> dict[str, object]:
    """What must not depend on where a run was killed: every file, and the summary without times."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith((".lock", "status.json", "manifest.json", "script.json")):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    summary = json.loads((folder / "summary.json").read_text())
    found["summary.json"] = {key: value for key, value in summary.items() if key not in OF_THE_PROCESS}
    return found


def status_of(folder: Path) -> dict:
    return json.loads((folder / "status.json").read_text())


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with the script, which is the working directory."""
    shutil.copy(recorded_script.__file__, tmp_path / "train.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def start(*words: str, **environment: str) -> subprocess.Popen:
    command = [sys.executable, *words]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def script(*words: str, **environment: str) -> tuple[int, str, str]:
    return ended(start("train.py", *words, **environment))


def resume(folder: str, *words: str) -> tuple[int, str, str]:
    return ended(start("-m", "runner", "resume", folder, *words))


@pytest.mark.parametrize(("mode", "sink"), [*thinned(KINDS, every=2)])
def test_a_script_that_is_killed_and_resumed_ends_with_the_same_bytes(place, mode, sink):
    """By SIGKILL in the middle, then continued by `runner resume`, killed again, then by starting it once more."""
    assert script(mode, sink, "4", "whole")[0] == 0
    assert script(mode, sink, "4", "part", KILL="7")[0] == -signal.SIGKILL
    assert RunRecord(place / "part").state == "killed"
    assert resume("part")[0] == 0
    assert traces(place / "part") == traces(place / "whole")
    made, rest = (RunRecord(place / name).summary["host_interactions"] for name in ("whole", "part"))
    assert rest < made or sink == "-1"  # a sink is left at the steps of checkpoints
    assert script(mode, sink, "4", "again", KILL="5")[0] == -signal.SIGKILL
    assert script(mode, sink, "4", "again", KILL="11")[0] == -signal.SIGKILL
    code, out, _ = script(mode, sink, "4", "again")
    assert code == 0
    assert "accuracy" in out
    assert traces(place / "again") == traces(place / "whole")


@pytest.mark.parametrize(("mode", "sink"), [*thinned(KINDS, every=2)])
def test_a_script_that_dies_at_any_file_operation_ends_with_the_same_bytes(tmp_path, monkeypatch, mode, sink):
    run = lambda folder: recorded_script.main(mode, sink, 3, folder)  # noqa: E731
    run(tmp_path / "whole")
    expected = traces(tmp_path / "whole")
    resumed = 0
    for number in itertools.count(1, EVERY):
        folder, count = tmp_path / str(number), itertools.count(1)

        def before(operation: str, path: Path, number=number, count=count) -> None:
            if next(count) >= number:
                raise Dead

        with monkeypatch.context() as patch:
            patch.setattr(files, "before_operation", before)
            try:
                run(folder)
            except Dead:
                pass
            else:
                break
        if not (folder / "status.json").exists() or status_of(folder)["status"] != "ok":
            run(folder)
            resumed += 1
        assert traces(folder) == expected, f"died at operation {number}"
    assert resumed > 50 // EVERY


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_a_checkpoint(place, number, code):
    """The checkpoint of step 4, where none is due, is one of the run; then the run continues to the same results."""
    process = start("train.py", "pynative", "off", "3", "part", STOP="4")
    assert process.stdout.readline() == "waiting\n"
    busy, _, block = script("pynative", "off", "3", "part")
    assert (busy, "another process is using this directory" in block) == (4, True)
    process.send_signal(number)
    found, _, err = ended(process)
    assert found == code
    assert err.splitlines()[-1].endswith("; runner resume part continues the run")
    assert "Traceback" not in err
    assert (status_of(place / "part")["status"], status_of(place / "part")["exit_code"]) == ("interrupted", code)
    assert (place / "part/checkpoints/CKP-1_4").is_dir()
    assert resume("part")[0] == 0
    assert script("pynative", "off", "3", "whole")[0] == 0
    for name in ("metrics.jsonl", "checkpoints/CKP-3_5/state.safetensors", "model/network.onnx"):
        assert (place / "part" / name).read_bytes() == (place / "whole" / name).read_bytes()


def test_an_exception_of_the_script_is_its_own(place):
    code, _, err = script("graph", "off", "3", "run", FAIL="5")
    assert code == 1
    assert err.splitlines()[-1] == "ZeroDivisionError: the script is wrong"
    assert err.startswith("Traceback")
    status = status_of(place / "run")
    assert (status["status"], status["exit_code"]) == ("failed", 1)
    first, second = status["error"].splitlines()
    assert first == "ZeroDivisionError: the script is wrong"
    assert second.startswith(f"  at: {place / 'train.py'}:")
    assert script("graph", "off", "3", "run")[0] == 0  # the same script, which does not fail now, continues
    assert status_of(place / "run")["status"] == "ok"


def test_a_finished_run_is_continued_on_request_only(place):
    assert script("pynative", "off", "2", "part")[0] == 0
    before = traces(place / "part")
    code, _, err = script("pynative", "off", "4", "part")
    assert code == 4
    assert "resume=True" in err
    assert traces(place / "part") == before
    assert resume("part")[0] == 2
    assert script("pynative", "off", "4", "part", RESUME="1")[0] == 0
    assert script("pynative", "off", "4", "whole")[0] == 0
    for name in ("checkpoints/CKP-4_5/state.safetensors", "model/network.onnx"):
        assert (place / "part" / name).read_bytes() == (place / "whole" / name).read_bytes()


def test_a_changed_script_does_not_continue(place):
    assert script("pynative", "off", "2", "run", KILL="4")[0] == -signal.SIGKILL
    with (place / "train.py").open("a") as file:
        file.write("# another line\n")
    before = (place / "run/metrics.jsonl").read_bytes()
    code, _, err = script("pynative", "off", "2", "run")
    assert (code, "script.sha256  was" in err) == (2, True)
    code, _, err = resume("run")
    assert (code, "the script of the run has changed" in err, "--force" in err) == (2, True, True)
    assert (place / "run/metrics.jsonl").read_bytes() == before
    assert resume("run", "--force")[0] == 0
    assert status_of(place / "run")["status"] == "ok"
    assert (place / "run/code/train.py").read_text().endswith("# another line\n")


def test_a_changed_module_of_a_script_does_not_continue(place):
    """What the script imports from its folder is code of the run, too; started by `python -m`."""
    (place / "package").mkdir()
    (place / "train.py").rename(place / "package/network.py")
    (place / "package/__init__.py").write_text("")
    (place / "package/start.py").write_text(
        "from package import network\nprint(network.main('pynative', 'off', 3, 'run'))\n"
    )
    assert ended(start("-m", "package.start", KILL="7"))[0] == -signal.SIGKILL
    with (place / "package/network.py").open("a") as file:
        file.write("# another line\n")
    code, _, err = resume("run")
    assert (code, "code.network.py  was" in err) == (2, True)
    assert RunRecord(place / "run").state == "killed"
    assert resume("run", "--force")[0] == 0
    manifest = json.loads((place / "run/manifest.json").read_text())
    assert set(manifest["code_sha256"]) == {"__init__.py", "network.py", "start.py"}


def test_the_directory_is_deleted_while_the_script_runs(place):
    process = start("train.py", "pynative", "off", "3", "run", STOP="2")
    assert process.stdout.readline() == "waiting\n"
    shutil.rmtree(place / "run")
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)
    assert code == 5
    assert "StorageError" in err


def test_the_console_is_closed_while_the_script_runs(place):
    process = start("train.py", "pynative", "off", "2", "run", STOP="2")
    assert process.stdout.readline() == "waiting\n"
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGCONT)  # wakes nothing: the script still waits
    os.kill(process.pid, signal.SIGTERM)
    wait_until(lambda: process.poll() is not None)
    assert status_of(place / "run")["status"] == "interrupted"
    assert (place / "run/checkpoints/CKP-1_2").is_dir()


def test_the_commands_read_a_run_of_a_script(place):
    assert script("graph", "-1", "2", "outputs/a")[0] == 0
    assert script("pynative", "off", "2", "outputs/b")[0] == 0
    command = lambda *words: ended(start("-m", "runner", *words))  # noqa: E731
    code, out, _ = command("ls")
    rows = [line.split() for line in out.splitlines() if "outputs/" in line]
    assert (code, sorted(row[2:6] for row in rows)) == (
        0,
        [["ok", "train", "graph", "CPU"], ["ok", "train", "pynative", "CPU"]],
    )
    assert command("report", "outputs/a")[0] == 0
    page = (place / "outputs/a/report.html").read_text()
    assert "python train.py graph -1 2 outputs/a" in page
    assert "rate" in page
    assert command("compare", "outputs/a", "outputs/a")[0] == 0
    assert command("compare", "outputs/a", "outputs/b", "--rtol", "0.01")[0] == 0  # a sink has all losses
    assert command("golden", "--update", "golden.json", "outputs/b")[0] == 0
    assert script("pynative", "off", "2", "outputs/c")[0] == 0
    code, out, _ = command("golden", "--check", "golden.json", "outputs/c")
    assert (code, "unchanged, bit for bit" in out) == (0, True)
    assert command("golden", "--check", "golden.json", "outputs/a")[0] == 6

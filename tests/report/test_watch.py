"""`runner watch`: what it prints of a run that goes on, and how it ends with it."""

import json
import signal
from pathlib import Path

import pytest
from patience import wait_until
from processes import kill_group, started
from run_folders import NO_PROCESS, leave, rows_of, varied
from tables import table
from terminals import on_terminal

from runner import cli
from runner.report import watch
from runner.report.record import MetricsTail
from runner.report.watch import Progress

LONG = ("epochs=100000", "hydra.run.dir=r", "dataset=synthetic", "dataset.num_samples=64", "callbacks=quiet")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def set_status(folder: Path, **values: object) -> None:
    known = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(known | values))


def append(folder: Path, *rows: dict, text: str = "") -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows) + text)


def step(epoch: int, number: int, loss: float) -> dict:
    return {"event": "step", "epoch": epoch, "step": number, "global_step": number, "loss": loss}


@table(
    ("status", "code", "lines"),
    [
        ({}, 0, ["ok: r at step 2, exit code 0"]),
        (
            {"status": "failed", "exit_code": 6, "error": "MismatchError: not met\n  accuracy  0.1"},
            6,
            ["failed: r at step 2, exit code 6", "MismatchError: not met", "  accuracy  0.1"],
        ),
        (
            {"status": "interrupted", "exit_code": 143},
            143,
            ["interrupted: r at step 2, exit code 143", "runner resume r continues it"],
        ),
        (
            {"status": "running", "pid": NO_PROCESS},
            1,
            ["killed: r at step 2, its process no longer exists", "runner resume r continues it"],
        ),
        ({"status": "failed", "exit_code": "x", "error": None}, 1, ["failed: r at step 2, exit code 1"]),
        ({"status": "failed", "exit_code": 0, "error": 3}, 1, ["failed: r at step 2, exit code 1", "3"]),
    ],
)
def test_a_run_that_has_ended(tmp_path_factory, monkeypatch, capsys, status, code, lines):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    run = leave(Path("r"), [2.0, 1.5], [(2, {"accuracy": 0.5, "confusion_matrix": [[1]]})], config=varied(epochs=1))
    set_status(run, **status)
    before = {path: path.stat() for path in run.rglob("*")}
    assert cli.main(["watch", "r"]) == code
    expected = ["epoch 1 of 1, step 2: loss 1.75", "evaluation at step 2: accuracy 0.5000", *lines]
    assert capsys.readouterr().out.splitlines() == expected
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == {p: s.st_mtime_ns for p, s in before.items()}


@table(
    ("name", "said"),
    [
        ("none", "the run does not exist"),
        ("sweep", "a sweep has several runs\n  path  sweep\n  hint  runner ls sweep lists its jobs"),
        ("folder", "not a run directory"),
        ("", "no runs here"),
    ],
)
def test_what_cannot_be_followed(tmp_path_factory, monkeypatch, capsys, name, said):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    Path("folder").mkdir()
    leave(Path("sweep/0"))
    Path("sweep/sweep.jsonl").touch()
    assert cli.main(["watch", *filter(None, [name])]) == 2
    assert capsys.readouterr().err.startswith(f"ConfigError: {said}")


def test_the_newest_run_that_is_running_is_the_default(place, capsys):
    leave(place / "outputs" / "older", state="running", started="2026-01-01", pid=NO_PROCESS)
    leave(place / "outputs" / "newer", started="2026-01-03")
    assert cli.main(["watch"]) == 0
    assert "ok: outputs/newer at step 2" in capsys.readouterr().out
    running = leave(place / "outputs" / "running", state="running", started="2026-01-02")
    assert watch._newest() == running.relative_to(place)


def test_damaged_files(place, capsys):
    run = leave(place / "r", [2.0])
    append(run, text='{"event": "eval", "global_step": 1, "accuracy": "x"}\nnot JSON\n{"event": "step"}\n{"event":')
    (run / "config.json").write_text('{"epochs": "many", "runner": 1}')
    (run / "manifest.json").write_text('{"total_steps": -3}')
    assert cli.main(["watch", "r"]) == 0
    expected = ["epoch 1, step 1: loss 2", "evaluation at step 1: no numbers", "ok: r at step 1, exit code 0"]
    assert capsys.readouterr().out.splitlines() == expected
    (run / "status.json").write_text("{")
    assert cli.main(["watch", "r"]) == 1
    assert "broken: r at step 1" in capsys.readouterr().out


def test_progress_of_a_run_that_goes_on(place):
    run = leave(place / "r", [2.0, 1.5], config=varied(epochs=3), state="running")
    (run / "manifest.json").write_text('{"total_steps": 12}')
    progress, tail = Progress(run), MetricsTail(run / "metrics.jsonl", 1 << 20)
    assert progress.read_state()
    assert progress.add(tail.new_events(), 0.0) == []  # the epoch goes on
    assert (progress.step, progress.total, progress.epoch_text, progress.rate_text) == (2, 12, "1 of 3", "")
    append(run, step(1, 3, 1.0), text='{"event": "step"')
    assert progress.add(tail.new_events(), 0.5) == []
    assert (progress.step, progress.rate_text) == (3, "2 steps/s")
    append(run, text=', "epoch": 1, "global_step": 4, "loss": 0.5}\n')
    evaluation = {"event": "eval", "epoch": 1, "global_step": 4, "accuracy": 0.25}
    append(run, evaluation, step(2, 5, 0.375), step(2, 6, 0.25))
    lines = progress.add(tail.new_events(), 1.0)
    assert lines == ["epoch 1 of 3, step 4 of 12: loss 1.25, 4 steps/s", "evaluation at step 4: accuracy 0.2500"]
    assert progress.add(tail.new_events(), 9.0) == []
    assert progress.rate_text == "4 steps/s"  # of the last steps: an evaluation makes none
    append(run, step(3, 9, 0.125))
    assert progress.add(tail.new_events(), 9.0) == ["epoch 2 of 3, step 6 of 12: loss 0.3125, 0.778 steps/s"]
    set_status(run, status="ok", exit_code=0)
    assert not progress.read_state()
    assert progress.add(tail.new_events(), 9.0) == ["epoch 3 of 3, step 9 of 12: loss 0.125, 0.778 steps/s"]


def test_a_journal_that_a_resumed_run_has_cut(place):
    run = leave(place / "r", [2.0, 1.5, 1.0], state="running")
    tail = MetricsTail(run / "metrics.jsonl", 1 << 20)
    assert [event["global_step"] for event in tail.new_events()] == [1, 2, 3]
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0])
    assert tail.new_events() == []
    append(run, step(1, 2, 0.5))
    assert [event["loss"] for event in tail.new_events()] == [0.5]
    (run / "metrics.jsonl").unlink()
    assert tail.new_events() == []


def test_of_a_long_journal_only_the_end_is_read(place):
    run = leave(place / "r", [1.0] * 1000)
    tail = MetricsTail(run / "metrics.jsonl", 500)
    events = tail.new_events()
    assert 0 < len(events) < 10
    assert events[-1]["global_step"] == 1000
    append(run, *rows_of([1.0, 2.0]))
    assert [event["loss"] for event in tail.new_events()] == [1.0, 2.0]


def read_lines(process) -> list[str]:
    return [line.rstrip("\n") for line in process.stdout]


@pytest.mark.parametrize(("number", "state"), [(signal.SIGTERM, "interrupted"), (signal.SIGKILL, "killed")])
def test_two_that_follow_a_run_end_with_it(place, number, state):
    run = started((*LONG, "mode=pynative", "eval.every=epoch"), place)
    followers = []
    try:
        wait_until((place / "r" / "metrics.jsonl").exists, lambda: run.poll() is None)
        followers = [started(("watch", *words), place) for words in (["r"], ["r/"])]
        for follower in followers:
            assert follower.stdout.readline().startswith(("epoch ", "evaluation "))  # while the run goes on
            assert follower.poll() is None
        assert run.poll() is None
        run.send_signal(number)
        for follower in followers:
            lines = read_lines(follower)
            assert follower.wait() == (143 if number == signal.SIGTERM else 1)
            assert [line.split(":")[0] for line in lines if line.startswith(state)] == [state]
            assert lines[-1] == "runner resume r continues it"
            assert follower.stderr.read() == ""
    finally:
        for process in (run, *followers):
            kill_group(process)


def test_ctrl_c_ends_who_follows_and_not_the_run(place):
    run = leave(place / "r", [2.0], [(1, {"accuracy": 0.5})], state="running")  # its process is this one
    follower = started(("watch", "r"), place)
    try:
        assert follower.stdout.readline() == "epoch 1, step 1: loss 2\n"
        follower.send_signal(signal.SIGINT)
        assert read_lines(follower) == ["evaluation at step 1: accuracy 0.5000"]
        assert follower.stderr.read() == "the run goes on; runner watch r follows it again\n"
        assert follower.wait() == 130
        assert json.loads((run / "status.json").read_text())["status"] == "running"
    finally:
        kill_group(follower)


def test_it_ends_when_its_reader_has_gone(place):
    run = leave(place / "r", [2.0], [(1, {"accuracy": 0.5})], state="running")
    follower = started(("watch", "r"), place)
    try:
        follower.stdout.readline()
        follower.stdout.close()
        number = 1

        def has_ended() -> bool:
            nonlocal number
            number += 1
            append(run, step(number, number, 1.0))  # each one ends an epoch
            return follower.poll() is not None

        wait_until(has_ended)
        assert follower.returncode == 0
    finally:
        kill_group(follower)


def test_a_terminal(place):
    leave(place / "r", [2.0, 1.5], [(2, {"accuracy": 0.5})])
    lines = on_terminal(80, "watch", "r")
    assert "ok: r at step 2, exit code 0" in lines[-1]
    assert any("evaluation at step 2: accuracy 0.5000" in line for line in lines)

"""The thread that follows the files of a run, with a tracker that only remembers; and that nobody pays who has none."""

import json
import logging
import subprocess
import sys
import threading

import pytest
from tracking_runs import ROOT, points, said, words

import runner
from runner.config.groups import services
from runner.experiment.resume import resume
from runner.experiment.tracking import tracking
from runner.experiment.tracking.tracking import Tail, of_row, of_summary


class Memory:
    """A tracker that records what it receives, and fails at the call `fails`."""

    name = "memory"

    def __init__(self, fails: str | None = None, before: dict[str, int] | None = None) -> None:
        self.fails, self.before = fails, before or {}
        self.points, self.texts, self.closed = [], {}, None
        self.threads: set[str] = set()
        self.hangs = threading.Event()

    @property
    def place(self):
        return {"where": "nowhere"}

    def last_steps(self):
        self._called("last_steps")
        return self.before

    def add_points(self, new):
        self._called("add_points")
        self.points += [(point.name, point.step, point.value) for point in new]

    def describe(self, name, values):
        self._called("describe")
        self.texts[name] = values

    def close(self, status):
        self.closed = status
        self._called("close")

    def _called(self, name):
        self.threads.add(threading.current_thread().name)
        if self.fails == f"{name} hangs":
            self.hangs.wait()
        if self.fails == name:
            raise RuntimeError(f"cannot {name}\nbecause of the test")


@pytest.fixture
def followed(monkeypatch):
    """Runs are followed by a tracker, whatever is installed."""
    monkeypatch.setattr(services, "_is_installed", lambda name: True)

    def by(memory: Memory) -> Memory:
        monkeypatch.setattr(tracking, "_tracker", lambda request: memory)
        return memory

    return by


def rows(memory: Memory) -> list:
    return [point for point in memory.points if not point[0].startswith("summary/")]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_tracker_gets_the_rows_of_the_files(tmp_path, followed, mode):
    memory = followed(Memory())
    runner.run(words(tmp_path / "run", "tensorboard", f"mode={mode}", "eval.every=epoch"))
    assert rows(memory) == points(tmp_path / "run")
    assert memory.texts == {"manifest": said(tmp_path / "run", "manifest")}
    assert memory.closed == "ok"
    assert memory.threads == {"tracking"}  # no step waits for it


@pytest.mark.parametrize("call", ["last_steps", "add_points", "describe", "close"])
def test_a_tracker_that_fails_gets_no_more_rows_and_the_run_continues(tmp_path, followed, caplog, call):
    memory = followed(Memory(fails=call))
    with caplog.at_level(logging.WARNING, "runner"):
        summary = runner.run(words(tmp_path / "run", "tensorboard", "mode=graph"))
    messages = [record.getMessage() for record in caplog.records if "tracking" in record.getMessage()]
    assert messages == [
        f"tracking=memory has failed (RuntimeError: cannot {call}): its data are incomplete; "
        "the run continues, and its files are complete"
    ]
    state = {"status": "incomplete", "reason": f"RuntimeError: cannot {call}", "where": "nowhere"}
    assert summary["tracking"] == {"name": "memory", **state}
    assert said(tmp_path / "run")["tracking"] == said(tmp_path / "run", "tracking") == summary["tracking"]
    assert len(points(tmp_path / "run")) == 22
    assert memory.closed == "ok"


def test_a_tracker_that_hangs_is_left_behind(tmp_path, followed, monkeypatch, caplog):
    monkeypatch.setattr(tracking, "LAST_SECONDS", 0.1)
    memory = followed(Memory(fails="add_points hangs"))
    summary = runner.run(words(tmp_path / "run", "tensorboard", "mode=graph"))
    assert summary["tracking"]["reason"] == "no answer for 0.1 seconds"
    memory.hangs.set()


def test_rows_that_an_earlier_process_could_not_send_are_sent_after_a_resume(tmp_path, followed):
    folder = tmp_path / "run"
    followed(Memory(fails="add_points"))
    runner.run(words(folder, "tensorboard", "mode=graph"))
    memory = followed(Memory(before={"loss": 3}))
    resume(folder, ["epochs=5"])
    assert rows(memory) == [point for point in points(folder) if point[0] != "loss" or point[1] > 3]
    assert len(points(folder)) == 27


def test_an_evaluation_alone_is_followed(tmp_path, followed):
    memory = followed(Memory())
    runner.run(words(tmp_path / "run", "tensorboard", "mode=graph", "session.graph_run_mode=0"))
    assert rows(memory) == points(tmp_path / "run")
    assert {name for name, _, _ in rows(memory)} == {"eval/accuracy", "eval/loss"}
    assert "manifest" in memory.texts


def test_rows_are_read_when_they_are_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert list(tail.new()) == []
    lines = [json.dumps({"event": "step", "epoch": 1, "step": k, "global_step": k, "loss": k / 8}) for k in (1, 2, 3)]
    path.write_text(f"{lines[0]}\n{lines[1][:9]}")
    assert [point[:3] for part in tail.new() for point in part] == [("loss", 0.125, 1)]
    with path.open("a") as file:
        file.write(f"{lines[1][9:]}\n{lines[2]}\n")
    assert [point[:3] for part in tail.new() for point in part] == [("loss", 0.25, 2), ("loss", 0.375, 3)]
    assert list(tail.new()) == []


def test_many_rows_come_in_parts(tmp_path):
    row = {"event": "step", "epoch": 1, "step": 1, "global_step": 1, "loss": 0.5}
    (tmp_path / "metrics.jsonl").write_text((json.dumps(row) + "\n") * 9000)
    parts = [len(part) for part in Tail(tmp_path / "metrics.jsonl").new()]
    assert sum(parts) == 9000
    assert len(parts) > 1


def test_a_line_that_is_no_row_is_an_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("no row\n")
    with pytest.raises(ValueError, match="Expecting value"):
        list(Tail(tmp_path / "metrics.jsonl").new())


def test_names_of_curves():
    assert [p[:3] for p in of_row({"event": "step", "epoch": 1, "step": 2, "global_step": 9, "loss": 0.5})] == [
        ("loss", 0.5, 9)
    ]
    summary = {"status": "ok", "steps": 9, "metrics": {"accuracy": 0.5}, "first_loss_seconds": None, "speed": 1.5}
    assert [p[:3] for p in of_summary(summary)] == [
        *[("summary/steps", 9.0, 9), ("summary/metrics.accuracy", 0.5, 9), ("summary/speed", 1.5, 9)]
    ]


def test_nothing_is_imported_unless_it_is_asked_for(tmp_path):
    lines = [line for line in words(tmp_path / "run", "none", "mode=graph") if "every_seconds" not in line]
    code = f"""
import sys, runner
runner.run({lines!r})
loaded = "mlflow", "tensorboardX", "tracking.follower", "tracking.points", "sqlalchemy"
print([name for name in sys.modules if name.startswith(loaded) or name.removeprefix("runner.") in loaded])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.splitlines()[-1] == "[]"
    assert not (tmp_path / "run" / "tracking.json").exists()
    assert "tracking" not in said(tmp_path / "run")

"""What a run left is read, with whatever is missing or damaged."""

import json
import os

import numpy as np
import pytest
import yaml
from run_folders import CONFIG, NO_PROCESS, leave, rows_of

from runner.report import list
from runner.report.record import RunRecord, differing_keys
from runner.rundir import run_directories


def test_a_whole_run(tmp_path):
    run = RunRecord(leave(tmp_path / "a", [2.0, 1.5, 1.0], [(3, {"accuracy": 0.5, "loss": 1.25})]))
    assert (run.state, run.name, run.step, run.notes) == ("ok", "lenet", 3, [])
    assert run.config["optimizer.learning_rate"] == CONFIG["optimizer"]["learning_rate"]
    assert run.results == {"loss": 1.0, "accuracy": 0.5, "eval.loss": 1.25}
    assert run.manifest["packages.numpy"] == "2.0"
    text = (tmp_path / "a" / ".hydra" / "overrides.yaml").read_text()
    assert run.overrides == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"status": "running", "pid": os.getpid()}, "running"),
        ({"status": "running", "pid": NO_PROCESS}, "killed"),
        ({"status": "running", "pid": "x"}, "killed"),
        ({"status": "interrupted"}, "interrupted"),
        ({"status": "failed"}, "failed"),
        ({"status": "strange"}, "broken"),
        (None, "broken"),
    ],
)
def test_states(tmp_path, said, state):
    place = leave(tmp_path / "a")
    (place / "status.json").write_text("{" if said is None else json.dumps(said))
    run = RunRecord(place)
    assert run.state == state
    assert [one.state for one in list.find_runs([tmp_path])] == [state]
    assert len(run.notes) == (state != "failed")


def test_an_empty_folder_is_read_as_nothing(tmp_path):
    run = RunRecord(tmp_path)
    assert (run.state, run.config, run.results, run.step, run.overrides) == ("broken", {}, {}, 0, [])


def test_damaged_lines_are_left_out_and_told(tmp_path):
    place = leave(tmp_path / "a", [3.0, 2.0])
    good = (place / "metrics.jsonl").read_text()
    bad = [
        "{",
        "[]",
        '{"event":"step"}',
        '{"event":"step","global_step":5,"loss":NaN}',
        '{"event":"other"}',
        "\xff",
        "",
    ]
    bad.append('{"event":"step","global_step":true,"loss":1.0}')
    bad.append('{"event":"eval","epoch":[],"global_step":2,"loss":1.0}')
    torn = '{"event":"step","global_st'
    (place / "metrics.jsonl").write_text("\n".join(bad) + "\n" + good + torn, encoding="latin-1")
    run = RunRecord(place)
    assert (run.metrics.steps.tolist(), run.metrics.losses.tolist()) == ([1, 2], [3.0, 2.0])
    assert (run.metrics.damaged, run.metrics.torn) == (len(bad), True)
    assert [word in " ".join(run.notes) for word in (str(len(bad)), "torn")] == [True, True]


def test_steps_are_put_in_order(tmp_path):
    place = leave(tmp_path / "a")
    rows = rows_of([5.0, 4.0, 3.0])
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    assert RunRecord(place).metrics.losses.tolist() == [5.0, 4.0, 3.0]


def test_a_pipe_or_a_deep_file_stops_nobody(tmp_path):
    place = leave(tmp_path / "a")
    (place / "metrics.jsonl").unlink()
    os.mkfifo(place / "metrics.jsonl")
    (place / "config.json").write_text('{"a":' * 5000 + "1" + "}" * 5000)
    run = RunRecord(place)
    assert len(run.metrics.steps) == 0
    assert run.config == {"experiment": "lenet", "expect": "{loss: {max: 1}}"}  # what the overrides say


def test_places(tmp_path):
    leave(tmp_path / "sweep" / "0")
    (tmp_path / "sweep" / "1" / ".hydra").mkdir(parents=True)  # killed at its start
    (tmp_path / "sweep" / ".hydra").mkdir()
    (tmp_path / "sweep" / "multirun.yaml").write_text("")
    leave(tmp_path / "sweep" / "0" / "inside")  # of a run, not one of the sweep's
    assert sorted(path.name for path in run_directories(tmp_path)) == ["0", "1"]


def test_differing_keys():
    assert differing_keys([{"a": 1, "b": 2}, {"a": 1, "b": 3, "c": None}, {"b": 2}]) == ["a", "b"]


def test_many_losses_are_arrays(tmp_path):
    run = RunRecord(leave(tmp_path / "a", np.linspace(2, 1, 1000).tolist()))
    assert (run.metrics.steps.dtype, run.metrics.losses.dtype) == (np.int64, np.float64)
    assert np.array_equal(run.metrics.losses, np.linspace(2, 1, 1000))

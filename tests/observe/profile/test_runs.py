"""Whole runs that are profiled: the folder, the console, and what is told when something is wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runner
from runner import rundir
from runner.errors import ConfigError

ROOT = Path(__file__).parents[3]
SMALL = (
    *("+experiment=lenet_seed", "dataset=synthetic", "dataset.num_samples=192", "callbacks=quiet"),
    *("device.threads=1", "eval.every=never", "max_steps=6"),
)
STEPS = 6
ALL = {
    *("ai_core_metrics_0.json", "cpu_op_detail_info_0.csv", "cpu_op_type_info_0.csv", "cpu_timeline_display_0.json"),
    *("framework_raw_0.csv", "minddata_pipeline_raw_0.csv", "pipeline_profiling_0.json"),
    *("profile_summary_0.json", "step_trace_point_info.json", "step_trace_raw_0_detail_time.csv"),
}


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_run(tmp_path, monkeypatch, capsys, mode):
    monkeypatch.chdir(tmp_path)
    summary = runner.run([*SMALL, "profiling=trace", f"mode={mode}"])
    folder = Path(summary["run_dir"]) / "profiling"
    assert {path.name for path in folder.iterdir()} == ALL
    info = json.loads((folder / "step_trace_point_info.json").read_text())
    assert info["steps"] == summary["steps"] == STEPS
    said = capsys.readouterr().out
    assert f"profile: {STEPS} steps, " in said
    assert "next: " in said


def test_words_without_the_switch_are_told(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    summary = runner.run([*SMALL, "max_steps=1", "session.profiling_options=task_trace"])
    assert "session.profiling_options has no effect without session.profiling_mode=true" in caplog.text
    assert not (Path(summary["run_dir"]) / "profiling").exists()


def test_a_wrong_point_of_a_session_has_a_hint_that_works(tmp_path, monkeypatch):
    """A session with words needs both points: to leave one out is the next error."""
    monkeypatch.chdir(tmp_path)
    points = "session.fp_point=Default/conv1-Conv2d/Conv2D-op0", "session.bp_point=Gradients/Default/nothing-op77"
    with pytest.raises(ConfigError) as caught:
        runner.run([*SMALL, "session.profiling_mode=true", *points])
    assert caught.value.rows["key"].startswith("session.")
    assert caught.value.rows["hint"] == "profiling=trace detects it"


def test_the_numbers_of_a_run_are_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = runner.run([*SMALL, "mode=graph"])
    watched = runner.run([*SMALL, "mode=graph", "profiling=trace"])
    assert plain["loss"] == watched["loss"]
    journals = [(Path(summary["run_dir"]) / "metrics.jsonl").read_bytes() for summary in (plain, watched)]
    assert journals[0] == journals[1]


def test_the_json_of_the_context(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    runner.run([*SMALL, "mode=graph", """profiling.options='{"result_path":"data","training_trace":"on"}'"""])
    names = {path.name for path in (tmp_path / "data").iterdir()} - {rundir.OWNER}
    assert names == {name for name in ALL if name.startswith(("step_trace", "profile_summary")) or "timeline" in name}


def test_one_operator_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = "MatMul(8x40,40x12)"
    summary = runner.run([*SMALL, "mode=pynative", "profiling=trace", f"profiling.op_trace='{text}'"])
    folder = Path(summary["run_dir"]) / "profiling"
    assert [path.name for path in folder.iterdir()] == ["op_trace_0.json"]
    found = json.loads((folder / "op_trace_0.json").read_text())
    assert found["op_trace"] == text
    assert set(found["time_us"]) == {"graph", "pynative"}
    assert f"op_trace: {text}" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("key", ["fp_point", "bp_point", "op_trace"])
def test_an_operator_that_nobody_has(tmp_path, monkeypatch, mode, key):
    monkeypatch.chdir(tmp_path)
    name = "Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Conv2D-op9"
    with pytest.raises(ConfigError) as error:
        runner.run([*SMALL, "profiling=trace", f"mode={mode}", f"profiling.{key}={name}"])
    rows, part = error.value.rows, {"fp_point": "forward", "bp_point": "backward"}.get(key)
    if key == "bp_point":  # an operator of the backward part
        assert re.search(r"^Gradients/.*/conv1-Conv2d/gradConv2D/Conv2DBackpropFilter-op\d+$", rows["nearest"])
    else:
        assert rows["nearest"].endswith("conv1-Conv2d/Conv2D-op0")
    assert rows["key"] == f"profiling.{key}"
    meant = rf"the \d+ operators of its {part} part" if part else r"its \d+ operators"
    assert re.fullmatch(f"the full name of one of {meant}", rows["allowed"])


def test_a_name_that_is_like_no_operator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        runner.run([*SMALL, "profiling=trace", 'profiling.options=\'{"fp_point": "nope"}\''])
    rows = error.value.rows
    assert rows["key"] == "profiling.options.fp_point"
    assert rows["such as"].endswith("conv1-Conv2d/Conv2D-op0")


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_no_step_trace_if_it_is_off(tmp_path, monkeypatch, mode):
    monkeypatch.chdir(tmp_path)
    off = runner.run([*SMALL, f"mode={mode}", "profiling=trace", "profiling.training_trace=off"])
    names = {path.name for path in (Path(off["run_dir"]) / "profiling").iterdir()}
    assert not [name for name in names if name.startswith("step_trace")]
    assert "cpu_op_detail_info_0.csv" in names


def test_a_run_that_is_not_profiled_loads_only_the_keys_of_it(tmp_path):
    program = (
        "import sys, runner\n"
        f"runner.run([*{SMALL!r}, 'mode=graph'])\n"
        "from types import ModuleType\n"
        "print([n for n, m in sys.modules.items() if n.startswith('runner.observe.profile') and type(m) is ModuleType])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    loaded = "['runner.observe.profile', 'runner.observe.profile.settings']"  # the empty package, and the keys
    assert done.stdout.splitlines()[-1] == loaded

"""`initialize_system` and `shutdown_system`: as calls of Python, and as timed phases of a run."""

import subprocess
import sys
from pathlib import Path

import pytest

import runner
from runner import context
from runner.device import Device
from runner.errors import ConfigError, DeviceError
from runner.train import setup

LENET = ("+experiment=lenet_seed", "max_steps=2", "eval.every=never", "callbacks=quiet", "device.threads=1")
PHASES = {"provider_seconds", "communication_seconds", "compilation_seconds"}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    runner.shutdown_system()
    return tmp_path


def test_graph_mode_opens_the_provider():
    context.set_context(mode=context.GRAPH_MODE)
    took = runner.initialize_system()
    assert took.keys() == PHASES
    assert took["provider_seconds"] > 0
    assert took["communication_seconds"] == 0.0  # one process


def test_pynative_mode_needs_nothing():
    context.set_context(mode=context.PYNATIVE_MODE)
    assert runner.initialize_system("init") == dict.fromkeys(PHASES, 0.0)


def test_libraries_are_loaded_then_and_not_before():
    text = "import sys, runner\nrunner.context.set_context(mode=0)\nloaded = ['onnxruntime' in sys.modules]\n"
    text += "runner.initialize_system()\nprint(loaded, [n in sys.modules for n in ('onnxruntime', 'onnx.checker')])\n"
    root = Path(runner.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "[False] [True, True]\n"


def test_a_second_call_does_nothing_until_it_was_shut_down(monkeypatch):
    context.set_context(mode=context.GRAPH_MODE)
    opened = []
    monkeypatch.setattr(setup.compiler, "device_problem", lambda target, device_id: opened.append((target, device_id)))
    first = runner.initialize_system()
    assert runner.initialize_system() == first
    assert opened == [("CPU", 0)]
    runner.shutdown_system()
    runner.initialize_system()
    assert opened == [("CPU", 0)] * 2


def test_shutting_down_nothing_is_no_error():
    runner.shutdown_system("shutdown")
    runner.shutdown_system()


@pytest.mark.parametrize("call", [runner.initialize_system, runner.shutdown_system])
def test_a_name_is_text(call):
    with pytest.raises(ConfigError) as caught:
        call(3)
    assert caught.value.rows == {"given": "int", "allowed": "None or a string"}


def test_a_device_that_cannot_be_used(monkeypatch, caplog):
    trouble = DeviceError("the device is not usable", reason="nobody is there")
    monkeypatch.setattr(setup.compiler, "device_problem", lambda target, device_id: trouble)
    with pytest.raises(DeviceError) as caught:
        setup.prepare(Device("GPU"), True)
    assert caught.value is trouble
    setup.prepare(Device("GPU", allow_fallback=True), True)
    assert "nobody is there" in caplog.text


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("more", [(), ("dataset_sink_mode=false",)])
def test_the_phases_of_a_run(mode, more):
    summary = runner.run([*LENET, f"mode={mode}", "session.initialize_system=true", *more])
    phases = summary["system"]
    assert phases.keys() == PHASES | {"training_seconds"}
    assert phases["compilation_seconds"] >= summary["compile_seconds"]
    assert phases["training_seconds"] == summary["train_seconds"] - summary["compile_seconds"]
    assert (phases["provider_seconds"] > 0) == (mode == "graph")
    assert phases["provider_seconds"] < summary["init_seconds"]


def test_a_run_that_does_not_ask_has_no_phases():
    assert "system" not in runner.run([*LENET, "mode=graph"])


def test_an_evaluation_has_phases_too():
    lines = ("+experiment=lenet_seed", "callbacks=quiet", "session.graph_run_mode=0", "mode=graph")
    phases = runner.run([*lines, "session.initialize_system=true"])["system"]
    assert (phases["training_seconds"], phases["provider_seconds"] > 0) == (0.0, True)

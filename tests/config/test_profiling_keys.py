"""The groups `profiling` and `session`: what every form asks for, and what nobody asks for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from run_requests import request_of
from tables import table

from runner import context
from runner.config import schema
from runner.config.check import check
from runner.config.compose import CommandLine, compose
from runner.config.groups.services import NoProfiling, SessionSettings, TraceProfiling, profiling_is_requested
from runner.experiment import observers
from runner.observe.profile.settings import ProfileSettings

FP = "Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Conv2D-op1"
BP = "Gradients/Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/gradConv2D/Conv2DBackpropFilter-op40"
POINTS = (f"session.fp_point={FP}", f"session.bp_point={BP}")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """Where the command is started."""
    (tmp_path / "output").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(*lines: str, folder: str = "run") -> ProfileSettings:
    return observers.profile_settings(request_of(compose(CommandLine(lines)).config, Path(folder)))


def test_nothing_is_profiled_unless_requested():
    config = compose(CommandLine()).config
    assert (config.profiling, config.session) == (NoProfiling(), SessionSettings())
    assert not profiling_is_requested(config.profiling, config.session)


def test_nothing_is_imported_unless_requested():
    text = "import sys\nfrom runner.config.compose import CommandLine, compose\ncompose(CommandLine())\n"
    text += "print([name for name in sys.modules if name.startswith('runner.observe.profile.')])"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(schema.__file__).parents[2])
    assert done.stdout == "['runner.observe.profile.settings']\n"  # the keys are declared there


# Overrides, and what differs from a profile of every trace in profiling/ of the run directory.
EVERYTHING = {
    "training_trace": True,
    "task_trace": True,
    "aicpu_trace": True,
    "ai_core_metrics": "PipeUtilization",
}
STEPS = {"training_trace": True}
TASKS = {"training_trace": True, "task_trace": True, "ai_core_metrics": "PipeUtilization"}
ASKED = [
    (("profiling=trace",), EVERYTHING),
    (("profiling=trace", "profiling.options=null"), EVERYTHING),
    (("profiling=trace", "device.target=GPU", "device.id=3"), EVERYTHING | {"device_id": 3}),
    (("profiling=trace", "device.id=3"), EVERYTHING),  # the CPU has no devices
    (("profiling=trace", "profiling.aicpu_trace=off"), EVERYTHING | {"aicpu_trace": False}),
    (("profiling=trace", "profiling.aicpu=OFF"), EVERYTHING | {"aicpu_trace": False}),
    (("profiling=trace", "profiling.aicpu=false"), EVERYTHING | {"aicpu_trace": False}),
    (("profiling=trace", "profiling.task_trace=off"), {"training_trace": True, "aicpu_trace": True}),
    (("profiling=trace", "profiling.aic_metrics=Memory"), EVERYTHING | {"ai_core_metrics": "Memory"}),
    (("profiling=trace", "profiling.ai_core_metrics=MemoryL0"), EVERYTHING | {"ai_core_metrics": "MemoryL0"}),
    (("profiling=trace", f"profiling.fp_point={FP}", "profiling.bp_point=''"), EVERYTHING | {"fp_point": FP}),
    (("profiling=trace", "profiling.op_trace=ReLU(32x120)"), {"op_trace": "ReLU(32x120)"}),
    (("profiling=trace", "profiling.op_trace=" + FP), {"op_trace": FP}),
    (("profiling=trace", "profiling.op_trace='MatMul(3x4,4x5)'"), {"op_trace": "MatMul(3x4,4x5)"}),
    (("profiling=trace", 'profiling.options={"training_trace":"on"}'), STEPS),
    (("profiling=trace", "profiling.aicpu=on", 'profiling.options={"fp_point":""}'), STEPS | {"aicpu_trace": True}),
    (('profiling.options={"training_trace": "on"}',), STEPS),
    (("profiling.options='{\"training_trace\": true}'",), STEPS),
    (("profiling.options={training_trace: on}",), STEPS),
    (("profiling.options={}",), STEPS),
    (('profiling.options={"task_trace":"on"}',), TASKS),
    (('profiling.options={"task_trace":"on","training_trace":"off"}',), TASKS | {"training_trace": False}),
    (
        ('profiling.options={"aicpu":"on","aic_metrics":"Memory"}',),
        STEPS | {"aicpu_trace": True, "ai_core_metrics": "Memory"},
    ),
    (('profiling.options={"op_trace":"MatMul(3x4,4x5)"}',), {"op_trace": "MatMul(3x4,4x5)"}),
    (("profiling.options=training_trace",), STEPS),
    (("profiling.options=task_trace",), TASKS),
    (("session.profiling_mode=true", *POINTS), STEPS | {"fp_point": FP, "bp_point": BP}),
    (
        ("session.profiling_mode=true", "session.profiling_options=training_trace:task_trace", *POINTS),
        TASKS | {"fp_point": FP, "bp_point": BP},
    ),
    (
        ("session.profiling_mode=true", "session.profiling_options=task_trace", *POINTS),
        TASKS | {"fp_point": FP, "bp_point": BP},
    ),
    (("session.profiling_mode=true", 'session.profiling_options={"task_trace":"on"}'), TASKS),
    (
        ("session.profiling_mode=true", "session.profiling_options=op_trace", "session.op_trace=MatMul(3x4,4x5)"),
        {"op_trace": "MatMul(3x4,4x5)"},
    ),
]


@table(("lines", "expected"), ASKED, ids=[" ".join(lines)[:70] for lines, _ in ASKED])
def test_requested_profiles(lines, expected, place):
    assert settings(*lines) == ProfileSettings(result_path=place / "run" / "profiling", **expected)
    assert (place / "run" / "profiling").is_dir()


@pytest.mark.parametrize(
    "line", ["profiling.result_path={}", "profiling.output={}", 'profiling.options={{"output":"{}"}}']
)
@pytest.mark.parametrize("absolute", [True, False])
def test_the_folder_is_relative_to_where_the_command_was_started(line, absolute, place):
    made = settings("profiling=trace", line.format(place / "output" if absolute else "output"))
    assert made.result_path == place / "output"
    assert not (place / "run").exists()


@pytest.mark.parametrize("word", ["on", "off", "true", "false", '"on"', "ON"])
def test_words_of_files(word, place):
    """YAML 1.1 makes true of a bare `on`."""
    (place / "mine").mkdir()
    text = f"defaults: [/schema/run, {{profiling: trace}}, _self_]\nprofiling:\n  task_trace: {word}\n"
    (place / "mine" / "config.yaml").write_text(text)
    (place / "mine" / "profiling").mkdir()
    (place / "mine" / "profiling" / "trace.yaml").write_text("defaults: [/schema/profiling/trace]\n")
    profiling = compose(CommandLine(config_path=place / "mine")).config.profiling
    assert profiling == TraceProfiling(task_trace=word.strip('"').lower() in ("on", "true"))


def test_a_profile_in_the_group_of_an_experiment(place):
    (place / "mine" / "experiment").mkdir(parents=True)
    text = "# @package _global_\ndefaults:\n  - override /profiling: trace\nprofiling:\n  aicpu_trace: off\n"
    (place / "mine" / "experiment" / "slow.yaml").write_text(text)
    call = CommandLine(("+experiment=slow",), config_dir=place / "mine")
    assert compose(call).config.profiling == TraceProfiling(aicpu_trace=False)
    call = CommandLine(("+experiment=slow", "profiling=none", "~profiling.aicpu_trace"), config_dir=place / "mine")
    assert compose(call).config.profiling == NoProfiling()


SESSION = [
    ("precision_mode=force_fp16", {"precision_mode": "force_fp16"}),
    ("precision_mode=null", {"precision_mode": "allow_fp32_to_fp16"}),
    ("auto_tune_mode='RL,GA'", {"auto_tune_mode": "RL,GA"}),
    ("auto_tune_mode='GA, RL'", {"auto_tune_mode": "RL,GA"}),
    ("auto_tune_mode=[GA,RL]", {"auto_tune_mode": "RL,GA"}),
    ("auto_tune_mode=GA", {"auto_tune_mode": "GA"}),
    ("auto_tune_mode=null", {}),
    ("graph_run_mode=0", {"graph_run_mode": 0}),
    ("op_debug_level=4", {"op_debug_level": 4}),
    ("op_select_implmode=high_precision", {"op_select_implmode": "high_precision"}),
    ("optypelist_for_implmode=Pooling", {"optypelist_for_implmode": "Pooling"}),
    ("optypelist_for_implmode=[Pooling]", {"optypelist_for_implmode": "Pooling"}),
    ("initialize_system=true", {"initialize_system": True}),
]


@pytest.mark.parametrize(("line", "expected"), SESSION)
def test_the_session(line, expected):
    key, _, text = line.partition("=")
    assert compose(CommandLine((f"session.{line}",))).config.session == SessionSettings(**expected)
    assert check({"session": {key: yaml.safe_load(text)}}).session == SessionSettings(**expected)


def test_the_resolved_config_reads_back():
    lines = ("profiling=trace", "profiling.output=output", "profiling.aicpu=off", "session.auto_tune_mode=[RL]")
    config = compose(CommandLine(lines)).config
    assert check(json.loads(json.dumps(schema.plain(config)))) == config


SEED_001 = (
    "from mindspore import context\n"
    "context.set_context(enable_profiling=True, "
    """profiling_options='{"result_path":"/home/data/output","training_trace":"on"}')\n"""
)


def test_the_context_of_the_reference_documents(place):
    exec(SEED_001.replace("mindspore", "runner").replace("/home/data/output", str(place / "output")), {})
    assert context.profiling_settings() == ProfileSettings(place / "output", training_trace=True)
    context.set_context(profiling_options="training_trace:task_trace", device_target="GPU", device_id=2)
    expected = ProfileSettings(place / "profiling", **TASKS, device_id=2)
    assert context.profiling_settings() == expected
    context.set_context(enable_profiling=False)
    assert context.profiling_settings() is None
    assert context.get_context("profiling_options") == "training_trace:task_trace"

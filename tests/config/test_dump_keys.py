"""The group `dump`: what its options ask for, what a JSON file and the environment do, and who comes first."""

import json
import logging
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from run_requests import request_of
from tables import table

from runner.config import schema
from runner.config.check import check
from runner.config.compose import CommandLine, compose
from runner.config.groups import GROUPS
from runner.config.groups.services import AsyncDump, GeDump, NoDump, SyncDump, dump_is_requested
from runner.experiment import observers
from runner.observe.dump import VARIABLE, settings as json_config
from runner.observe.dump.settings import DumpSettings, Iterations
from runner.validation.rules import validate

COMMON = {
    "dump_mode": 0,
    "path": "",
    "net_name": "ResNet50",
    "iteration": "0",
    "input_output": 0,
    "kernels": [],
    "support_device": [0],
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """Where the command is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def warned(caplog):
    """The warnings so far."""
    caplog.set_level(logging.WARNING, "runner")
    return lambda: [record.message for record in caplog.records]


def file(place: Path, name: str = "data_dump.json", **sections: object) -> Path:
    path = place / name
    common = {**COMMON, "path": f"{place}/{path.stem}"}
    path.write_text(json.dumps({"common_dump_settings": common, **sections}))
    return path


def settings(*lines: str, folder: str = "run") -> DumpSettings | None:
    """The dump of a run with these overrides; Hydra, which would take its time, is left out."""
    values: dict = {}
    for line in lines:
        key, _, text = line.partition("=")
        group, _, name = (f"{key}.name" if key in ("dump", "network") else key).partition(".")
        if name:
            values.setdefault(group, {})[name] = yaml.safe_load(text)
        else:
            values[group] = yaml.safe_load(text)
    return observers.dump_settings(request_of(check(values), Path(folder)))


def test_overrides_reach_it_as_they_are_written():
    lines = ("dump.iteration=0|5-8|100-120", "dump.dump_mode=1", "dump.kernels=[Default/a-B/Conv2D-op1,MatMul,*fc1*]")
    dump = compose(CommandLine(("dump=sync", *lines, "dump.support_device=[0,1]"))).config.dump
    kernels = ("Default/a-B/Conv2D-op1", "MatMul", "*fc1*")
    assert dump == SyncDump(iteration="0|5-8|100-120", dump_mode=1, kernels=kernels, support_device=(0, 1))


def test_nothing_is_dumped_unless_requested(place):
    config = compose(CommandLine()).config
    assert config.dump == NoDump()
    assert not dump_is_requested(config.dump)
    assert observers.dump_settings(request_of(config, place)) is None
    assert list(place.iterdir()) == []


def test_the_defaults_of_a_synchronous_dump(place):
    made = settings("dump=sync", "network=resnet18")
    expected = DumpSettings("sync", place / "run" / "dump", "resnet18", Iterations(((0, 0),)))
    assert made == replace(expected, source=made.source, devices=tuple(range(8)))
    assert made.path.is_dir()


def test_the_defaults_of_an_asynchronous_dump(place):
    made = settings("dump=async")
    expected = DumpSettings("async", place / "run" / "dump", "lenet5", Iterations(((0, 0),)), trans_flag=False)
    assert made == replace(expected, source=made.source, devices=tuple(range(8)))


def test_the_defaults_of_a_dump_of_ge(place):
    (place / "mine").mkdir()
    made = settings("dump=ge", "dump.dump_path=mine")
    expected = DumpSettings("ge", place / "mine", "lenet5", Iterations(None), inputs=False, trans_flag=False)
    assert made == replace(expected, source=made.source)
    assert json.loads(made.source) == {
        "enable_dump": True,
        "dump_path": "mine",
        "dump_step": None,
        "dump_mode": "output",
    }


def test_a_dump_of_the_session_is_that_of_ge(place):
    """A resumed run has both in its config."""
    (place / "mine").mkdir()
    keys = ("session.enable_dump=true", "session.dump_path=mine", "session.dump_step=0|3-5", "session.dump_mode=all")
    made = settings(*keys)
    assert made == settings("dump=ge", "dump.dump_path=mine", "dump.dump_step='0|3-5'", "dump.dump_mode=all")
    assert made.kind == "ge"


@table(
    ("line", "field", "expected"),
    [
        ("dump.path=/{place}/else", "path", "{place}/else"),
        ("dump.net_name=Net-1_a", "net_name", "Net-1_a"),
        ("dump.iteration=0", "iterations", Iterations(((0, 0),))),
        ("dump.iteration=7", "iterations", Iterations(((7, 7),))),
        ("dump.iteration=all", "iterations", Iterations(None)),
        ("dump.iteration=0|5-8|100-120", "iterations", Iterations(((0, 0), (5, 8), (100, 120)))),
        ("dump.iteration='5-8'", "iterations", Iterations(((5, 8),))),
        ("dump.input_output=1", "outputs", False),
        ("dump.input_output=2", "inputs", False),
        ("dump.kernels=[Conv2D]", "kernels", None),
        ("dump.op_debug_mode=3", "op_debug_mode", 3),
    ],
)
@table("kind", ["sync", "async"])
def test_what_the_keys_mean(kind, line, field, expected, place):
    made = settings(f"dump={kind}", line.replace("/{place}", str(place)))
    wanted = Path(expected.format(place=place)) if field == "path" else expected
    assert getattr(made, field) == wanted


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_kernels_that_are_named(kind):
    lines = ("dump.dump_mode=1", "dump.kernels=[Default/network/conv1/Conv2D-op1,MatMul,'*fc1*']")
    assert settings(f"dump={kind}", *lines).kernels == ("Default/network/conv1/Conv2D-op1", "MatMul", "*fc1*")


def test_keys_of_one_kind():
    assert settings("dump=sync", "dump.trans_flag=false").trans_flag is True  # as the document says of the CPU
    assert (
        settings(
            "dump=sync", "dump.trans_flag=false", "device.target=GPU", "mode=graph", "dataset_sink_mode=false"
        ).trans_flag
        is False
    )
    made = settings("dump=async", "dump.file_format=npy", "dump.queue_mb=16")
    assert (made.file_format, made.queue_mb) == ("npy", 16)


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("dump.dump_step=0|3-5|10", "iterations", Iterations(((0, 0), (3, 5), (10, 10)))),
        ("dump.dump_step=0", "iterations", Iterations(((0, 0),))),
        ("dump.dump_step=null", "iterations", Iterations(None)),
        ("dump.dump_mode=input", "outputs", False),
        ("dump.dump_mode=all", "inputs", True),
        ("dump.dump_mode=all", "outputs", True),
        ("dump.dump_mode=output", "inputs", False),
        ("dump.file_format=npy", "file_format", "npy"),
        ("dump.queue_mb=1", "queue_mb", 1),
    ],
)
def test_what_the_keys_of_ge_mean(line, field, expected):
    assert getattr(settings("dump=ge", "dump.dump_path=.", line), field) == expected


def test_a_hundred_sets_of_steps_are_allowed():
    steps = "|".join(map(str, range(100)))
    assert len(settings("dump=ge", "dump.dump_path=.", f"dump.dump_step={steps}").iterations.ranges) == 100


@pytest.mark.parametrize("lines", [("dump=sync", "dump.enable=false"), ("dump=ge", "dump.enable_dump=false")])
def test_switched_off(lines, place, warned):
    """Nothing that only a dump needs is requested then."""
    assert settings(*lines, "mode=graph") is None
    assert list(place.iterdir()) == []
    assert warned() == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_file_that_is_kept_asks_for_the_same(kind, place):
    lines = ("dump.iteration=0|5-8", "dump.input_output=1", "dump.dump_mode=1", "dump.kernels=[A,B]", "dump.net_name=x")
    lines += ("dump.trans_flag=false",) if kind == "sync" else ("dump.file_format=npy",)
    made = settings(f"dump={kind}", f"dump.path={place}/d", "dump.op_debug_mode=1", "dump.support_device=[0]", *lines)
    (place / "kept.json").write_bytes(made.source)
    assert json_config.read(place / "kept.json", "x") == replace(made, trans_flag=False)


def test_the_file_that_is_kept_has_the_keys_of_the_seed(place):
    kept = json.loads(settings("dump=sync").source)
    assert list(kept) == ["common_dump_settings", "e2e_dump_settings"]
    assert list(kept["common_dump_settings"])[:7] == list(COMMON)
    assert kept["e2e_dump_settings"] == {"enable": True, "trans_flag": True}
    assert list(json.loads(settings("dump=async", folder="b").source)) == ["common_dump_settings"]


def test_a_device_that_is_not_listed(place, warned):
    listed = "dump=sync", "dump.support_device=[1,2]"
    assert settings(*listed, "device.target=GPU") is None
    assert warned() == ["nothing is dumped: device 0 is not in support_device (1, 2)"]
    assert list(place.iterdir()) == []
    assert settings(*listed, "device.target=GPU", "device.id=2").kind == "sync"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_list_of_devices_has_no_effect_on_the_cpu(place, warned, kind):
    """Seed 002: the CPU has no devices."""
    for number in (0, 3):
        made = settings(f"dump={kind}", "dump.support_device=[1,2]", f"device.id={number}")
        assert (made.kind, made.path) == (kind, place / "run/dump")
    assert warned() == ["support_device (1, 2) has no effect on the CPU"] * 2
    settings(f"dump={kind}", "dump.support_device=[0,1]", "device.id=3")
    assert len(warned()) == 2


def test_a_file_relative_to_where_the_command_was_started(place):
    file(place)
    made = settings("dump.config=data_dump.json", folder="/no/such/run")
    assert (made.kind, made.net_name, made.path) == ("async", "ResNet50", place / "data_dump")
    assert made.source == (place / "data_dump.json").read_bytes()


def test_both_kinds_in_a_file(place, warned):
    file(place, e2e_dump_settings={"enable": True, "trans_flag": True}, async_dump_settings={"enable": True})
    assert settings("dump.config=data_dump.json").kind == "sync"
    assert warned() == ["data_dump.json enables both dumps: only the synchronous one is written"]


def test_neither_kind_in_a_file(place, warned):
    file(place, e2e_dump_settings={"enable": False, "trans_flag": True})
    assert settings("dump.config=data_dump.json", "mode=graph") is None
    assert warned() == ["nothing is dumped: data_dump.json enables neither of the dumps"]


def test_the_environment(place, monkeypatch, warned):
    monkeypatch.setenv(VARIABLE, str(file(place)))
    config = compose(CommandLine()).config
    assert config.dump == NoDump()
    assert dump_is_requested(config.dump)
    assert observers.dump_settings(request_of(config, place)).path == place / "data_dump"
    assert warned() == []


@pytest.mark.parametrize("lines", [("dump=async",), ("dump=async", "dump.enable=false"), ("dump.config=mine.json",)])
def test_the_config_comes_before_the_environment(lines, place, monkeypatch, warned):
    """And then it does not matter what the variable says."""
    file(place, "mine.json")
    monkeypatch.setenv(VARIABLE, "nonsense")
    made = settings(*lines)
    expected = {2: None, 1: place / "run" / "dump"}[len(lines)] if lines[0] == "dump=async" else place / "mine"
    assert (made and made.path) == expected
    assert warned() == [f"{VARIABLE} has no effect: the config of the run selects the dump"]


@pytest.mark.parametrize("name", GROUPS["dump"])
def test_a_resolved_config_composes_to_itself(name):
    lines = ("dump.dump_path=.", "dump.dump_step=0|3-5") if name == "ge" else ()
    config = compose(CommandLine((f"dump={name}", *lines))).config
    assert check(json.loads(json.dumps(schema.plain(config)))) == config
    assert config.dump.name == name


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_file_of_the_config_chooses_a_dump(suffix, place):
    (place / "own" / "experiment").mkdir(parents=True)
    values = {"trans_flag": False, "iteration": 0, "kernels": ["MatMul"], "dump_mode": 1}
    chosen = {"defaults": [{"override /dump": "sync"}], "dump": values}
    text = json.dumps({"@package": "_global_", **chosen})
    if suffix == "yaml":
        text = "# @package _global_\n" + yaml.safe_dump(chosen).replace("false", "off")  # as YAML 1.1 reads it
        assert "trans_flag: off" in text
    (place / "own" / "experiment" / f"mine.{suffix}").write_text(text)
    config = compose(CommandLine(("+experiment=mine", "dump.iteration=0|7"), config_dir=place / "own")).config
    assert config.dump == SyncDump(trans_flag=False, iteration="0|7", kernels=("MatMul",), dump_mode=1)


def test_a_name_chooses_too():
    assert compose(CommandLine(("dump.name=async", "dump.queue_mb=1"))).config.dump == AsyncDump(queue_mb=1)


@pytest.mark.parametrize(("value", "expected"), [("0", False), ("1", True), ("true", True), ("false", False)])
def test_the_session(value, expected):
    config = compose(CommandLine((f"session.enable_exception_dump={value}",))).config
    assert config.session == schema.SessionSettings(enable_exception_dump=expected)
    assert config.session.enable_exception_dump is expected


@pytest.mark.parametrize("kind", [SyncDump, AsyncDump, GeDump])
def test_defaults_are_allowed(kind):
    """What is not given is not validated, so it must be right."""
    validated_fields = [f for f in fields(kind) if f.metadata.get("rule") and f.default is not None]
    assert len(validated_fields) >= 2
    for f in validated_fields:
        assert validate(f.type, f.metadata["rule"], f.default) == f.default


def test_what_no_dump_needs_is_not_imported():
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from runner.experiment import observers\n"
        "from runner.config.compose import CommandLine, compose\n"
        "from runner.config.schema import RunRequest\n"
        "observers.dump_settings(RunRequest(compose(CommandLine()).config, Path(), None, {}, ()))\n"
        "loaded = [n for n, m in sys.modules.items() if n.startswith('runner.observe.dump.')]\n"
        "print([n for n in loaded if type(sys.modules[n]).__name__ != '_LazyModule'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    # The keys are declared in settings; the formats of files, whose names are choices of a key, in the others.
    needed = [f"runner.observe.dump.{name}" for name in ("cann", "files", "settings")]
    assert (done.stdout, done.stderr) == (f"{needed}\n", "")

"""Profiles and session options that cannot be: each error names the key, the value and its repair, in every form."""

import json
import os
from pathlib import Path

import pytest
from tables import table

from runner import context
from runner.config.check import check
from runner.config.compose import CommandLine, compose
from runner.errors import ConfigError, ConfigErrors

ON = "on, off, true or false\n"
METRICS = "ArithmeticUtilization, PipeUtilization, Memory, MemoryL0, ResourceConflictRatio\n"
PRECISIONS = "allow_fp32_to_fp16, force_fp16, force_fp32, must_keep_origin_dtype, allow_mix_precision\n"
TUNING = '"RL" (vector operators), "GA" (convolutions and matrix products) or "RL,GA"\n'
WORDS = "training_trace, task_trace, op_trace, with colons between them\n"
OPERATOR = "the full name of an operator, or a type with shapes, such as MatMul(32x400,400x120)\n"

# What a key cannot be, in the group and in the JSON text: key, value, pieces of the error besides these two.
LEAVES = [
    ("result_path", "nowhere", ("a folder is missing\n", "a folder that exists\n", "mkdir -p {place}/nowhere\n")),
    ("result_path", "/no/where", ("a folder is missing\n", "mkdir -p /no/where\n")),
    ("result_path", "file", ("not a folder\n", "a folder that exists\n")),
    ("result_path", "locked", ("a folder without permission\n", "a folder that can be read and written\n")),
    ("result_path", "", ("not the name of a folder\n", "a folder that exists\n")),
    ("result_path", 7, ("not text\n", 'nearest  "7"\n')),
    ("result_path", ["a"], ("not text\n", "allowed  text\n")),
    ("output", "nowhere", ("a folder is missing\n", "mkdir -p {place}/nowhere\n")),
    ("training_trace", "maybe", ("neither on nor off\n", ON)),
    ("training_trace", "yes", ("neither on nor off\n", ON, "nearest  on\n")),
    ("training_trace", 1, ("neither on nor off\n", ON, "nearest  on\n")),
    ("training_trace", "", ("neither on nor off\n", ON)),
    ("task_trace", 0, ("neither on nor off\n", ON, "nearest  off\n")),
    ("task_trace", "no", ("neither on nor off\n", ON, "nearest  off\n")),
    ("task_trace", ["on"], ("neither on nor off\n", ON)),
    ("aicpu_trace", "onn", ("neither on nor off\n", ON)),
    ("aicpu", 2, ("neither on nor off\n", ON)),
    ("fp_point", 3, ("not text\n", 'nearest  "3"\n')),
    ("fp_point", "Default/network/", ("not the name of an operator\n", "nearest  Default/network\n")),
    ("bp_point", " Conv2D-op1", ("not the name of an operator\n", "nearest  Conv2D-op1\n")),
    ("bp_point", ["a"], ("not text\n", "allowed  text\n")),
    ("ai_core_metrics", "memory", ("not one of the choices\n", METRICS, "nearest  Memory\n")),
    ("ai_core_metrics", "PipeUtilisation", ("not one of the choices\n", METRICS, "nearest  PipeUtilization\n")),
    ("ai_core_metrics", "L2Cache", ("not one of the choices\n", METRICS)),
    ("ai_core_metrics", True, ("not one of the choices\n", METRICS)),
    ("aic_metrics", "Memory0", ("not one of the choices\n", METRICS, "nearest  MemoryL0\n")),
    ("op_trace", "on", ("not the name of an operator\n", OPERATOR)),
    ("op_trace", "", ("not the name of an operator\n", OPERATOR)),
    ("op_trace", True, ("not text\n", "allowed  text\n")),
    ("traing_trace", "on", ("unknown key\n", "bp_point, ai_core_metrics, ", "training_trace\n")),
    ("result_pth", "/tmp", ("unknown key\n", "bp_point, ai_core_metrics, ", "result_path\n")),
]

# What the words of a session cannot be: text, pieces.
TEXTS = [
    ("traing_trace:task_trace", ("unknown trace: traing_trace\n", WORDS, "nearest  training_trace:task_trace\n")),
    ("traing_trace", ("MindSpore's example spells it traing_trace, and means training_trace\n",)),
    ("task_trce", ("unknown trace: task_trce\n", "nearest  task_trace\n")),
    ("aicpu_trace", ("unknown trace: aicpu_trace\n", WORDS)),
    ("training_trace,task_trace", ("colons stand between the words\n", WORDS)),
    ("training_trace;task_trace", ("colons stand between the words\n", WORDS)),
    ("training_trace:", ("unknown trace: nothing\n", WORDS)),
    ("", ("unknown trace: nothing\n", WORDS)),
    ("Training_Trace", ("unknown trace: Training_Trace\n", "nearest  training_trace\n")),
    ("task_trace:task_trace", ("task_trace stands twice\n", "nearest  task_trace\n")),
    ("training_trace:op_trace", ("op_trace excludes every other trace\n", "allowed  only op_trace\n")),
    ("op_trace:task_trace", ("op_trace excludes every other trace\n", "two runs, or task_trace")),
    ("{training_trace: on}", ("not JSON\n", "Expecting property name")),
    ('{"training_trace": "on"', ("not JSON\n", "delimiter")),
    ('{"training_trace": "on", "training_trace": "off"}', ("duplicate key\n",)),
    ('{"training_trace": NaN}', ("not a finite number\n", "NaN")),
]

# What the config alone says: overrides, key, pieces.
FULL = ("session.profiling_mode=true", "session.fp_point=a", "session.bp_point=b")
CONFIG = [
    (("profiling.task_trace=on",), "profiling.task_trace", ("unknown key\n", "add profiling=trace first\n")),
    (("profiling=trce",), "profiling", ("unknown option\n", "none, trace\n", "nearest  trace\n")),
    (("profiling.name=tracing",), "profiling.name", ("not one of the choices\n", "none, trace\n")),
    (("profiling=trace", "profiling.op_trace=ReLU", "profiling.task_trace=on"), "profiling.op_trace", ("task_trace",)),
    (
        ("profiling=trace", "profiling.op_trace=ReLU", "profiling.ai_core_metrics=Memory"),
        "profiling.op_trace",
        ("op_trace excludes every other trace\n", "excludes  ai_core_metrics\n"),
    ),
    (
        ("profiling=trace", "profiling.training_trace=off", "profiling.task_trace=off"),
        "profiling.training_trace",
        ("nothing is traced\n", "profiling=none makes no profile\n"),
    ),
    (("profiling=trace", "profiling.output=.", "profiling.result_path=."), "profiling.output", ("requested twice\n",)),
    (
        ("profiling=trace", "profiling.aicpu=on", 'profiling.options={"aicpu_trace":"on"}'),
        "profiling.aicpu",
        ("requested twice\n", "also   profiling.options.aicpu_trace\n"),
    ),
    (('profiling.options={"aicpu":"on","aicpu_trace":"on"}',), "profiling.options.aicpu_trace", ("requested twice\n",)),
    (("profiling.options=7",), "profiling.options", ("not text\n", 'nearest  "7"\n')),
    (
        ("profiling.options=op_trace",),
        "profiling.op_trace",
        ("op_trace measures a single operator, and none is named\n", OPERATOR),
    ),
    (
        ("session.profiling_mode=true", "session.bp_point=b"),
        "session.fp_point",
        (
            "training_trace of a session needs this operator\n",
            "first operator of the forward pass\n",
            "profiling=trace detects it",
        ),
    ),
    (
        ("session.profiling_mode=true", "session.profiling_options=task_trace", "session.fp_point=a"),
        "session.bp_point",
        ("training_trace of a session needs this operator\n", "last operator of the backward pass\n"),
    ),
    ((*FULL, "session.op_trace=ReLU"), "session.op_trace", ("op_trace excludes every other trace\n",)),
    ((*FULL, "profiling=trace"), "session.profiling_mode", ("a profile is requested twice\n", "profiling=none")),
    (("session.profiling_mode=on",), "session.profiling_mode", ("not true or false\n", "nearest  true\n")),
    (("session.precision_mode=fp16",), "session.precision_mode", ("not one of the choices\n", PRECISIONS)),
    (("session.precision_mode=force_fp61",), "session.precision_mode", (PRECISIONS, "nearest  force_fp16\n")),
    (("session.precision_mode=16",), "session.precision_mode", ("value    16\n", PRECISIONS)),
    (("session.auto_tune_mode=XX",), "session.auto_tune_mode", ("not a tuning mode\n", 'value    "XX"\n', TUNING)),
    (("session.auto_tune_mode=rl",), "session.auto_tune_mode", (TUNING, "nearest  RL\n")),
    (("session.auto_tune_mode=[RL,XX]",), "session.auto_tune_mode", (TUNING, "nearest  RL\n")),
    (("session.auto_tune_mode='RL,RL'",), "session.auto_tune_mode", (TUNING, "nearest  RL\n")),
    (("session.auto_tune_mode=''",), "session.auto_tune_mode", ("not a tuning mode\n", TUNING)),
    (("session.auto_tune_mode=[]",), "session.auto_tune_mode", ("not a tuning mode\n", TUNING)),
    (("session.auto_tune_mode=3",), "session.auto_tune_mode", ("not a tuning mode\n", TUNING)),
    (("session.auto_tune_mode=RL,GA",), "session.auto_tune_mode", ("several values for one run\n", "quotes make it")),
    (("session.auto_tune_seconds=0",), "session.auto_tune_seconds", ("above 0 and at most 2147483647\n",)),
    (("session.auto_tune_seconds=ten",), "session.auto_tune_seconds", ("not a number\n",)),
    (
        ("session.graph_run_mode=0", "session.auto_tune_mode=RL"),
        "session.graph_run_mode",
        ("session.auto_tune_mode needs training steps\n", "only evaluates"),
    ),
    (("session.graph_run_mode=2",), "session.graph_run_mode", ("whole number, 0 to 1\n", "0: online inference")),
    (("session.graph_run_mode=train",), "session.graph_run_mode", ("not a whole number\n", "1: training\n")),
    (("session.op_debug_level=5",), "session.op_debug_level", ("out of range\n", "whole number, 0 to 4\n")),
    (("session.op_debug_level=-1",), "session.op_debug_level", ("out of range\n", "1 source maps")),
    (("session.op_debug_level=true",), "session.op_debug_level", ("not a whole number\n",)),
    (("session.op_select_implmode=fast",), "session.op_select_implmode", ("high_precision, high_performance\n",)),
    (
        ("session.optypelist_for_implmode=MaxPool",),
        "session.optypelist_for_implmode",
        ('value    "MaxPool"\n', "null or Pooling\n", "nearest  Pooling\n", "only pooling has two"),
    ),
    (("session.optypelist_for_implmode=Conv2D",), "session.optypelist_for_implmode", ("null or Pooling\n",)),
    (("session.optypelist_for_implmode=[Pooling,Conv2D]",), "session.optypelist_for_implmode", ("null or Pooling\n",)),
    (("session.initialize_system=maybe",), "session.initialize_system", ("not true or false\n",)),
    (("session.enable_dump=true",), "session.dump_path", ("needs a folder\n", "hint     session.dump_path=...\n")),
    (("session.enable_dump=true", "session.dump_path=none"), "session.dump_path", ("a folder is missing\n",)),
    (
        ("session.enable_dump=true", "session.dump_path=.", "dump=async"),
        "session.enable_dump",
        ("two dumps\n", "dump=async requests the other one\n"),
    ),
    (("session.dump_step=9-5",), "session.dump_step", ("a range of steps runs backwards\n",)),
    (("session.graph_mode=0",), "session.graph_mode", ("unknown key\n", "nearest  session.graph_run_mode\n")),
]


def errors_of(call) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        call()
    assert caught.value.exit_code == 2
    return list(caught.value.errors) if isinstance(caught.value, ConfigErrors) else [caught.value]


def only_error_of(call) -> ConfigError:
    (error,) = errors_of(call)
    return error


def assert_tells(error: ConfigError, key: str, pieces) -> None:
    assert error.rows["key"] == key
    for piece in pieces:
        assert piece.replace("{place}", os.getcwd()) in f"{error}\n"


def shown(value: object) -> str:
    return f"value    {json.dumps(value)}\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """Where the command is started; the folder `locked` cannot be written, whoever runs the test."""
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir()
    usual = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("locked") and usual(path, mode))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@table(("key", "value", "pieces"), LEAVES)
def test_a_key_of_the_group(key, value, pieces):
    error = only_error_of(lambda: check({"profiling": {"name": "trace", key: value}}))
    assert_tells(error, f"profiling.{key}", (shown(value), *pieces))


@pytest.mark.parametrize(("key", "value", "pieces"), LEAVES)
def test_a_key_of_the_text(key, value, pieces):
    options = json.dumps({key: value})
    error = only_error_of(lambda: check({"profiling": {"options": options}}))
    assert_tells(error, f"profiling.options.{key}", (shown(value), *pieces))
    error = only_error_of(lambda: context.set_context(enable_profiling=True, profiling_options=options))
    assert_tells(error, f"profiling_options.{key}", (shown(value), *pieces))
    assert context.get_context("enable_profiling") is False


@table(("text", "pieces"), TEXTS)
def test_a_text(text, pieces):
    values = {"session": {"profiling_mode": True, "profiling_options": text, "fp_point": "a", "bp_point": "b"}}
    error = only_error_of(lambda: check(values))
    if "duplicate key" not in pieces[0]:
        assert_tells(error, "session.profiling_options", pieces)
    error = only_error_of(lambda: check({"session": {"profiling_options": text}}))  # also while nothing is profiled
    for piece in pieces:
        assert piece in f"{error}\n"
    assert str(error).startswith(
        f"ConfigError: {only_error_of(lambda: context.set_context(profiling_options=text)).what}"
    )


@table(("lines", "key", "pieces"), CONFIG, ids=[" ".join(row[0])[:60] for row in CONFIG])
def test_the_config(lines, key, pieces):
    error = only_error_of(lambda: compose(CommandLine(lines)))
    assert_tells(error, key, pieces)


def test_every_error_is_told_at_once():
    lines = (
        "profiling=trace",
        "profiling.training_trace=maybe",
        "profiling.output=nowhere",
        "session.op_debug_level=9",
    )
    keys = [error.rows["key"] for error in errors_of(lambda: compose(CommandLine(lines)))]
    assert sorted(keys) == ["profiling.output", "profiling.training_trace", "session.op_debug_level"]


def test_both_points_are_missed_at_once():
    errors = errors_of(lambda: compose(CommandLine(("session.profiling_mode=true",))))
    assert [error.rows["key"] for error in errors] == ["session.fp_point", "session.bp_point"]


def test_every_key_of_a_text_is_told_at_once():
    options = '{"result_path": "nowhere", "traing_trace": "on", "aicpu": "maybe"}'
    errors = errors_of(lambda: compose(CommandLine((f"profiling.options={options}",))))
    names = ["result_path", "traing_trace", "aicpu"]
    assert [error.rows["key"] for error in errors] == [f"profiling.options.{name}" for name in names]
    assert {error.rows["from"] for error in errors} == {"command line"}


@pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), ({}, "dict"), (True, "bool")])
def test_options_of_the_context_are_text(value, kind):
    error = only_error_of(lambda: context.set_context(profiling_options=value))
    assert error.what == "profiling_options must be a string"
    assert error.rows["given"] == kind


def test_profiling_of_the_context_is_on_or_off():
    error = only_error_of(lambda: context.set_context(enable_profiling="on"))
    assert error.what == "enable_profiling must be True or False"


def test_a_file_and_its_line_are_told(place):
    (place / "mine").mkdir()
    (place / "mine" / "config.yaml").write_text("defaults: [/schema/run, _self_]\nsession:\n  auto_tune_mode: XX\n")
    error = only_error_of(lambda: compose(CommandLine(config_path=place / "mine")))
    assert error.rows["from"] == "mine/config.yaml:3"

"""Invalid dump settings: each error names the key, the value and its repair, whichever source requests the dump."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE
from run_requests import request_of
from tables import table

from runner.config.check import check
from runner.config.compose import CommandLine, compose
from runner.errors import ConfigError, ConfigErrors, StorageError
from runner.experiment import observers
from runner.observe.dump import VARIABLE, settings

ROOT = Path(__file__).parents[2]
COMMON = {
    "dump_mode": 0,
    "path": "/absolute_path",
    "net_name": "ResNet50",
    "iteration": "0",
    "input_output": 0,
    "kernels": ["Default/Conv-op12"],
    "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
}
E2E = {"enable": True, "trans_flag": True}
STEPS = '"0|5-8|100-120", or "all"'
DEVICES = "whole number, 0 to 4095"
NAMES = "a list of full names"

# What a leaf key cannot be, in a config and in a file: key, value, pieces of the error besides these two.
LEAVES = [
    ("path", "absolute", ("not an absolute path\n", "an absolute path of letters, digits, - _ and /\n", "/absolute")),
    ("path", "./dump", ("not an absolute path\n", "an absolute path")),
    ("path", "../dump", ("not an absolute path\n", "nearest")),
    ("path", "~/dump", ("not an absolute path\n", "nearest", os.path.expanduser("~"))),
    ("path", "", ("not an absolute path\n", "an absolute path")),
    ("path", "/a b", ('the path of a dump cannot have: " "\n', "letters, digits, - _ and /")),
    ("path", "/a/../b", ('cannot have: "."\n', "letters, digits")),
    ("path", "/tmp/x$HOME;rm", ('cannot have: "$" ";"\n', "letters, digits")),
    ("path", "/größe", ('cannot have: "ö" "ß"\n', "letters, digits")),
    ("path", "/a\x00b", ("text with a NUL character\n", '"/a\\u0000b"\n')),
    ("path", 7, ("not text\n", 'nearest  "7"\n')),
    ("path", ["/a"], ("not text\n", "allowed  text")),
    ("path", True, ("not text\n", "allowed  text")),
    ("net_name", "", ("not the name of a network\n", "letters, digits, - and _, at most 200\n")),
    ("net_name", "Res Net", ("not the name of a network\n", "nearest  Res_Net\n")),
    ("net_name", "a/b", ("not the name of a network\n", "nearest  a_b\n")),
    ("net_name", "LeNet5\n", ("not the name of a network\n", "nearest  LeNet5\n")),
    ("net_name", 5, ("not text\n", 'nearest  "5"\n')),
    ("iteration", "5-", ("not a choice of steps\n", STEPS)),
    ("iteration", "8-5", ("a range of steps runs backwards\n", "nearest  5-8\n")),
    ("iteration", "0|8-5", ('a range of steps runs backwards: "8-5"\n', "nearest  5-8\n")),
    ("iteration", "-1", ("not a choice of steps\n", STEPS)),
    ("iteration", -1, ("not a choice of steps\n", STEPS)),
    ("iteration", "a", ("not a choice of steps\n", STEPS)),
    ("iteration", "0 | 5-8", ("not a choice of steps", "nearest  0|5-8\n")),
    ("iteration", " ", ("not a choice of steps\n", STEPS)),
    ("iteration", "", ("not a choice of steps\n", STEPS)),
    ("iteration", "0||5", ("not a choice of steps\n", STEPS)),
    ("iteration", "|", ("not a choice of steps\n", STEPS)),
    ("iteration", "5-6-7", ("not a choice of steps\n", STEPS)),
    ("iteration", "0|all", ('not a choice of steps: "all"\n', STEPS)),
    ("iteration", "All", ("not a choice of steps\n", STEPS)),
    ("iteration", "1e3", ("not a choice of steps\n", STEPS)),
    ("iteration", "9" * 30, ("not a choice of steps\n", STEPS)),
    ("iteration", 1.5, ("not a choice of steps\n", STEPS)),
    ("iteration", True, ("not a choice of steps\n", STEPS)),
    ("iteration", None, ("not a choice of steps\n", STEPS)),
    ("iteration", [0], ("not a choice of steps\n", STEPS)),
    ("dump_mode", 2, ("out of range\n", "whole number, 0 to 1\n", "1: those that kernels names")),
    ("dump_mode", -1, ("out of range\n", "whole number, 0 to 1\n")),
    ("dump_mode", True, ("not a whole number\n", "whole number, 0 to 1\n")),
    ("dump_mode", 0.5, ("not a whole number\n", "whole number, 0 to 1\n")),
    ("dump_mode", "0", ("not a whole number\n", "nearest  0\n")),
    ("dump_mode", None, ("not a whole number\n", "whole number, 0 to 1\n")),
    ("input_output", 3, ("out of range\n", "whole number, 0 to 2\n", "2: outputs")),
    ("input_output", "outputs", ("not a whole number\n", "2: outputs")),
    ("kernels", "Conv2D", ("not a list of names\n", NAMES, 'nearest  ["Conv2D"]\n')),
    ("kernels", {"a": 1}, ("not a list of names\n", NAMES)),
    ("kernels", [1], ("not a list of names\n", NAMES)),
    ("kernels", ["Conv2D", None], ("not a list of names\n", NAMES)),
    ("kernels", [""], ("not a list of names\n", NAMES)),
    ("kernels", None, ("not a list of names\n", NAMES)),
    ("support_device", 0, ("not a list\n", "a list of whole numbers\n", "[0, 1]")),
    ("support_device", "0,1", ("not a list\n", "a list of whole numbers\n")),
    ("support_device", [-1], ("out of range\n", DEVICES)),
    ("support_device", [4096], ("out of range\n", DEVICES)),
    ("support_device", [0.0], ("not a whole number\n", DEVICES, "nearest  0\n")),
    ("support_device", [False], ("not a whole number\n", DEVICES)),
    ("op_debug_mode", 4, ("out of range\n", "whole number, 0 to 3\n", "operators that overflow")),
    ("op_debug_mode", "all", ("not a whole number\n", "whole number, 0 to 3\n")),
    ("op_debug_mode", False, ("not a whole number\n", "whole number, 0 to 3\n")),
]

# What the config alone says: overrides, key, pieces.
CONFIG = [
    (("dump.path=/x",), "dump.path", ('"/x"', "add dump=sync or dump=async first")),
    (("dump.iteration=0|5-8",), "dump.iteration", ('"0|5-8"', "add dump=sync or dump=async first")),
    (("dump.trans_flag=true",), "dump.trans_flag", ("true", "add dump=sync first")),
    (("dump.dump_step=0",), "dump.dump_step", ("0", "add dump=ge first")),
    (("dump=sync", "dump.queue_mb=1"), "dump.queue_mb", ("1", "add dump=async or dump=ge first")),
    (("dump=sync", "dump.file_format=npy"), "dump.file_format", ('"npy"', "add dump=async or dump=ge first")),
    (("dump=async", "dump.pth=/x"), "dump.pth", ("unknown key", "nearest  dump.path\n", "command line")),
    (("dump=synk",), "dump", ("unknown option", '"synk"', "async, ge, none, sync\n", "nearest  sync\n")),
    (("dump.name=asink",), "dump.name", ("not one of the choices", "none, sync, async, ge\n", "nearest  async\n")),
    (("dump=sync", "dump.iteration=-1"), "dump.iteration", ("not a choice of steps", "value    -1\n", STEPS)),
    (("dump=sync", "dump.iteration=8-5"), "dump.iteration", ("backwards", '"8-5"', "5-8", "command line")),
    (("dump=sync", "dump.trans_flag=on"), "dump.trans_flag", ("not true or false", '"on"', "nearest  true\n")),
    (("dump=sync", "dump.enable=1"), "dump.enable", ("not true or false", "value    1\n", "true or false\n")),
    (
        ("dump=async", "dump.queue_mb=0"),
        "dump.queue_mb",
        ("out of range", "value    0\n", "whole number, 1 to 1048576\n"),
    ),
    (
        ("dump=async", "dump.queue_mb=1.5"),
        "dump.queue_mb",
        ("not a whole number", "1.5", "whole number, 1 to 1048576\n"),
    ),
    (("dump=async", "dump.file_format=npz"), "dump.file_format", ("not one of", '"npz"', "bin, npy\n", "npy\n")),
    (("dump=async", "dump.dump_mode=1"), "dump.kernels", ("there are none", "[]", "dump_mode 0 dumps all operators")),
    (("dump=sync", "dump.config=x.json"), "dump.config", ("requested twice", "x.json", "dump=none dump.config=x.json")),
    (("dump=sync", "mode=graph"), "dataset_sink_mode", ("true", "allowed  false\n", "dataset_sink_mode=false, or")),
    (("dump=ge",), "dump.dump_path", ("needs a folder", "null", "dump.dump_path=...")),
    (("dump=ge", "dump.dump_path=no/where"), "dump.dump_path", ("missing", '"no/where"', "mkdir -p /")),
    (("dump=ge", "dump.dump_path=file"), "dump.dump_path", ("not a folder", '"file"', "a folder that exists\n")),
    (("dump=ge", "dump.dump_path=7"), "dump.dump_path", ("not text", "value    7\n", 'nearest  "7"\n')),
    (("dump=ge", "dump.dump_step=all"), "dump.dump_step", ("not a choice", '"all"', "nearest  null\n")),
    (("dump=ge", "dump.dump_step=5-5"), "dump.dump_step", ("does not ascend: 5-5", '"5-5"', "nearest  5\n")),
    (("dump=ge", "dump.dump_step=8-5"), "dump.dump_step", ("backwards", '"8-5"', "nearest  5-8\n")),
    (("dump=ge", "dump.dump_step=0|"), "dump.dump_step", ("not a choice", '"0|"', '"0|3-5|10"')),
    (
        ("dump=ge", f"dump.dump_step={'|'.join(map(str, range(101)))}"),
        "dump.dump_step",
        ("101 sets of steps", "0|1|2", "at most 100"),
    ),
    (("dump=ge", "dump.dump_mode=both"), "dump.dump_mode", ("not one of", '"both"', "input, output, all\n")),
    (("dump=ge", "dump.dump_mode=1"), "dump.dump_mode", ("not one of", "value    1\n", "input, output, all\n")),
    (("dump=ge", "dump.enable_dump=yes"), "dump.enable_dump", ("not true or false", '"yes"', "nearest  true\n")),
    (("dump=ge", "dump.path=/x"), "dump.path", ("unknown key", '"/x"', "add dump=sync or dump=async first")),
    (("dump.config=nowhere.json",), "dump.config", ("cannot read", "nowhere.json", "No such file or directory\n")),
    (("dump.config=data_dump.txt",), "dump.config", ("not a JSON file", "data_dump.txt", "ends in .json\n")),
    (("dump.config=folder.json",), "dump.config", ("cannot read", "folder.json", "Is a directory\n")),
    (("dump.config=7",), "dump.config", ("not text", "value    7\n", 'nearest  "7"\n')),
    (("session.enable_exception_dump=2",), "session.enable_exception_dump", ("value    2\n", "0, 1, true or false\n")),
    (("session.enable_exception_dmp=1",), "session.enable_exception_dmp", ("session.enable_exception_dump\n",)),
]

# What a JSON file alone says: its sections, key, pieces.
FILES = [
    ({}, "common_dump_settings", ("a key is missing", '"common_dump_settings": {"dump_mode": 0')),
    ([], "common_dump_settings", ("not a group of keys", "value    []\n", "e2e_dump_settings")),
    ({"common_dump_settings": 3}, "common_dump_settings", ("not a group of keys", "value    3\n", "dump_mode, path")),
    ({"common_dump_settings": COMMON, "e2e_dump_setings": E2E}, "e2e_dump_setings", ("nearest  e2e_dump_settings\n",)),
    (
        {"common_dump_settings": {**COMMON, "iterations": "0"}},
        "common_dump_settings.iterations",
        ("unknown key", '"0"', "nearest  common_dump_settings.iteration\n"),
    ),
    (
        {"common_dump_settings": {**COMMON, "path": None}},
        "common_dump_settings.path",
        ("not text", "value    null\n", "allowed  text\n"),
    ),
    *(
        (
            {"common_dump_settings": {key: value for key, value in COMMON.items() if key != name}},
            f"common_dump_settings.{name}",
            ("a key is missing", f'such as  "{name}": '),
        )
        for name in COMMON
    ),
    (
        {"common_dump_settings": COMMON, "e2e_dump_settings": {"enable": True}},
        "e2e_dump_settings.trans_flag",
        ("a key is missing", '"trans_flag": true'),
    ),
    (
        {"common_dump_settings": COMMON, "e2e_dump_settings": {"trans_flag": True}},
        "e2e_dump_settings.enable",
        ("a key is missing", '"enable": true'),
    ),
    (
        {"common_dump_settings": COMMON, "e2e_dump_settings": {"enable": 1, "trans_flag": True}},
        "e2e_dump_settings.enable",
        ("not true or false", "value    1\n", "true or false\n"),
    ),
    (
        {"common_dump_settings": COMMON, "e2e_dump_settings": {"enable": True, "trans_flag": "on"}},
        "e2e_dump_settings.trans_flag",
        ("not true or false", '"on"', "nearest  true\n"),
    ),
    (
        {"common_dump_settings": COMMON, "async_dump_settings": {}},
        "async_dump_settings.enable",
        ("a key is missing", '"enable": true'),
    ),
    (
        {"common_dump_settings": COMMON, "async_dump_settings": {"enable": True, "op_debug_mode": 9}},
        "async_dump_settings.op_debug_mode",
        ("out of range", "value    9\n", "0 to 3\n"),
    ),
    (
        {
            "common_dump_settings": {**COMMON, "op_debug_mode": 0},
            "async_dump_settings": {"enable": True, "op_debug_mode": 3},
        },
        "async_dump_settings.op_debug_mode",
        ("a key has two values", "value    3\n", "0, as common_dump_settings.op_debug_mode"),
    ),
    (
        {"common_dump_settings": {**COMMON, "file_format": "npy"}, "e2e_dump_settings": E2E},
        "common_dump_settings.file_format",
        ("writes no .npy", '"npy"', "e2e_dump_settings.enable: false\n"),
    ),
    (
        {"common_dump_settings": {**COMMON, "dump_mode": 1, "kernels": []}},
        "common_dump_settings.kernels",
        ("there are none", "value    []\n", "dump_mode 0 dumps all operators"),
    ),
]

# Texts that are no such file: text, pieces.
TEXTS = [
    (b"", ("not JSON\n", "Expecting value\n", "{path}:1:1\n")),
    (b'{\n  "common_dump_settings": {\n    "path": "/a",\n  }\n}', ("not JSON\n", "{path}:")),
    (b'{\n  "common_dump_settings": {\n    path: 1}}', ("not JSON\n", "property name", "{path}:3:5\n")),
    (b'{"a": 1,\n // a comment\n "b": 2}', ("not JSON\n", "{path}:2:2\n")),
    (b'{"common_dump_settings": {}', ("not JSON\n", "{path}:1:28\n")),
    (b'{"a": {"path": "/a", "path": "/b"}}', ("duplicate key\n", "key   path\n", "{path}\n")),
    (b'{"common_dump_settings": NaN}', ("not a finite number\n", "NaN\n", "{path}\n")),
    (b'{"a": 1e999}', ("not a finite number\n", "inf\n")),
    (b"\xff\xfe{", ("not UTF-8 text\n", "byte 0\n", "{path}\n")),
    (b"[" * 100_000, ("nested too deeply\n", "64 levels\n")),
    (b'{"a": "' + b"x" * (1 << 20) + b'"}', ("the file is too large\n", "1048576 bytes\n")),
    (b'{"a": ' + b"9" * 5000 + b"}", ("the file cannot be read\n", "{path}\n")),
]

# Values of MINDSPORE_DUMP_CONFIG: value, pieces.
ENVIRONMENT = [
    (
        "data_dump.json",
        ("not an absolute path\n", '"data_dump.json"', "the absolute path of a .json file\n", "nearest"),
    ),
    ("~/data_dump.json", ("not an absolute path\n", f"nearest  {os.path.expanduser('~')}/data_dump.json\n")),
    ("/no/where/data_dump.json", ("cannot read", "/no/where/data_dump.json\n", "No such file or directory\n")),
    ("/etc/passwd", ("not a JSON file\n", '"/etc/passwd"', "ends in .json\n")),
    ("/", ("not a JSON file\n", '"/"', "ends in .json\n")),
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
        assert piece in f"{error}\n"


def shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Where the command is started."""
    (tmp_path / "file").touch()
    (tmp_path / "data_dump.txt").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


@table(("key", "value", "pieces"), LEAVES)
@table("kind", ["sync", "async"])
def test_a_key_of_the_config(kind, key, value, pieces, place):
    error = only_error_of(lambda: check({"dump": {"name": kind, key: value}}))
    assert_tells(error, f"dump.{key}", (f"value    {shown(value)}\n", *pieces))


@table(("key", "value", "pieces"), LEAVES)
def test_a_key_of_a_file(key, value, pieces, place):
    (place / "mine.json").write_text(json.dumps({"common_dump_settings": {**COMMON, key: value}}))
    error = only_error_of(lambda: check({"dump": {"config": "mine.json"}}))
    rows = ("file     mine.json\n", f"value    {shown(value)}\n")
    assert_tells(error, f"common_dump_settings.{key}", (*rows, *pieces))


@table(("lines", "key", "pieces"), CONFIG, ids=[" ".join(row[0])[:60] for row in CONFIG])
def test_the_config(lines, key, pieces, place):
    needed = ("dump.dump_path=.",) if lines[0] == "dump=ge" and not key.startswith("dump.dump_path") else ()
    assert_tells(only_error_of(lambda: compose(CommandLine((*lines, *needed)))), key, pieces)


@table(("sections", "key", "pieces"), FILES, ids=range(len(FILES)))
def test_a_file(sections, key, pieces, place):
    (place / "mine.json").write_text(json.dumps(sections))
    error = only_error_of(lambda: check({"dump": {"config": "mine.json"}}))
    assert_tells(error, key, ("mine.json\n", *pieces))


@table(("text", "pieces"), TEXTS, ids=range(len(TEXTS)))
def test_a_text(text, pieces, place):
    (place / "mine.json").write_bytes(text)
    error = only_error_of(lambda: check({"dump": {"config": "mine.json"}}))
    key = "path" if b'"path": "/b"' in text else "dump.config"
    assert_tells(error, key, [piece.replace("{path}", "mine.json") for piece in pieces])


@pytest.mark.parametrize(("value", "pieces"), ENVIRONMENT)
def test_the_environment(value, pieces, place, monkeypatch):
    monkeypatch.setenv(VARIABLE, value)
    for call in (lambda: check({}), lambda: settings.from_environment(VARIABLE)):
        assert_tells(only_error_of(call), VARIABLE, pieces)


def test_a_key_of_the_file_that_the_environment_names(place, monkeypatch):
    (place / "mine.json").write_text(json.dumps({"common_dump_settings": {**COMMON, "iteration": "8-5"}}))
    monkeypatch.setenv(VARIABLE, str(place / "mine.json"))
    for call in (lambda: check({}), lambda: settings.from_environment(VARIABLE)):
        pieces = (f"file     {place}/mine.json\n", '"8-5"', "nearest  5-8\n")
        assert_tells(only_error_of(call), "common_dump_settings.iteration", pieces)


def test_every_error_is_told_at_once(place):
    wrong = {**COMMON, "dump_mode": 2, "iteration": "a", "path": "x", "extra": 1}
    del wrong["net_name"]
    (place / "mine.json").write_text(json.dumps({"common_dump_settings": wrong, "e2e_dump_settings": {"enable": 1}}))
    found = errors_of(lambda: compose(CommandLine(("epochs=0", "dump.config=mine.json"))))
    names = ("extra", "net_name", "dump_mode", "path", "iteration")
    expected = {*(f"common_dump_settings.{name}" for name in names), "epochs"}
    assert {error.rows["key"] for error in found} == {
        *expected,
        "e2e_dump_settings.enable",
        "e2e_dump_settings.trans_flag",
    }
    lines = ("epochs=0", "dump=sync", "dump.path=x", "dump.iteration=a", "dump.kernels=a")
    found = errors_of(lambda: compose(CommandLine(lines)))
    assert {error.rows["key"] for error in found} == {"epochs", "dump.path", "dump.iteration", "dump.kernels"}


@pytest.mark.parametrize("path", ["{place}/file", "{place}/file/below/it"])
@pytest.mark.parametrize("way", ["config", "file"])
def test_a_path_that_is_no_folder(way, path, place):
    path = path.format(place=place)
    values, key = {"name": "sync", "path": path}, "dump.path"
    if way == "file":
        (place / "mine.json").write_text(json.dumps({"common_dump_settings": {**COMMON, "path": path}}))
        values, key = {"config": "mine.json"}, "common_dump_settings.path"
    pieces = (f"not a folder: {place}/file\n", f'"{path}"', "a path that does not exist")
    assert_tells(only_error_of(lambda: check({"dump": values})), key, pieces)


def test_a_path_that_the_system_refuses(place):
    long = {"dump": {"name": "sync", "path": f"{place}/{'x' * 300}"}}
    assert_tells(only_error_of(lambda: check(long)), "dump.path", ("a name of 300 bytes in a path\n", "255 bytes"))
    config = check({"dump": {"name": "sync", "path": "/proc/nothing"}})
    with pytest.raises(StorageError) as caught:
        observers.dump_settings(request_of(config, place))
    assert caught.value.exit_code == 5
    assert "/proc/nothing" in str(caught.value)
    assert "No such file or directory" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_path_without_permission(place):
    (place / "closed").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="not writable"):
        observers.dump_settings(request_of(check({"dump": {"name": "sync", "path": f"{place}/closed"}}), place))


@pytest.mark.parametrize("way", ["sync", "file", "environment"])
@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("sink", [True, False])
def test_a_synchronous_dump_and_sinking(way, mode, sink, place, monkeypatch):
    """PyNative mode does not sink, whatever the config says."""
    file = place / "mine.json"
    file.write_text(json.dumps({"common_dump_settings": COMMON, "e2e_dump_settings": E2E}))
    if way == "environment":
        monkeypatch.setenv(VARIABLE, str(file))
    dump = {"sync": {"name": "sync"}, "file": {"config": str(file)}, "environment": {}}[way]
    values = {"mode": mode, "dataset_sink_mode": sink, "dump": dump}
    if mode == "graph" and sink:
        source = {"sync": "dump=sync", "file": f"dump.config={file}", "environment": VARIABLE}[way]
        pieces = ("value    true\n", f"dump     {source}\n", "dataset_sink_mode=false, or an asynchronous dump")
        assert_tells(only_error_of(lambda: check(values)), "dataset_sink_mode", pieces)
    else:
        assert check(values).mode == mode


def test_wrong_sinking_is_not_told_twice(place):
    """What `dataset_sink_mode` would contradict is not known."""
    found = only_error_of(lambda: check({"mode": "graph", "dataset_sink_mode": "x", "dump": {"name": "sync"}}))
    assert found.what == "not true or false"


def test_there_are_enough_rows():
    assert len(LEAVES) + len(CONFIG) + len(FILES) + len(TEXTS) + len(ENVIRONMENT) >= 120


PROCESSES = [
    (("dump=sync", "dump.iteration=5-"), "", ("not a choice of steps", '"5-"', "command line")),
    (("dump=sync", "mode=graph"), "", ("dataset_sink_mode", "dataset_sink_mode=false")),
    (("--run",), "data_dump.json", (VARIABLE, "not an absolute path")),
]


@pytest.mark.parametrize(("words", "variable", "pieces"), PROCESSES)
def test_a_process(words, variable, pieces, place):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: variable}
    before = sorted(path.name for path in place.iterdir())
    command = [sys.executable, "-m", "runner", *words]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ConfigError: ")
    assert "Traceback" not in done.stderr
    for piece in pieces:
        assert piece in done.stderr
    assert sorted(path.name for path in place.iterdir()) == before

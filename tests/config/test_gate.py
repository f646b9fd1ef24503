"""Hostile configs and overrides: each is refused quickly, with exit code 2, and nothing happens on the disk."""

import functools
import os
import tempfile
import time
import tomllib
from pathlib import Path

import pytest
from tables import table

from runner.config.compose import CommandLine, compose
from runner.config.display import show_config
from runner.errors import ConfigError, RunnerError

CODE = [
    "_target_: os.system",
    "_partial_: true",
    "_args_: [x]",
    "_recursive_: false",
    "_convert_: all",
    '"()": os.mkdir',
]
GLOBAL = "# @package _global_\n"

FILES = {
    # names of callables, at any depth
    **{f"code {i}": GLOBAL + f"dataset:\n  {line}\n" for i, line in enumerate(CODE)},
    **{f"code at the top {i}": GLOBAL + f"{line}\n" for i, line in enumerate(CODE)},
    **{f"code in a list {i}": GLOBAL + f"eval:\n  metrics:\n    - {{{line}}}\n" for i, line in enumerate(CODE)},
    "class": GLOBAL + "dataset:\n  class: logging.FileHandler\n",
    "dot": GLOBAL + 'dataset:\n  ".": {level: 1}\n',
    "ext": GLOBAL + "dataset:\n  url: ext://os.system\n",
    "cfg": GLOBAL + "dataset:\n  url: cfg://handlers\n",
    "future special key": GLOBAL + "dataset:\n  _execution_whitelist_: ['*']\n",
    # Hydra's own settings
    "callbacks": GLOBAL + "hydra:\n  callbacks:\n    e: {_target_: os.mkdir, path: MARKER}\n",
    "callbacks without target": GLOBAL + "hydra:\n  callbacks:\n    e: {a: 1}\n",
    "job_logging": GLOBAL + 'hydra:\n  job_logging:\n    handlers: {e: {"()": os.mkdir, path: MARKER}}\n',
    "hydra_logging": GLOBAL
    + "hydra:\n  hydra_logging:\n    handlers: {e: {class: logging.FileHandler, filename: MARKER}}\n",
    "logging root": GLOBAL + "hydra:\n  job_logging: {root: {level: INFO}}\n",
    "searchpath": GLOBAL + "hydra:\n  searchpath: [file:///etc]\n",
    "launcher target": GLOBAL + "hydra:\n  launcher: {_target_: os.system}\n",
    "launcher setup": GLOBAL + "hydra:\n  launcher: {setup: ['touch MARKER']}\n",
    "launcher python": GLOBAL + "hydra:\n  launcher: {python: /tmp/evil}\n",
    "sweeper target": GLOBAL + "hydra:\n  sweeper: {_target_: os.system}\n",
    "sweeper storage": GLOBAL + "hydra:\n  sweeper: {storage: sqlite:///MARKER}\n",
    "env_set": GLOBAL + "hydra:\n  job: {env_set: {LD_PRELOAD: x}}\n",
    "env_copy": GLOBAL + "hydra:\n  job: {env_copy: [SECRET]}\n",
    "chdir": GLOBAL + "hydra:\n  job: {chdir: true}\n",
    "mode": GLOBAL + "hydra:\n  mode: MULTIRUN\n",
    "help": GLOBAL + "hydra:\n  help: {template: x}\n",
    "runtime": GLOBAL + "hydra:\n  runtime: {output_dir: /tmp/x}\n",
    "hydra is text": GLOBAL + "hydra: x\n",
    "hydra is a list": GLOBAL + "hydra: [x]\n",
    "run dir absolute": GLOBAL + "hydra:\n  run: {dir: /tmp/MARKER}\n",
    "run dir above": GLOBAL + "hydra:\n  run: {dir: a/../../MARKER}\n",
    "run dir home": GLOBAL + "hydra:\n  run: {dir: ~/MARKER}\n",
    "sweep dir above": GLOBAL + "hydra:\n  sweep: {dir: ../MARKER}\n",
    "subdir above": GLOBAL + "hydra:\n  sweep: {subdir: ../../MARKER}\n",
    "output_subdir above": GLOBAL + "hydra:\n  output_subdir: ../MARKER\n",
    "output_subdir absolute": GLOBAL + "hydra:\n  output_subdir: /tmp/MARKER\n",
    # packages
    "package hydra": "# @package hydra\nsearchpath: [/etc]\n",
    "package callbacks": "# @package hydra.callbacks\ne: {a: 1}\n",
    "package global hydra": "# @package _global_.hydra\nrun: {dir: x}\n",
    "package inside": "# @package dataset.hydra\na: 1\n",
    "package above": "# @package ../x\na: 1\n",
    "package empty part": "# @package a..b\na: 1\n",
    # defaults lists
    "defaults above": GLOBAL + "defaults:\n  - ../../outside\n",
    "defaults option above": GLOBAL + "defaults:\n  - /dataset: ../../outside\n",
    "defaults absolute option": GLOBAL + "defaults:\n  - override /dataset: /etc/passwd\n",
    "defaults options above": GLOBAL + "defaults:\n  - /dataset: [digits, ../outside]\n",
    "defaults package hydra": GLOBAL + "defaults:\n  - /dataset@hydra.callbacks: digits\n",
    "defaults package renamed": GLOBAL + "defaults:\n  - /dataset@a:hydra: digits\n",
    "defaults job_logging": GLOBAL + "defaults:\n  - override /hydra/job_logging: stdout\n",
    "defaults hydra_logging": GLOBAL + "defaults:\n  - override hydra/hydra_logging: hydra_debug\n",
    "defaults callbacks": GLOBAL + "defaults:\n  - /hydra/callbacks: x\n",
    "defaults launcher unknown": GLOBAL + "defaults:\n  - override /hydra/launcher: evil\n",
    "defaults is a mapping": GLOBAL + "defaults: {dataset: digits}\n",
    "defaults is text": GLOBAL + "defaults: digits\n",
    "defaults of numbers": GLOBAL + "defaults: [1]\n",
    "defaults with two keys": GLOBAL + "defaults:\n  - {dataset: digits, network: lenet5}\n",
    "defaults nested": GLOBAL + "defaults:\n  - /dataset: {a: b}\n",
    "defaults interpolation of env": GLOBAL + "defaults:\n  - /dataset: ${oc.env:SECRET}\n",
    "defaults scheme": GLOBAL + "defaults:\n  - pkg://hydra.conf/x\n",
    "defaults home": GLOBAL + "defaults:\n  - ~/x\n",
    "defaults backslash": GLOBAL + "defaults:\n  - 'a\\..\\b'\n",
    # interpolations
    "env": GLOBAL + "dataset: {url: '${oc.env:SECRET}'}\n",
    "env with default": GLOBAL + "dataset: {url: '${oc.env:SECRET,x}'}\n",
    "env in quotes": GLOBAL + "dataset: {url: '${oc.env:\"SECRET\"}'}\n",
    "env with blanks": GLOBAL + "dataset: {url: '${ oc.env : SECRET }'}\n",
    "env from a key": GLOBAL + "seed: 1\ndataset: {url: '${oc.env:${dataset.name}}'}\n",
    "env inside a default": GLOBAL + "dataset: {url: '${oc.env:HOME,${oc.env:SECRET}}'}\n",
    "env with a prefix of an allowed name": GLOBAL + "dataset: {url: '${oc.env:HOMEX}'}\n",
    "env with a lower name": GLOBAL + "dataset: {url: '${oc.env:runner_x}'}\n",
    "old env": GLOBAL + "dataset: {url: '${env:SECRET}'}\n",
    "resolver from a key": GLOBAL + "dataset: {url: '${oc.${dataset.name}:SECRET}'}\n",
    "resolver is a key": GLOBAL + "dataset: {url: '${${dataset.name}:SECRET}'}\n",
    "decode": GLOBAL + "dataset: {url: '${oc.decode:x}'}\n",
    "create": GLOBAL + "dataset: {url: '${oc.create:x}'}\n",
    "unknown resolver": GLOBAL + "dataset: {url: '${eval:1+1}'}\n",
    "unfinished": GLOBAL + "dataset: {url: '${dataset.name'}\n",
    "expression": GLOBAL + "dataset: {url: '${dataset.name + 1}'}\n",
    "env in a list": GLOBAL + "eval: {metrics: ['${oc.env:SECRET}']}\n",
    "env in a key": GLOBAL + "'${oc.env:SECRET}': 1\n",
    "cycle": GLOBAL + "dataset: {url: '${dataset.url}'}\n",
    "two-step cycle": GLOBAL + "dataset: {url: '${dataset.data_dir}', data_dir: '${dataset.url}'}\n",
    # YAML itself
    "python tag": GLOBAL + "dataset: !!python/object/apply:os.system [touch MARKER]\n",
    "python name": GLOBAL + "dataset: !!python/name:os.system\n",
    "local tag": GLOBAL + "dataset: !include /etc/passwd\n",
    "standard tag": GLOBAL + "epochs: !!int '3'\n",
    "binary tag": GLOBAL + "dataset: {url: !!binary aGk=}\n",
    "set tag": GLOBAL + "dataset: !!set {a}\n",
    "bomb": GLOBAL
    + "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{c}: &{c} [{','.join(['*' + chr(ord(c) - 1)] * 9)}]\n" for c in "bcdefgh"),
    "bomb by merging": GLOBAL
    + "a: &a {x: [1,2,3,4,5,6,7,8,9]}\n"
    + "".join(f"{c}: &{c} {{{','.join(f'k{i}: *' + chr(ord(c) - 1) for i in range(9))}}}\n" for c in "bcdefgh"),
    "alias of itself": GLOBAL + "a: &a [*a]\n",
    "alias of itself in a mapping": GLOBAL + "a: &a {b: *a}\n",
    "unknown alias": GLOBAL + "a: *nothing\n",
    "deep list": GLOBAL + "a: " + "[" * 70 + "]" * 70 + "\n",
    "very deep list": GLOBAL + "a: " + "[" * 100_000 + "\n",
    "deep mapping": GLOBAL + "a: " + "{a: " * 70 + "1" + "}" * 70 + "\n",
    "deep questions": "? " * 10_000 + "a\n",
    "deep dashes": "- " * 10_000 + "a\n",
    "many values": GLOBAL + "a: [" + "1," * 10_001 + "]\n",
    "many keys": GLOBAL + "".join(f"k{i}: 1\n" for i in range(6_000)),
    "too large": GLOBAL + "# " + "x" * (1 << 20) + "\n",
    "key twice": GLOBAL + "epochs: 1\nepochs: 2\n",
    "key twice inside": GLOBAL + "dataset: {name: digits, name: mnist}\n",
    "nan": GLOBAL + "optimizer: {learning_rate: .nan}\n",
    "inf": GLOBAL + "optimizer: {learning_rate: .inf}\n",
    "minus inf": GLOBAL + "optimizer: {learning_rate: -.inf}\n",
    "overflow": GLOBAL + "optimizer: {learning_rate: 1e999}\n",
    "huge whole number": GLOBAL + f"seed: {'9' * 5000}\n",
    "key is a list": GLOBAL + "? [a]\n: 1\n",
    "key is a number": GLOBAL + "1: 2\n",
    "key is null": GLOBAL + "null: 2\n",
    "key is true": GLOBAL + "on: 2\n",
    "several documents": GLOBAL + "a: 1\n---\nb: 1\n",
    "not a mapping": GLOBAL + "[1, 2]\n",
    "a word": GLOBAL + "hello\n",
    "bad syntax": GLOBAL + "a: [1\n",
    "tab": GLOBAL + "a:\n\t- 1\n",
    "control character": GLOBAL + "a: \x01\n",
    "directive": "%YAML 9.9\n---\na: 1\n",
    "unknown key with dunder": GLOBAL + "__class__: 1\n",
}

JSON = {
    "code": '{"@package": "_global_", "dataset": {"_target_": "os.system"}}',
    "callable": '{"@package": "_global_", "dataset": {"()": "os.mkdir"}}',
    "callbacks": '{"@package": "_global_", "hydra": {"callbacks": {"e": {"_target_": "os.mkdir"}}}}',
    "package": '{"@package": "hydra", "searchpath": ["/etc"]}',
    "package is a number": '{"@package": 3}',
    "package is a list": '{"@package": ["_global_"]}',
    "key twice": '{"@package": "_global_", "epochs": 1, "epochs": 2}',
    "nan": '{"@package": "_global_", "optimizer": {"learning_rate": NaN}}',
    "infinity": '{"@package": "_global_", "optimizer": {"learning_rate": Infinity}}',
    "overflow": '{"@package": "_global_", "optimizer": {"learning_rate": 1e999}}',
    "deep": "[" * 100_000,
    "deep and closed": '{"@package": "_global_", "a": ' + "[" * 500 + "]" * 500 + "}",
    "many values": '{"@package": "_global_", "a": [' + "1," * 10_001 + "1]}",
    "huge whole number": '{"@package": "_global_", "seed": ' + "9" * 5000 + "}",
    "defaults above": '{"@package": "_global_", "defaults": ["../../x"]}',
    "env": '{"@package": "_global_", "dataset": {"url": "${oc.env:SECRET}"}}',
    "env escaped": '{"@package": "_global_", "dataset": {"url": "\\u0024{oc.env:SECRET}"}}',
    "code escaped": '{"@package": "_global_", "dataset": {"\\u005ftarget_": "os.system"}}',
    "comment": '{"@package": "_global_" /* x */}',
    "trailing comma": '{"@package": "_global_",}',
    "empty": "",
    "text": '"hello"',
    "not UTF-8 escape": '{"@package": "_global_", "a": "\ud800"}'.encode("utf-8", "surrogatepass"),
    "UTF-16": '{"a": 1}'.encode("utf-16"),
}

OVERRIDES = [
    "+experiment@_global_=../../../outside/x",
    "+experiment@hydra.callbacks=lenet",
    "experiment@_global_=lenet",
    "dataset@hydra=digits",
    "+experiment=../../../outside/x",
    "+experiment=/etc/passwd",
    "+experiment=..",
    "+experiment=[lenet,../x]",
    "dataset=../experiment/lenet",
    "dataset=/etc/passwd",
    "dataset='~/x'",
    "dataset='pkg://hydra.conf'",
    "+dataset/../../x=y",
    "+../x=y",
    "hydra.callbacks.e._target_=os.mkdir",
    "+hydra.callbacks.e._target_=os.mkdir",
    "++hydra.callbacks={e:{_target_:os.mkdir}}",
    "hydra.callbacks=null",
    "hydra={callbacks:{e:{_target_:os.mkdir}}}",
    "++hydra={}",
    "~hydra",
    "~hydra.launcher",
    "hydra/callbacks=x",
    "+hydra/callbacks=x",
    "hydra/job_logging=stdout",
    "hydra/job_logging=none",
    "hydra/hydra_logging=disabled",
    "hydra/env=x",
    "hydra/help=x",
    "hydra/output=x",
    "hydra/launcher=../x",
    "hydra/launcher=evil",
    "hydra/sweeper=evil",
    "hydra/launcher@hydra.callbacks=basic",
    "hydra.job_logging.handlers.e.class=logging.FileHandler",
    "+hydra.job_logging.handlers.e={\\(\\):os.mkdir}",
    "hydra.job_logging.root.level=DEBUG",
    "hydra.hydra_logging=null",
    "hydra.searchpath=[file:///etc]",
    "hydra.searchpath=[pkg://os]",
    "+hydra.searchpath=[]",
    "hydra.launcher._target_=os.system",
    "hydra.sweeper._target_=os.system",
    "+hydra.launcher.setup=[touch]",
    "+hydra.launcher.python=/tmp/evil",
    "+hydra.launcher.srun_args=[x]",
    "+hydra.sweeper.storage_args=[x]",
    "+hydra.sweeper.params={x:{_target_:os.mkdir}}",
    "hydra.job.chdir=true",
    "hydra.job.chdir=1",
    "hydra.job.env_set={LD_PRELOAD:x}",
    "+hydra.job.env_set.LD_PRELOAD=x",
    "hydra.job.env_copy=[SECRET]",
    "hydra.mode=MULTIRUN",
    "hydra.runtime.output_dir=/tmp/x",
    "hydra.overrides.task=[x]",
    "hydra.help.template=x",
    "hydra.output_subdir=../x",
    "hydra.output_subdir=/tmp/x",
    "hydra.sweep.subdir=../../x",
    "hydra.sweep.subdir=/tmp/x",
    "hydra.run.dir=${oc.env:SECRET}",
    "hydra.job.name=${oc.env:SECRET}",
    "dataset._target_=os.system",
    "+dataset._target_=os.system",
    "++dataset={_target_:os.system}",
    "++dataset={name:digits,inner:{_partial_:true}}",
    "+_target_=os.system",
    "+x._args_=[1]",
    "+x._convert_=all",
    "+x._recursive_=false",
    "+x.class=y",
    "dataset.url=ext://os.system",
    "dataset.url='cfg://x'",
    "dataset.url=${oc.env:SECRET}",
    "dataset.url='${oc.env:SECRET}'",
    'dataset.url="${oc.env:SECRET}"',
    "dataset.url=${oc.env:SECRET,x}",
    "dataset.url=${oc.env:'SECRET'}",
    "dataset.url=${ oc.env:SECRET}",
    "dataset.url=${oc.env:${dataset.name}}",
    "dataset.url=${oc.${dataset.name}:SECRET}",
    "dataset.url=${oc.decode:x}",
    "dataset.url=${oc.create:x}",
    "dataset.url=${unknown:x}",
    "dataset.url=${dataset.url}",
    "dataset.url=${nothing.here}",
    "eval.metrics=[${oc.env:SECRET}]",
    "++expect={loss:{max:${oc.env:SECRET}}}",
    "a=" + "[" * 1000,
    "a=" + "x" * 5000,
    "a=" + "{a:" * 30 + "1" + "}" * 30,
    "epochs=range(1,1000000000)",
    "epochs=range(1,2,0)",
    "epochs=interval(1,2)",
    "epochs=1,2",
    "epochs=shuffle(1,2)",
    "epochs=glob(*)",
    "epochs",
    "=3",
    "epochs==3",
    "epochs=[1",
    "epochs='1",
    "epochs=\x00",
    "epochs=\n",
    "",
    " ",
    "~~epochs",
    "+++epochs=1",
    "~nothing",
    "~experiment",
    "++experiment={lenet:1}",
    "optimizer.learning_rate=nan",
    "optimizer.learning_rate=inf",
    "optimizer.learning_rate=-inf",
    "optimizer.learning_rate=1e999",
    "seed=" + "9" * 4000,
    "__class__=x",
    "dataset.__init__=x",
    "dataset.name.x=1",
    "mode.x=1",
]


@pytest.fixture(autouse=True)
def quiet_place(tmp_path, monkeypatch):
    """An empty folder to be in; nothing may appear in it, and the secret may not appear in a message."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("SECRET", "do-not-show")
    return place


LONGEST = 15  # what a refusal may take, in compositions of a harmless config; a bomb would take thousands


@functools.cache
def composition_seconds() -> float:
    """Processor time of a harmless composition; the first one in a process also pays for imports."""
    times = []
    for _ in range(4):
        start = time.process_time()
        compose(CommandLine(("+experiment=lenet",)))
        times.append(time.process_time() - start)
    return min(times[1:])


def refused(call: CommandLine, place: Path) -> None:
    """Refused, quickly (in processor time, which others do not lengthen much), and without a trace."""
    limit = LONGEST * composition_seconds()
    for _ in range(5):
        start = time.process_time()
        with pytest.raises(RunnerError) as caught:
            compose(call)
        seconds = time.process_time() - start
        assert isinstance(caught.value, ConfigError)
        assert caught.value.exit_code == 2
        assert "do-not-show" not in str(caught.value)
        assert not list(place.iterdir())
        if seconds < limit:
            return
    pytest.fail(f"refused after {seconds:.3f} s, and a harmless config takes {composition_seconds():.3f} s")


def experiment(tmp_path: Path, name: str, content: str | bytes) -> Path:
    folder = Path(tempfile.mkdtemp(dir=tmp_path)) / "configs" / "experiment"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder.parent


def test_there_are_enough_attacks():
    assert len(FILES) + len(JSON) + len(OVERRIDES) >= 150


@table("content", FILES.values(), ids=FILES.keys())
def test_a_hostile_yaml_file_is_refused(content, tmp_path, quiet_place):
    folder = experiment(tmp_path, "evil.yaml", content)
    refused(CommandLine(("+experiment=evil",), config_dir=folder), quiet_place)


@table("content", JSON.values(), ids=JSON.keys())
def test_a_hostile_json_file_is_refused(content, tmp_path, quiet_place):
    folder = experiment(tmp_path, "evil.json", content)
    refused(CommandLine(("+experiment=evil",), config_dir=folder), quiet_place)


@table("override", OVERRIDES, ids=lambda text: text[:40])
def test_a_hostile_override_is_refused(override, quiet_place):
    refused(CommandLine((override,)), quiet_place)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "hydra/config", "experiment/..", "x\x00", "~", "C:x"]
)
def test_a_main_config_stays_in_its_folder(name, quiet_place):
    refused(CommandLine((), config_name=name), quiet_place)


def test_showing_the_config_is_gated_too(quiet_place, capsys):
    with pytest.raises(ConfigError):
        show_config(CommandLine(("hydra.callbacks.e._target_=os.mkdir",)), "all", None, True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("target", ["file", "folder"])
def test_a_link_out_of_the_config_folder_is_refused(target, tmp_path, quiet_place):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "evil.yaml").write_text(GLOBAL + "epochs: 2\n")
    folder = tmp_path / "configs"
    if target == "folder":
        folder.mkdir()
        (folder / "experiment").symlink_to(outside)
    else:
        (folder / "experiment").mkdir(parents=True)
        (folder / "experiment" / "evil.yaml").symlink_to(outside / "evil.yaml")
    refused(CommandLine(("+experiment=evil",), config_dir=folder), quiet_place)


def test_a_pipe_is_not_read(tmp_path, quiet_place):
    folder = tmp_path / "configs" / "experiment"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "evil.yaml")
    refused(CommandLine(("+experiment=evil",), config_dir=folder.parent), quiet_place)


def test_configs_of_hydra_in_a_config_folder_are_not_seen(tmp_path, quiet_place):
    for group in ("callbacks", "job_logging", "launcher"):
        (tmp_path / "configs" / "hydra" / group).mkdir(parents=True)
        (tmp_path / "configs" / "hydra" / group / "evil.yaml").write_text("_target_: os.mkdir\n")
    folder = tmp_path / "configs"
    refused(CommandLine(("hydra/launcher=evil",), config_dir=folder), quiet_place)
    refused(CommandLine(("+hydra/callbacks=evil",), config_dir=folder), quiet_place)


ALLOWED = [
    "hydra.run.dir=/tmp/anywhere",
    "hydra.run.dir='a/${now:%Y}/${hydra:job.name}'",
    "hydra.job.name=x",
    "hydra.job.chdir=false",
    "hydra.verbose=true",
    "hydra.output_subdir=null",
    "hydra.sweep.subdir='${hydra.job.override_dirname}'",
    "dataset.data_dir=${oc.env:HOME}/data",
    "dataset.data_dir=${oc.env:RUNNER_DATA,x}",
    "dataset.data_dir=${dataset.name}",
    "dataset.url=https://example.org/a/../b",
    "hydra/launcher=basic",
]


@table("override", ALLOWED)
def test_harmless_settings_pass(override):
    compose(CommandLine((override,)))


def test_the_oldest_hydra_that_is_supported():
    """GHSA-37p2-j732-x8pj is fixed in 1.3.6."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert "hydra-core>=1.3.6" in project["project"]["dependencies"]

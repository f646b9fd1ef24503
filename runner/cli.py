"""The command `runner`: what the words mean, and which exit code it all ends with."""

import argparse
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from runner.errors import ConfigError, InternalError, RunnerError, nearest
from runner.host.lazy import uncollected

# The module of a command is loaded when the command is called: `doctor` opens every device, and `ls` needs none of it.
COMMANDS = {
    "ls": ("runner.report.list_runs", "runs, newest first: runner ls [DIR]"),
    "resume": (
        "runner.experiment.resume",
        "go on with what ended too early, run or sweep: runner resume DIR [overrides] [--force]",
    ),
    "doctor": ("runner.report.doctor", "versions, devices that really work, and why others do not"),
    "parse-print": ("runner.report.parse_print", "what the Print operator wrote into a file: runner parse-print FILE"),
    "compare": (
        "runner.report.compare",
        "the first operator that differs in two dumps, or metrics: runner compare A B",
    ),
    "report": ("runner.report.html.command", "one page about runs or a sweep: runner report RUN_OR_SWEEP... [-o FILE]"),
    "golden": ("runner.report.ci.golden", "numbers that must stay: runner golden --update|--check FILE RUN_DIR"),
    "convert": (
        "runner.report.dump.convert",
        "files of an asynchronous dump as .npy: runner convert -d PATH -out DIR [-f NCHW]",
    ),
}
HELP = """\
runner: a declarative experiment runner

usage
  runner [flags] [overrides]     run an experiment
  runner COMMAND ...             {commands}

examples
  runner +experiment=lenet                           train LeNet-5; needs no download
  runner +experiment=lenet mode=graph epochs=2       override any key
  runner -m +experiment=lenet seed=1,2,3             a sweep: one run per value
  runner +experiment=lenet --cfg job                 show the config without running

overrides
  key=value    set a key          group=option    choose an option of a group
  +group=option   add a group     ~key            back to the default

groups
  {groups}

flags
  -m, --multirun            sweep over comma-separated values
  -c, --cfg job|hydra|all   show the config; with --resolve, -p PACKAGE
  -i, --info [TOPIC]        where the config comes from
  -cn, --config-name NAME   another main config          -cd, --config-dir DIR   a folder with more configs
  -cp, --config-path DIR    a folder instead of conf/    -sc, --shell-completion install=bash|zsh|fish
  --junit FILE              the run, or each job of a sweep, as a test case for CI
  -h, --help                --hydra-help                 --version

exit codes
  0 ok   1 training failed   2 bad config or usage   3 device not available   4 run directory busy
  5 storage error   6 expectation or comparison does not hold   7 bad data file   8 jobs of a sweep failed
  130 interrupted (SIGINT)   143 terminated (SIGTERM)
"""
TOPICS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words say and return the exit code; errors are one short block on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except RunnerError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt as stop:
        terminated = type(stop).__name__ == "Terminated"
        what = "Terminated" if terminated else "Interrupted"
        return _fail(f"{what}; runner resume goes on with the run", 143 if terminated else 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `runner ls | head`: nobody reads any more
        return 0
    except Exception as error:
        if "runner.debug=true" in words:
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename}:{where.lineno} in {where.name}"
        block = InternalError(
            f"{type(error).__name__}: {error}", at=place, hint="runner.debug=true shows the traceback"
        )
        return _fail(str(block), block.exit_code)


def _fail(block: str, exit_code: int) -> int:
    sys.stdout.flush()
    print(block, file=sys.stderr)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in _load("runner.report.ci.annotations").annotations(block):
            print(line, file=sys.stderr)
    return exit_code


def _dispatch(words: list[str]) -> int:
    if words and words[0] in COMMANDS:
        module = _load(COMMANDS[words[0]][0])
        if words[0] == "resume":
            _next_steps(module.main(words[1:]))
            return 0
        return int(module.main() if words[0] == "doctor" else module.main(words[1:]))
    if words and not words[0].startswith(("-", "+", "~")) and "=" not in words[0]:
        _unknown_command(words[0])
    arguments = _parser().parse_intermixed_args(words)
    if arguments.help:
        print(_help(), end="")
    elif arguments.version:
        print(_version())
    elif arguments.shell_completion and "".join(arguments.overrides).startswith("query="):
        _complete(arguments.overrides[0].partition("=")[2])
    else:
        return _hydra(arguments)
    return 0


def _unknown_command(word: str) -> NoReturn:
    raise ConfigError(
        "unknown command",
        value=word,
        allowed=", ".join(COMMANDS),
        nearest=nearest(word, COMMANDS),
        hint="overrides are written key=value or group=option",
    )


def _hydra(arguments: argparse.Namespace) -> int:
    """The commands that need Hydra."""
    call = _call(arguments)
    if arguments.cfg or arguments.info or arguments.hydra_help or arguments.shell_completion:
        _show(_load("runner.config.display"), arguments, call)
        return 0
    start = partial(_start, call, arguments.multirun)
    if arguments.junit:
        start = partial(_load("runner.report.ci.junit").reported, Path(arguments.junit), call.overrides, start)
    ended = start()
    if not arguments.multirun:
        _next_steps(ended)
    return 0


def _call(arguments: argparse.Namespace) -> Any:
    folders = {name: getattr(arguments, name) for name in ("config_dir", "config_path")}
    paths = {name: Path(value) if value else None for name, value in folders.items()}
    return _load("runner.config.compose").Call(tuple(arguments.overrides), arguments.config_name, **paths)


def _complete(shell: str) -> None:
    """Answer a shell that asks what can stand next on its line, which it gives as COMP_LINE."""
    found = _load("runner.config.completion").answer(os.environ.get("COMP_LINE", ""), _parser(), _keys)
    print(("\n" if shell == "fish" else " ").join(found))


def _keys(before: argparse.Namespace, word: str) -> list[str]:
    """What can stand in place of an override: values that the schema knows, otherwise what Hydra knows."""
    key, equals, _ = word.partition("=")
    if equals and (listed := _load("runner.config.values").choices(key)):
        return [f"{key}={value}" for value in listed]
    found: list[str] = _load("runner.config.display").candidates(_call(before), word, before.multirun)
    return found


def _start(call: Any, is_sweep: bool) -> Any:
    """The summary of a run, or the outcomes of a sweep, which prints its table itself."""
    return (
        _load("runner.experiment.sweep.sweep").start(call)
        if is_sweep
        else _load("runner.experiment.launch").run_call(call)
    )


def _load(name: str) -> Any:
    with uncollected():
        module = importlib.import_module(name)
        gc.freeze()  # modules stay: no collection has to look at them again
    return module


def _show(display: Any, arguments: argparse.Namespace, call: Any) -> None:
    if arguments.cfg:
        display.show_config(call, arguments.cfg, arguments.package, arguments.resolve)
    elif arguments.info:
        display.show_info(call, arguments.info)
    elif arguments.hydra_help:
        display.show_hydra_help(call)
    else:
        display.complete(call)


def _next_steps(summary: dict[str, Any]) -> None:
    if summary.get("metrics"):
        values = ", ".join(f"{name} {value:.4f}" for name, value in summary["metrics"].items())
        speed = summary["steps_per_second"]
        print(f"{values} on the test split" + (f"; {summary['steps']} steps at {speed:.0f} steps/s" if speed else ""))
    if summary.get("run_dir"):
        print(f"run directory: {summary['run_dir']}")
        print("next: runner ls")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError("wrong usage", reason=message, hint="runner --help")


def _parser() -> _Parser:
    parser = _Parser(prog="runner", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("overrides", nargs="*")
    for flags in (("-h", "--help"), ("--hydra-help",), ("--version",), ("--resolve",), ("-r", "--run")):
        add(*flags, action="store_true")
    add("-m", "--multirun", action="store_true")
    add("--junit")
    add("-sc", "--shell-completion", action="store_true")
    add("-c", "--cfg", choices=("job", "hydra", "all"))
    add("-p", "--package")
    add("-i", "--info", nargs="?", const="all", choices=TOPICS)
    add("-cn", "--config-name", default="config")
    add("-cd", "--config-dir")
    add("-cp", "--config-path")
    return parser


def _help() -> str:
    commands = "\n                                 ".join(f"{name}: {text}" for name, (_, text) in COMMANDS.items())
    options: dict[str, list[str]] = _load("runner.config.options").all_options()
    groups = [f"{group:<12}{', '.join(names)}" for group, names in options.items()]
    return HELP.format(commands=commands, groups="\n  ".join(groups))


def _version() -> str:
    metadata = importlib.import_module("importlib.metadata")  # costs 10 ms; only this flag needs it
    names = ("runner", "hydra-core", "omegaconf", "numpy", "onnx", "onnxruntime")
    return ", ".join(f"{name} {_version_of(metadata, name)}" for name in names)


def _version_of(metadata: Any, name: str) -> str:
    try:
        return str(metadata.version(name))
    except metadata.PackageNotFoundError:
        return "not installed"

"""The command `runner`: its table of commands, what it does without one, and the exit codes.

The module of a command is imported when the command is called: `doctor` opens every device, and `ls` needs none of
that. These imports are statements inside functions, so type checkers compare each handler with its call.
"""

import argparse
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from runner.config import command_line
from runner.config.command_line import Call, Parser
from runner.errors import ConfigError, RunnerError, nearest, unexpected
from runner.host import resources
from runner.host.lazy import uncollected

Handler = Callable[[argparse.Namespace], int]


class Command(NamedTuple):
    """A command: one line about it, its arguments, and what returns its handler once it is called."""

    summary: str
    arguments: Callable[[Parser], None]
    load: Callable[[], Handler]


def _ls() -> Handler:
    from runner.report import list_runs

    return lambda given: list_runs.main(given.folder)


def _resume() -> Handler:
    from runner.experiment import resume

    return lambda given: _next_steps(resume.main([given.run, *given.overrides], given.force))


def _doctor() -> Handler:
    from runner.report import doctor

    return lambda given: doctor.main()


def _parse_print() -> Handler:
    from runner.report import parse_print

    return lambda given: parse_print.main(given.file)


def _compare() -> Handler:
    from runner.report import compare

    return compare.main


def _report() -> Handler:
    from runner.report.html import command

    return lambda given: command.main(given.folders, given.output)


def _golden() -> Handler:
    from runner.report.ci import golden

    return lambda given: golden.main(given.file, given.run, given.update)


def _convert() -> Handler:
    from runner.report.dump import convert

    return convert.main


COMMANDS = {
    "ls": Command("list runs, newest first", command_line.ls, _ls),
    "resume": Command("continue a run or a sweep that ended too early", command_line.resume, _resume),
    "doctor": Command("versions, usable devices, and why others are not usable", command_line.doctor, _doctor),
    "parse-print": Command("show what the operator Print wrote into a file", command_line.parse_print, _parse_print),
    "compare": Command("the first operator that differs in two dumps, or metrics", command_line.compare, _compare),
    "report": Command("one HTML page about runs or a sweep", command_line.report, _report),
    "golden": Command("keep the numbers of a run in a file, and check them", command_line.golden, _golden),
    "convert": Command("convert files of an asynchronous dump to .npy", command_line.convert, _convert),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; errors are one short block on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except KeyboardInterrupt as stop:
        from runner.host.signals import Terminated

        what, code = ("Terminated", 143) if isinstance(stop, Terminated) else ("Interrupted", 130)
        return _fail(f"{what}; runner resume goes on with the run", code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `runner ls | head`: no reader any more
        return 0
    except Exception as error:
        reported = error if isinstance(error, RunnerError) else unexpected(error)
        if reported is not error and "runner.debug=true" in words:
            traceback.print_exc()
        return _fail(str(reported), reported.exit_code)


def _fail(block: str, exit_code: int) -> int:
    sys.stdout.flush()
    print(block, file=sys.stderr)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from runner.report.ci.annotations import annotations

        for line in annotations(block):
            print(line, file=sys.stderr)
    return exit_code


def _dispatch(words: list[str]) -> int:
    if words and words[0] in COMMANDS:
        return run_command(words[0], words[1:])
    if words and not words[0].startswith(("-", "+", "~")) and "=" not in words[0]:
        _unknown_command(words[0])
    given = parser_of().parse_intermixed_args(words)
    if given.help:
        print(help_of(), end="")
    elif given.version:
        print(_version())
    elif given.shell_completion and "".join(given.overrides).startswith("query="):
        _complete(given.overrides[0].partition("=")[2])
    elif given.cfg or given.info or given.hydra_help or given.shell_completion:
        _show(given)
    else:
        return _run(given)
    return 0


def run_command(name: str, words: Sequence[str]) -> int:
    """Do what a command and its words say and return the exit code. Raises RunnerError."""
    if not {"-h", "--help"}.isdisjoint(words):
        print(help_of(name), end="")
        return 0
    given = parser_of(name).parse_intermixed_args(words)
    with _loading():
        handler = COMMANDS[name].load()
    return handler(given)


def parser_of(name: str | None = None) -> Parser:
    """The parser of a command, or of `runner` without one."""
    return Parser(f"runner {name}", COMMANDS[name].arguments) if name else Parser("runner", command_line.run)


def help_of(name: str | None = None) -> str:
    """What `--help` prints."""
    parser = parser_of(name)
    if name is None:
        commands = (f"{name:<14}{command.summary}" for name, command in COMMANDS.items())
        lists = {"commands": "\n  ".join(commands), "groups": "\n  ".join(_groups())}
        parser.description = str(parser.description).format(**lists)
    return parser.format_help()


def _groups() -> Iterator[str]:
    for group in sorted(resources.folder("conf").iterdir()):
        if group.is_dir():
            options = sorted(file.stem for file in group.iterdir() if file.suffix in (".yaml", ".json"))
            yield f"{group.name:<12}{', '.join(options)}"


def _unknown_command(word: str) -> NoReturn:
    raise ConfigError(
        "unknown command",
        value=word,
        allowed=", ".join(COMMANDS),
        nearest=nearest(word, COMMANDS),
        hint="overrides are written key=value or group=option",
    )


@contextmanager
def _loading() -> Iterator[None]:
    """For imports: without garbage collection, now and of what they leave, since modules stay."""
    with uncollected():
        yield
        gc.freeze()


def _run(given: argparse.Namespace) -> int:
    call = Call.of(given)
    start: Callable[[], Any] = partial(_start_sweep if given.multirun else _start_run, call)
    if given.junit:
        with _loading():
            from runner.report.ci.junit import reported
        start = partial(reported, Path(given.junit), call.overrides, start)
    ended = start()
    return 0 if given.multirun else _next_steps(ended)


def _start_run(call: Call) -> dict[str, Any]:
    with _loading():
        from runner.experiment import launch
    return launch.run_call(call)


def _start_sweep(call: Call) -> object:
    with _loading():
        from runner.experiment import sweep
    return sweep.start(call)


def _next_steps(summary: dict[str, Any]) -> int:
    if summary.get("metrics"):
        values = ", ".join(f"{name} {value:.4f}" for name, value in summary["metrics"].items())
        speed = summary["steps_per_second"]
        print(f"{values} on the test split" + (f"; {summary['steps']} steps at {speed:.0f} steps/s" if speed else ""))
    if summary.get("run_dir"):
        print(f"run directory: {summary['run_dir']}")
        print("next: runner ls")
    return 0


def _show(given: argparse.Namespace) -> None:
    call = Call.of(given)
    with _loading():
        from runner.config import display
    if given.cfg:
        display.show_config(call, given.cfg, given.package, given.resolve)
    elif given.info:
        display.show_info(call, given.info)
    elif given.hydra_help:
        display.show_hydra_help(call)
    else:
        display.complete(call)


def _complete(shell: str) -> None:
    """Print for a shell what can stand next on its line, which it gives as COMP_LINE."""
    from runner.config.completion import answer

    found = answer(os.environ.get("COMP_LINE", ""), COMMANDS, parser_of, _keys)
    print(("\n" if shell == "fish" else " ").join(found))


def _keys(before: Sequence[str], word: str) -> list[str]:
    """What can stand in place of an override: values that the schema knows, otherwise what Hydra knows."""
    from runner.config.values import choices

    given = parser_of().parse_intermixed_args(before)
    key, equals, _ = word.partition("=")
    if equals and (listed := choices(key)):
        return [f"{key}={value}" for value in listed]
    with _loading():
        from runner.config import display
    return display.candidates(Call.of(given), word, given.multirun)


def _version() -> str:
    from importlib import metadata  # costs 10 ms; only this flag needs it

    def version(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "not installed"

    names = ("runner", "hydra-core", "omegaconf", "numpy", "onnx", "onnxruntime")
    return ", ".join(f"{name} {version(name)}" for name in names)

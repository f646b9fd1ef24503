"""The command `runner`: the table of its commands, runs and sweeps, and exit codes.

The module of a command is imported when the command is called: `doctor` opens every device, and `ls` needs none of
them. The imports are statements inside functions, so that type checkers verify the calls.
"""

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from runner.config import commands as command_arguments, commands as command_line, commands as folder_arguments
from runner.config.commands import CommandLine, Parser
from runner.errors import ConfigError, RunnerError, StorageError, known_names, unexpected
from runner.experiment.summary_text import summary_text
from runner.host.console import Console, open_standard_descriptors
from runner.host.lazy import loading
from runner.host.machine import version_line

Handler = Callable[[argparse.Namespace], int]


class Command(NamedTuple):
    """A command: a summary of one line, the declaration of its arguments, and a function that imports its handler.

    `trains`: its results are in files, so that it succeeds even if standard output cannot be written.
    """

    summary: str
    arguments: Callable[[Parser], None]
    load: Callable[[], Handler]
    trains: bool = False


def _ls() -> Handler:
    from runner.register import PLURALS

    def handle(args: argparse.Namespace) -> int:
        if args.folder in PLURALS:
            from runner.report import commands

            return commands.list_entries(args)
        from runner.report.runs import list as list_runs

        return list_runs.main(args)

    return handle


def _rm() -> Handler:
    from runner.report.runs import folders

    return folders.main


def _watch() -> Handler:
    from runner.report.runs import watch

    return watch.main


def _resume() -> Handler:
    from runner.experiment import resume

    return lambda args: _report_summary(resume.main([args.run, *args.overrides], args.force, args.code))


def _eval() -> Handler:
    from runner.experiment import predict as evaluate_run

    return lambda args: _report_summary(evaluate_run.main([args.run, *args.overrides], args.code))


def _predict() -> Handler:
    from runner.report import commands

    return commands.predict_rows


def _export() -> Handler:
    from runner.experiment import export

    return export.main


def _inspect() -> Handler:
    from runner.report import onnx_file

    return onnx_file.inspect_model


def _new() -> Handler:
    from runner.config import new_project

    return lambda args: new_project.main(args.folder, args.name)


def _doctor() -> Handler:
    from runner.report import doctor

    return lambda args: doctor.doctor()


def _parse_print() -> Handler:
    from runner.report import commands

    return lambda args: commands.parse_print(args.file)


def _compare() -> Handler:
    def handle(args: argparse.Namespace) -> int:
        if Path(args.a).suffix == ".onnx":
            from runner.report import onnx_file

            return onnx_file.compare_import(args)
        from runner.report import compare

        return compare.main(args)

    return handle


def _report() -> Handler:
    from runner.report.html import command

    return lambda args: command.main(args.folders, args.output)


def _golden() -> Handler:
    from runner.report import ci

    return lambda args: ci.main(args.file, args.run, args.update)


def _convert() -> Handler:
    from runner.report.dump import convert

    return convert.main


COMMANDS = {
    "ls": Command("list runs, newest first; or networks, datasets, ...", folder_arguments.ls, _ls),
    "rm": Command("remove runs and sweeps", folder_arguments.rm, _rm),
    "watch": Command("follow a run until it has ended", folder_arguments.watch, _watch),
    "resume": Command("continue an unfinished run or sweep", command_arguments.resume, _resume, trains=True),
    "eval": Command("evaluate a finished run", command_arguments.evaluate, _eval, trains=True),
    "predict": Command("run the network of a run on new files", command_arguments.predict, _predict),
    "export": Command("write the training step of a run for other programs", command_arguments.export, _export, True),
    "inspect": Command("show an ONNX file, and whether it can be trained", command_arguments.inspect, _inspect),
    "new": Command("create a small working project", command_arguments.new, _new),
    "doctor": Command("check packages, machine and devices", command_arguments.doctor, _doctor),
    "parse-print": Command("show a file that the operator Print wrote", command_arguments.parse_print, _parse_print),
    "compare": Command("compare two runs: their dumps, or their metrics", command_arguments.compare, _compare),
    "report": Command("write an HTML page about runs or a sweep", command_arguments.report, _report),
    "golden": Command("save the results of a run in a file, or check them", command_arguments.golden, _golden),
    "convert": Command("convert files of an asynchronous dump to .npy", command_arguments.convert, _convert),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; errors are one short block on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    open_standard_descriptors()
    with Console() as console:
        try:
            code = _dispatch(words)
            _check_output(console, words)
            return code
        except KeyboardInterrupt as stop:
            from runner.host.process import Terminated, exit_code

            what = "Terminated" if isinstance(stop, Terminated) else "Interrupted"
            return _fail(f"{what}; runner resume continues the run", exit_code(stop))
        except Exception as error:
            reported = error if isinstance(error, RunnerError) else unexpected(error)
            if reported is not error and "runner.debug=true" in words:
                traceback.print_exc()
            return _fail(str(reported), reported.exit_code)


def _check_output(console: Console, words: Sequence[str]) -> None:
    """Raise StorageError for the output of a command that is not complete, unless its reader has closed the pipe."""
    problem = console.problems().get("stdout")
    is_report = bool(words) and words[0] in COMMANDS and not COMMANDS[words[0]].trains
    if problem and is_report and problem != os.strerror(errno.EPIPE):  # `runner ls | head` is not an error
        raise StorageError("the output of the command cannot be written", path="standard output", reason=problem)


def _fail(block: str, exit_code: int) -> int:
    from runner.report.ci import print_failure

    print_failure(block)
    return exit_code


def _dispatch(words: list[str]) -> int:
    if words and words[0] in COMMANDS:
        return run_command(words[0], words[1:])
    if words and not words[0].startswith(("-", "+", "~")) and "=" not in words[0]:
        hint = "overrides are written key=value or group=option"
        raise ConfigError("unknown command", value=words[0], **known_names(words[0], COMMANDS), hint=hint)
    args = parser_of().parse_intermixed_args(words)
    if args.help or not words:
        print(help_of(), end="")
    elif args.version:
        print(version_line())
    elif args.shell_completion and "".join(args.overrides).startswith("query="):
        _complete(args.overrides[0].partition("=")[2])
    elif args.cfg or args.info or args.hydra_help or args.shell_completion:
        _show(args)
    else:
        return _run(args)
    return 0


def run_command(name: str, words: Sequence[str]) -> int:
    """Run a command with the words after its name and return the exit code. Raises RunnerError."""
    if not {"-h", "--help"}.isdisjoint(words):
        print(help_of(name), end="")
        return 0
    args = parser_of(name).parse_intermixed_args(words)
    with loading():
        handler = COMMANDS[name].load()
    return handler(args)


def parser_of(name: str | None = None) -> Parser:
    """The parser of a command, or of `runner` itself (None)."""
    return Parser(f"runner {name}", COMMANDS[name].arguments) if name else Parser("runner", command_line.run)


def help_of(name: str | None = None) -> str:
    """The output of `--help`."""
    parser = parser_of(name)
    if name is None:
        from runner.config.options import group_lines

        commands = (f"{name:<14}{command.summary}" for name, command in COMMANDS.items())
        lists = {"commands": "\n  ".join(commands), "groups": "\n  ".join(group_lines())}
        parser.description = str(parser.description).format(**lists)
    return parser.format_help()


def _run(args: argparse.Namespace) -> int:
    line = CommandLine.of(args)
    start: Callable[[], Any] = partial(_start, line, args.multirun)
    if args.junit:
        with loading():
            from runner.report.ci import run_and_report
        start = partial(run_and_report, Path(args.junit), line.overrides, start)
    result = start()
    return 0 if args.multirun else _report_summary(result)


def _start(line: CommandLine, multirun: bool) -> object:
    if multirun:
        with loading():
            from runner.experiment import sweep
        return sweep.start(line)
    with loading():
        from runner.experiment import launch
    return launch.run_call(line)


def _report_summary(summary: dict[str, Any]) -> int:
    print(summary_text(summary), end="")
    return 0


def _show(args: argparse.Namespace) -> None:
    with loading():
        from runner.config import display
    display.show_requested(args)


def _complete(shell: str) -> None:
    """Print the candidates for the last word of COMP_LINE, the shell's command line."""
    from runner.config.completion import complete

    candidates = complete(os.environ.get("COMP_LINE", ""), COMMANDS, parser_of, _override_candidates)
    print(("\n" if shell == "fish" else " ").join(candidates))


def _override_candidates(before: Sequence[str], word: str) -> list[str]:
    """Candidates for an override: values from the schema, otherwise those of Hydra."""
    from runner.config.values import choices

    args = parser_of().parse_intermixed_args(before)
    key, equals, _ = word.partition("=")
    if equals and (values := choices(key)):
        return [f"{key}={value}" for value in values]
    with loading():
        from runner.config import display
    return display.candidates(CommandLine.of(args), word, args.multirun)

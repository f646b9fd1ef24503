"""The command `runner`: runs and sweeps, dispatch to commands (`runner.commands`), help, completion and exit codes."""

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from runner import commands
from runner.commands import COMMANDS
from runner.config.command_line import CommandLine, Parser, run
from runner.errors import ConfigError, RunnerError, StorageError, known_names, unexpected
from runner.host import arithmetic
from runner.host.console import LOG, Console, open_standard_descriptors, visible
from runner.host.machine import version_line
from runner.host.process import exit_code, killed_by_signals, launched, stop_text


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; errors are one short block on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        arithmetic.is_command(words)
    open_standard_descriptors()
    with Console() as console:
        try:
            _require_working_directory()
            code, is_report = _dispatch(words)
            if is_report:
                _check_output(console)
            return code
        except KeyboardInterrupt as stop:
            return _fail(stop_text(stop), exit_code(stop))
        except Exception as error:
            reported = error if isinstance(error, RunnerError) else unexpected(error)
            if reported is not error and "runner.debug=true" in words:
                traceback.print_exc()
            return _fail(str(reported), reported.exit_code)


def _require_working_directory() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        what, repair = "the working directory does not exist any more", "cd into a directory that exists"
        raise StorageError(what, path=os.environ.get("PWD"), repair=repair) from None


def _check_output(console: Console) -> None:
    """Raise StorageError for the output of a command that is not complete, unless its reader has closed the pipe."""
    problem = console.problems().get("stdout")
    if problem and problem != os.strerror(errno.EPIPE):  # `runner ls | head` is not an error
        raise StorageError("the output of the command cannot be written", path="standard output", reason=problem)


def _fail(block: str, exit_code: int) -> int:
    """Print an error block on standard error, and its annotations in a job of GitHub Actions.

    Without an import: it may be the memory that is missing.
    """
    sys.stdout.flush()
    lines = [visible(line) for line in block.split("\n")]
    if os.environ.get("GITHUB_ACTIONS") == "true":
        lines += commands.annotations(block)
    print("\n".join(lines), file=sys.stderr)
    return exit_code


def _dispatch(words: list[str]) -> tuple[int, bool]:
    """Do what the words say; returns the exit code, and whether the result is what was printed."""
    if words and words[0] in COMMANDS:
        if _is_executed_by_first(words[0]):
            return 0, False
        with killed_by_signals() if COMMANDS[words[0]].has_ranks else nullcontext():
            return run_command(words[0], words[1:]), not COMMANDS[words[0]].trains or _wants_help(words)
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
        commands.show_requested(args)
    else:
        return _run(args), False
    return 0, True


def _wants_help(words: Sequence[str]) -> bool:
    """Whether the words of a command ask for its help."""
    return not {"-h", "--help"}.isdisjoint(words)


def _is_executed_by_first(name: str) -> bool:
    """Whether another process of mpirun executes this command, which has no ranks; the first one says so."""
    rank, size = launched()
    if size > 1 and rank == 0 and not COMMANDS[name].has_ranks:
        LOG.warning("mpirun launched %d processes: the first one executes runner %s", size, name)
    return rank > 0 and not COMMANDS[name].has_ranks


def run_command(name: str, words: Sequence[str]) -> int:
    """Run a command with the words after its name and return the exit code. Raises RunnerError."""
    if _wants_help(words):
        print(help_of(name), end="")
        return 0
    return COMMANDS[name].handler(parser_of(name).parse_intermixed_args(words))


def parser_of(name: str | None = None) -> Parser:
    """The parser of a command, or of `runner` itself (None)."""
    return Parser(f"runner {name}", COMMANDS[name].arguments) if name else Parser("runner", run)


def help_of(name: str | None = None) -> str:
    """The output of `--help`."""
    parser = parser_of(name)
    if name is None:
        rows = (f"{name:<14}{command.summary}" for name, command in COMMANDS.items())
        lists = {"commands": "\n  ".join(rows), "groups": "\n  ".join(commands.group_lines())}
        parser.description = str(parser.description).format(**lists)
    return parser.format_help()


def _run(args: argparse.Namespace) -> int:
    line = CommandLine.of(args)
    start: Callable[[], Any] = partial(commands.run_sweep if args.multirun else commands.run_once, line)
    if args.junit:
        start = partial(commands.run_and_report, Path(args.junit), line.overrides, start)
    with killed_by_signals():
        result = start()
    if not args.multirun:
        commands.print_summary(result)
    return 0


def _complete(shell: str) -> None:
    """Print the candidates for the last word of COMP_LINE, the shell's command line."""
    candidates = commands.complete(os.environ.get("COMP_LINE", ""), COMMANDS, parser_of, _override_candidates)
    print(("\n" if shell == "fish" else " ").join(candidates))


def _override_candidates(before: Sequence[str], word: str) -> list[str]:
    """Candidates for an override: values from the schema, otherwise those of Hydra."""
    args = parser_of().parse_intermixed_args(before)
    key, equals, _ = word.partition("=")
    if equals and (values := commands.choices(key)):
        return [f"{key}={value}" for value in values]
    found: list[str] = commands.override_candidates(CommandLine.of(args), word, args.multirun)
    return found

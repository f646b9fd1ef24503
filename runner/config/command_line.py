"""The command line: the parser of `runner` and of its commands, types of arguments, and the flags of a run.

`CommandLine` is the part that determines a config. The commands themselves are in `runner.commands`.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

from runner.errors import ConfigError
from runner.validation.paths import path_problem

OVERRIDE = "KEY=VALUE"
_RUN = """\
A declarative experiment runner.

commands (runner COMMAND --help describes one)
  {commands}

examples
  runner +experiment=lenet                           train LeNet-5; needs no download
  runner +experiment=lenet mode=graph epochs=2       override any key
  runner -m +experiment=lenet seed=1,2,3             a sweep: one run per value
  runner +experiment=lenet --cfg job                 show the config without running

overrides
  key=value       set a key       group=option    choose an option of a group
  +group=option   add a group     ~key            back to the default

groups
  {groups}"""


class CommandLine(NamedTuple):
    """The part of a command line that determines a config: overrides, and where the config files are.

    `recorded` are the keys among the overrides that a file has, which the user has not typed: the journal of a resumed
    sweep, or `hydra.sweeper.params`.
    """

    overrides: tuple[str, ...] = ()
    config_name: str = "config"
    config_dir: Path | None = None
    config_path: Path | None = None
    recorded: frozenset[str] = frozenset()
    code: tuple[str, ...] = ()  # modules and paths of the user's code, in addition to the project's

    @classmethod
    def of(cls, args: argparse.Namespace) -> "CommandLine":
        """From the parsed arguments of `run`."""
        config_dir, config_path = (Path(folder) if folder else None for folder in (args.config_dir, args.config_path))
        return cls(tuple(args.overrides), args.config_name, config_dir, config_path, code=tuple(args.code))


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help of fixed width, with the metavar after all names of a flag, as in Python 3.13 and later."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=110, max_help_position=32)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    """The parser of `runner` or of one of its commands, with the arguments that `declare` adds.

    `--help` only sets a flag, flags cannot be abbreviated, and errors are raised as ConfigError.
    """

    def __init__(self, prog: str, declare: Callable[["Parser"], None]) -> None:
        super().__init__(prog, formatter_class=_Formatter, add_help=False, allow_abbrev=False)
        self.color = False  # Python 3.14 would colour usages, which are in errors, and so in files
        self.flags = self.add_argument_group("flags")
        declare(self)
        self.flags.add_argument("-h", "--help", action="store_true", help="show this help")

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with the message of argparse and the usage of the command."""
        usage = " ".join(self.format_usage().split()[1:]).replace(" [-h]", "")
        raise ConfigError("wrong usage", reason=message, usage=usage, hint=f"{self.prog} --help")


def non_negative(text: str) -> float:
    """Parse a finite number that is not negative. Raises ArgumentTypeError, which argparse reports."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return value


def positive(text: str) -> int:
    """Parse a whole number of at least 1. Raises ArgumentTypeError, which argparse reports."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:10]) < 10**9:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def path(text: str) -> str:
    """Parse the path of a file or folder, existing or not. Raises ArgumentTypeError, which argparse reports."""
    if problem := path_problem(text):
        raise argparse.ArgumentTypeError(problem)
    return text


def code(parser: Parser) -> None:
    """The flag `--code` of the commands that build networks or datasets."""
    text = "a module or file with your networks, datasets or others; repeatable"
    parser.flags.add_argument("--code", action="append", default=[], type=path, metavar="FILE", help=text)


def run(parser: Parser) -> None:
    """`runner [flags] [overrides]`. `{commands}` and `{groups}` in the description are placeholders."""
    parser.usage = "runner [flags] [overrides]"
    parser.description = _RUN
    parser.epilog = """\
exit codes
  0 ok   1 training failed   2 bad config or usage   3 device not available   4 run directory busy
  5 storage error   6 expectation or comparison does not hold   7 bad data file   8 jobs of a sweep failed
  130 interrupted (SIGINT)   143 terminated (SIGTERM)"""
    parser.add_argument("overrides", nargs="*", metavar=OVERRIDE, help=argparse.SUPPRESS)
    add = parser.flags.add_argument
    add("-m", "--multirun", action="store_true", help="sweep over comma-separated values")
    parts = ("job", "hydra", "all")
    add("-c", "--cfg", choices=parts, metavar="|".join(parts), help="show the config without running")
    add("-p", "--package", metavar="PACKAGE", help="with --cfg: only this part of the config")
    add("--resolve", action="store_true", help="with --cfg: resolve interpolations")
    topics = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
    info = f"where the config comes from; TOPIC is {', '.join(topics)}"
    add("-i", "--info", nargs="?", const="all", choices=topics, metavar="TOPIC", help=info)
    add("-cn", "--config-name", default="config", metavar="NAME", help="another main config")
    add("-cd", "--config-dir", type=path, metavar="DIR", help="a folder with more configs")
    add("-cp", "--config-path", type=path, metavar="DIR", help="a folder instead of conf/")
    code(parser)
    add(
        "--junit",
        type=path,
        metavar="FILE",
        help="write a JUnit file with the run, or each job of a sweep, as a test case",
    )
    add("-sc", "--shell-completion", action="store_true", help="with install=bash|zsh|fish or uninstall=...")
    add("-r", "--run", action="store_true", help="a single run; for one without overrides")
    add("--hydra-help", action="store_true", help="show Hydra's own help")
    add("--version", action="store_true", help="show the versions of runner and its dependencies")

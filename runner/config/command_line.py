"""Declarations of the command line: the flags of a run, and the arguments of each command.

Parsing, `--help`, tab completion and the reference page are generated from them, without loading what a command needs
to do its work. The metavar of an argument determines its completion: RUN, RUN_DIR and RUN_OR_SWEEP complete run
directories, FILE, PATH and DIR complete paths, OVERRIDE completes overrides.
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
    add("-r", "--run", action="store_true", help="a single run (the default)")
    add("--hydra-help", action="store_true", help="show Hydra's own help")
    add("--version", action="store_true", help="show the versions of runner and its dependencies")


def ls(parser: Parser) -> None:
    """`runner ls`."""
    parser.description = """\
Runs and jobs of sweeps below a folder with their status, loss and accuracy, newest first. Or what a config can name:
networks, datasets, losses, metrics, optimizers, schedules or callbacks, with the place and the keys of each."""
    text = "default: outputs/ and multirun/; or one of the words above (./networks is a folder)"
    parser.add_argument("folder", nargs="?", type=path, metavar="DIR", help=text)
    code(parser)


def resume(parser: Parser) -> None:
    """`runner resume`."""
    parser.description = """\
Continue a run from its newest valid checkpoint, or run the unfinished jobs of a sweep: those that never began, failed
or were interrupted. A run continues only if nothing has changed that affects its results. For the run of a script
(runner.record), the script is started again; it takes no overrides."""
    parser.add_argument("run", metavar="RUN_OR_SWEEP", help="its directory")
    parser.add_argument("overrides", nargs="*", default=[], metavar=OVERRIDE, help="such as epochs=100")
    code(parser)
    parser.flags.add_argument("--force", action="store_true", help="continue despite changes that affect the results")


def doctor(parser: Parser) -> None:
    """`runner doctor`."""
    parser.description = """\
Versions of packages, processor and memory; whether each device can run a convolution and, if not, the reason and the
repair; whether run directories can be created here."""
    parser.epilog = "exit codes\n  0 the CPU works and all packages are installed   3 otherwise"


def parse_print(parser: Parser) -> None:
    """`runner parse-print`."""
    parser.description = """\
Show the strings and tensors of a file that the operator Print wrote (print_file_path). Of a file that was cut or
damaged, all that precedes the damage; then its offset, and exit code 7."""
    parser.add_argument("file", type=path, metavar="FILE", help="such as print.pb")
    parser.epilog = "exit codes\n  0 ok   7 the file is missing or damaged"


def compare(parser: Parser) -> None:
    """`runner compare`."""
    parser.description = """\
Compare two runs: their dumps if both have one, otherwise their metrics. B is the reference.

Dumps. Operators are matched by full name (independent of data sinking and of class names in scopes) and compared in
execution order. If the numbers in the names differ, as between precisions or versions of a network, they are matched
by scope, type and order within the scope, and renamed scopes by their position. What only one side has, such as the
casts of a precision and the loss scale, is listed, and a difference only with --strict. If only one run has a loss
scale, gradients of the other one are multiplied by it. The first operator that causes a difference is shown: its
outputs are outside of tolerance, and their distance (|A - B| / |B| of whole tensors) is more than four times that of
its inputs. If there is none, rounding errors have accumulated or the input data differ, and the first operator outside
of tolerance is shown. Parameters and constants come before all operators. An element differs if
|a - b| > atol + rtol * max(|b|, rms, least): rms is the root mean square of the finite elements of the tensor of B
(elements near zero are often sums that cancel), least the smallest normal number of the coarser of the two types. The
default rtol is that of the coarser type, too: 0.01 for Float16, 0.0001 for Float32, 1e-09 for Float64. After an
operator in a coarser type, in one run or both, rtol and least are those of this type, since its rounding is in all
later values. atol is 0, since gradients may be so small that any other value would hide their errors. Integers and
Booleans must be equal. NaN equals NaN, an infinity equals itself.

Metrics. Every loss, the metrics, configs, manifests and speed. Losses and metrics decide: they agree if
|a - b| <= atol + rtol * |b|, with rtol 0.0001 and atol 0 by default."""
    parser.epilog = """\
exit codes
  0 same   2 wrong usage   5 a file cannot be read   6 different   7 no dump, or a damaged one"""
    parser.add_argument(
        "a", type=path, metavar="RUN_A", help="a run directory, the path of a dump, or a folder below that,"
    )
    parser.add_argument("b", type=path, metavar="RUN_B", help="such as the folder of one iteration")
    add = parser.flags.add_argument
    add("--rtol", type=non_negative, metavar="X", help="relative tolerance")
    add("--atol", type=non_negative, metavar="X", default=0.0, help="absolute tolerance")
    add("--metrics", action="store_true", help="compare metrics even if there are dumps")
    add("--dumps", action="store_true", help="compare dumps; an error if there are none")
    add("--all", action="store_true", help="compare dumps and print a table of all operators")
    add("--strict", action="store_true", help="compare dumps; operators of one side only are a difference")
    form = parser.flags.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    form.add_argument("--md", action="store_true", help="metrics as Markdown")
    form.add_argument("--csv", action="store_true", help="metrics as CSV: part, key, A, B, abs, rel, differs")


def report(parser: Parser) -> None:
    """`runner report`."""
    parser.description = """\
Write a self-contained HTML page: curves, configs, what the numbers depend on, profile, graph, links to the files; for
a sweep or several runs also a table, means over seeds and the effect of each key; for two runs also their differences,
including those of their dumps. The page of a run that is unfinished, failed or was killed has the data up to that
point and a note."""
    parser.epilog = "exit codes\n  0 written   2 wrong usage, or no run   5 the file cannot be written"
    parser.add_argument(
        "folders", nargs="+", type=path, metavar="RUN_OR_SWEEP", help="directories of runs, sweeps, or of several"
    )
    default = "report.html in the directory of the run or sweep; in the current one if there are several"
    parser.flags.add_argument("-o", "--output", type=path, metavar="FILE", help=f"default: {default}")


def golden(parser: Parser) -> None:
    """`runner golden`."""
    parser.description = """\
Write the results of a run to a golden file (JSON, to be kept under version control), or compare a run with such a
file. It has metrics, losses, hashes of all parameters, and what determines these results. A run with the same config,
data, seed, threads, processor and versions must have the same bits. A run that differs only in names matched by
"may_differ" must be within "tolerance"; a run that differs in anything else cannot be compared. Edit both keys in the
file: an update keeps them."""
    parser.epilog = """\
exit codes
  0 unchanged   2 wrong usage, or no finished run   5 a file cannot be written   6 different   7 a damaged file"""
    action = parser.flags.add_mutually_exclusive_group(required=True)
    action.add_argument("--update", action="store_true", help="write the results of the run to the file")
    action.add_argument("--check", action="store_true", help="compare the run with the file")
    parser.add_argument("file", type=path, metavar="FILE", help="the golden file")
    parser.add_argument("run", nargs="?", type=path, metavar="RUN_DIR", help="default: the newest run")


def convert(parser: Parser) -> None:
    """`runner convert`, with the flags of the reference's script."""
    parser.description = "Convert files of an asynchronous dump to .npy; folders are searched recursively."
    parser.epilog = """\
exit codes
  0 ok   2 wrong usage   5 storage error   7 damaged files (they are listed in DIR/convert_failed_file_list.txt)"""
    add = parser.flags.add_argument
    add(
        "-d",
        dest="path",
        type=path,
        required=True,
        metavar="PATH",
        help="a file of an asynchronous dump, or a folder of them",
    )
    add(
        "-out", dest="folder", type=path, default=".", metavar="DIR", help="the output folder; default: the current one"
    )
    formats = "NCHW, ND, NHWC, HWCN, CHWN, NC1HWC0, FRACTAL_Z, FRACTAL_NZ"
    add("-f", dest="format", metavar="FORMAT", help=f"convert to {formats}; default: the format of the file")
    add("-s", dest="shape", metavar="SHAPE", help="the shape N,C,H,W without padding, for files that do not have it")
    kinds = "npy (the default), bin (the elements only), or msnpy (npy with shorter names)"
    add("-t", dest="type", default="npy", choices=("npy", "bin", "msnpy"), help=kinds)
    add("-i", dest="input", type=int, metavar="N", help="only the N-th input, counted from 0")
    add("-o", dest="output", type=int, metavar="N", help="only the N-th output, counted from 0")
    add("-v", dest="version", type=int, choices=(1, 2), help="the version of the files; default: detected")
    add("-c", dest="script", metavar="DIR", help="has no effect: FRACTAL_Z needs no script here")

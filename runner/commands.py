"""Every command of `runner`: its name, summary, arguments and handler, declared together, in the order of the help.

A handler is named by text, `module:function`, takes the parsed arguments and returns the exit code; its module loads
when the command is called: `doctor` opens every device, and `ls` needs none of them. Parsing, `--help`, tab completion
and the reference page are generated from this table. The metavar of an argument determines its completion: RUN, RUN_DIR
and RUN_OR_SWEEP complete run directories, FILE, PATH and DIR complete paths, OVERRIDE completes overrides.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from runner import rundir
from runner.config.command_line import OVERRIDE, Parser, code, non_negative, path, positive
from runner.host.lazy import late_function

Arguments = Callable[[Parser], None]
Handler = Callable[[argparse.Namespace], int]


class Command(NamedTuple):
    """A command: a summary of one line, the declaration of its arguments, and its handler.

    `trains`: its results are in files, so that it succeeds even if standard output cannot be written. `has_ranks`: the
    processes of mpirun are the ranks of one run; other commands are executed by the first one only.
    """

    summary: str
    arguments: Arguments
    handler: Handler
    trains: bool = False
    has_ranks: bool = False


COMMANDS: dict[str, Command] = {}


def command(
    name: str, summary: str, handler: str | Handler, trains: bool = False, has_ranks: bool = False
) -> Callable[[Arguments], Arguments]:
    """Decorator of the function that declares the arguments of a command; `handler` is `module:function`."""

    def declare(arguments: Arguments) -> Arguments:
        loaded = late_function(handler) if isinstance(handler, str) else handler
        COMMANDS[name] = Command(summary, arguments, loaded, trains, has_ranks)
        return arguments

    return declare


# What `runner` does without a command.

run_once = late_function("runner.experiment.launch:run_call")
run_sweep = late_function("runner.experiment.sweep:start")
run_and_report = late_function("runner.report.ci:run_and_report")
print_summary = late_function("runner.experiment.launch:print_summary")
annotations = late_function("runner.report.ci:annotations")
group_lines = late_function("runner.config.options:group_lines")
show_requested = late_function("runner.config.display:show_requested")
complete = late_function("runner.config.completion:complete")
choices = late_function("runner.config.options:choices")
override_candidates = late_function("runner.config.display:candidates")

# The commands.

list_runs = late_function("runner.report.list:main")
list_entries = late_function("runner.report.commands:list_entries")
is_kind = late_function("runner.register:is_kind")


def _list(args: argparse.Namespace) -> int:
    code: int = (list_entries if is_kind(args.folder) else list_runs)(args)
    return code


@command("ls", "list runs, newest first; or networks, datasets, ...", _list)
def ls(parser: Parser) -> None:
    """`runner ls`."""
    parser.description = """\
Runs and jobs of sweeps below a folder with their status, loss and accuracy, newest first. On a terminal, columns give
way until a line fits, but the directory is always whole; a wider terminal shows more. Elsewhere there are always the
same columns, the directory last. Or what a config can name: networks, datasets, losses, metrics, optimizers, schedules
or callbacks, with the place and the keys of each."""
    parser.epilog = """\
examples
  runner ls --status failed --status killed
  runner ls --where optimizer.name=adam --sort accuracy --limit 20
  runner ls --best --json | jq -r '.[].run_dir'

exit codes
  0 ok, also without any run   2 wrong usage, no such folder, or a key that no run has"""
    text = "default: outputs/ and multirun/; or one of the words above (./networks is a folder)"
    parser.add_argument("folder", nargs="?", type=path, metavar="DIR", help=text)
    add = parser.flags.add_argument
    status = "only runs with this status; repeatable"
    add(
        "--status",
        action="append",
        default=[],
        choices=rundir.STATES,
        metavar="STATUS",
        help=f"{status}: {', '.join(rundir.STATES)}",
    )
    where = "only runs whose config, or column, has this value; repeatable"
    add("--where", action="append", default=[], metavar=OVERRIDE, help=where)
    order = "by a metric, the best first; by a column or a key of the config"
    add("--sort", metavar="KEY", help=f"{order}; runs without it last")
    add("--limit", type=positive, metavar="N", help="only the first N of them")
    best = "only the best run: the first one by --sort; default: by accuracy, or else by loss"
    add("--best", action="store_true", help=best)
    add("--json", action="store_true", help="one JSON array, an object for each run")
    code(parser)


@command("rm", "remove runs and sweeps", "runner.report.folders:main")
def rm(parser: Parser) -> None:
    """`runner rm`."""
    parser.description = """\
Remove runs and sweeps, all of those that are named or none, and print what was removed and its bytes, without a
prompt. Only directories that runner made are removed, and links are not followed. Refused are a run that is running;
without --force also a job of a sweep, a run of which another one has files in its config, such as its weights (looked
for in outputs/, multirun/ and beside the run), and a directory with files that runner did not write. A removed
directory vanishes at once: who reads it sees all of it or nothing. Directories outside of the run that it filled
(dump.path) stay, and are named."""
    parser.epilog = """\
examples
  runner rm outputs/2026-11-20/21-30-12 --dry-run
  runner ls --status failed --json | jq -r '.[].run_dir' | xargs -r runner rm

exit codes
  0 removed   2 wrong usage, or not a run   4 running, or needed by another run   5 storage error"""
    parser.add_argument("runs", nargs="+", type=path, metavar="RUN_OR_SWEEP", help="their directories")
    add = parser.flags.add_argument
    add("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
    add(
        "--force", action="store_true", help="remove what others need, and files of others; never a run that is running"
    )


@command("watch", "follow a run until it has ended", "runner.report.watch:main")
def watch(parser: Parser) -> None:
    """`runner watch`."""
    parser.description = """\
Follow a run, from any terminal and as often as you like, until it has ended: a progress bar with loss and steps per
second on a terminal, a line for each epoch elsewhere, and a line for each evaluation. A run that has already ended is
shown at once. The run is only read; Ctrl-C ends the command, and the run goes on."""
    parser.epilog = """\
exit codes
  that of the run: 0 ok, 1 failed, ... (runner --help)   1 killed   2 wrong usage, or no such run"""
    text = "its directory; default: the newest run that is running, or else the newest"
    parser.add_argument("run", nargs="?", type=path, metavar="RUN_DIR", help=text)


@command("resume", "continue an unfinished run or sweep", "runner.experiment.resume:main", trains=True, has_ranks=True)
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


@command("eval", "evaluate a finished run", "runner.experiment.evaluate:main", trains=True)
def evaluate(parser: Parser) -> None:
    """`runner eval`."""
    parser.description = """\
Evaluate a run with the weights of its newest checkpoint, without training, into a run directory of its own; the
evaluated run is not changed. Without overrides the metrics equal those of the run's own evaluation, bit for bit.
Overrides choose another split, dataset, mode or metrics; `dataset=NAME` selects another dataset, whose own keys have
their defaults then. What a training writes or requires (dump, profiling, tracking, expect, parallel) is not part of
the evaluation, unless an override says so. Code that has changed since the run is a warning."""
    parser.epilog = """\
examples
  runner eval outputs/2026-11-20/21-30-12 eval.split=train
  runner eval outputs/2026-11-20/21-30-12 mode=graph 'eval.metrics=[accuracy,loss]' expect.accuracy.min=0.9
  runner eval outputs/2026-11-20/21-30-12 dataset=mnist hydra.run.dir=outputs/on_mnist

exit codes
  0 ok   1 evaluation failed   2 wrong usage, or no such run   6 an expectation does not hold
  7 no good checkpoint, or a bad data file"""
    parser.add_argument("run", metavar="RUN_DIR", help="its directory, which may be that of a job of a sweep")
    parser.add_argument("overrides", nargs="*", default=[], metavar=OVERRIDE, help="such as eval.split=train")
    code(parser)


@command("predict", "run the network of a run on new files", "runner.report.commands:predict_rows")
def predict(parser: Parser) -> None:
    """`runner predict`."""
    parser.description = """\
Run the network of a run, with the weights of its newest checkpoint, on new files: images, tables in CSV, or arrays of
numpy, prepared as the training data were. The training data are not needed. An array (.npy,
or .npz with an array for each input) is one sample or several: integers of 8 bits are pixels [H, W, C] of a network
for images, other numbers are inputs of the network as they are, after all preprocessing; those for a run with
dataset=npz are prepared as in training. For a network with classes, the most probable ones are shown; otherwise the
numbers that it returns, of many their range and mean. --npy and --npz write arrays."""
    parser.epilog = """\
exit codes
  0 ok   1 an output is not finite   2 wrong usage, or no such run   7 no good checkpoint, or a bad data file"""
    parser.add_argument("run", type=path, metavar="RUN_DIR", help="its directory")
    parser.add_argument("files", nargs="+", type=path, metavar="FILE", help="images, or .csv, .npy or .npz files")
    add = parser.flags.add_argument
    add("--top", type=positive, default=5, metavar="N", help="classes to show for each sample; default: 5")
    form = parser.flags.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated values")
    form.add_argument("--json", action="store_true", help="one JSON array, an object for each sample")
    form.add_argument("--npy", type=path, metavar="FILE", help="write the output for all samples as an array")
    form.add_argument("--npz", type=path, metavar="FILE", help="write all outputs as arrays, with the samples' names")
    code(parser)


@command("export", "write the training step of a run for other programs", "runner.experiment.export:main")
def export(parser: Parser) -> None:
    """`runner export`."""
    parser.description = """\
Write a directory with which other programs train and predict, without this package: a training step as an ONNX model
whose inputs and outputs are a batch, the learning rate, parameters and the state of the optimizer; the network with
its trained weights; parameters and state at the beginning and at the end of the run; and signature.json, which names
all inputs and outputs. The models have standard ONNX operators only, and batches of any size if the network allows it.
Before anything is written, onnxruntime executes them, and their results are compared with those of the run's own step.
DIR is new, empty, or an earlier export, which is replaced as a whole."""
    parser.epilog = """\
examples
  runner export outputs/2026-11-20/21-30-12 --to exported
  runner export outputs/2026-11-20/21-30-12 --to exported --steps 10 --quantize --opset 17
  runner eval outputs/2026-11-20/21-30-12 checkpoint.load=weights.safetensors

exit codes
  0 written   2 wrong usage, no such run, or an opset that is too old   4 the directory has other files
  5 storage error   6 a model does not compute what the run computes   7 no good checkpoint, or a bad data file"""
    parser.add_argument(
        "run", type=path, metavar="RUN_DIR", help="its directory, which may be that of a job of a sweep"
    )
    add = parser.flags.add_argument
    add(
        "--to",
        type=path,
        required=True,
        metavar="PATH",
        help="the directory to write, or with --format mindir the file",
    )
    add("--steps", type=positive, metavar="N", help="also a model that makes N steps in one call")
    add("--quantize", action="store_true", help="also the network in integers of 8 bits")
    add("--opset", type=positive, metavar="N", help="the version of the ONNX operators; default: 18")
    add("--format", default="onnx", metavar="FORMAT", help="onnx (the default): a directory; mindir: a file")
    code(parser)


@command("inspect", "show an ONNX file, and whether it can be trained", "runner.report.onnx_file:inspect_model")
def inspect(parser: Parser) -> None:
    """`runner inspect`."""
    parser.description = """\
Show the inputs, outputs, parameters and operators of an ONNX file, and whether network=onnx can train it: a training
step is traced, differentiated and lowered for two batch sizes, as a run makes it, but without data. All reasons against
it are listed with their nodes. Free axes get lengths, which are shown; where only data can tell, it says so. Nothing of
the file is executed."""
    parser.epilog = """\
exit codes
  0 it can be trained   2 it cannot, or only a run can tell, or wrong usage
  7 a damaged file, or external data that are not beside it"""
    parser.add_argument("file", type=path, metavar="FILE", help="an .onnx file")
    parser.flags.add_argument("--json", action="store_true", help="one JSON object")


@command("new", "create a small working project", "runner.config.new_project:main")
def new(parser: Parser) -> None:
    """`runner new`."""
    parser.description = """\
Create a small working project: a package with a network and a dataset, two experiments, a test, a workflow for CI.
It needs no downloads. In its directory, `runner +experiment=first` trains and `pytest` tests."""
    parser.epilog = "exit codes\n  0 created   2 wrong usage   4 the directory is not empty   5 storage error"
    parser.add_argument("folder", type=path, metavar="DIR", help="a new or an empty directory")
    parser.flags.add_argument("--name", metavar="NAME", help="of the project and of its package; default: that of DIR")


@command("doctor", "check packages, machine and devices", "runner.report.doctor:doctor")
def doctor(parser: Parser) -> None:
    """`runner doctor`."""
    parser.description = """\
Versions of packages, processor and memory; whether each device can run a convolution and, if not, the reason and the
repair; whether run directories can be created here."""
    parser.epilog = "exit codes\n  0 the CPU works and all packages are installed   3 otherwise"


@command("parse-print", "show a file that the operator Print wrote", "runner.report.commands:parse_print")
def parse_print(parser: Parser) -> None:
    """`runner parse-print`."""
    parser.description = """\
Show the strings and tensors of a file that the operator Print wrote (print_file_path). Of a file that was cut or
damaged, all that precedes the damage; then its offset, and exit code 7."""
    parser.add_argument("file", type=path, metavar="FILE", help="such as print.pb")
    parser.epilog = "exit codes\n  0 ok   7 the file is missing or damaged"


compare_runs = late_function("runner.report.compare:main")
compare_import = late_function("runner.report.onnx_file:compare_import")


def _compare(args: argparse.Namespace) -> int:
    code: int = (compare_import if Path(args.a).suffix == ".onnx" else compare_runs)(args)
    return code


@command("compare", "compare two runs: their dumps, or their metrics", _compare)
def compare(parser: Parser) -> None:
    """`runner compare`."""
    parser.description = """\
Compare two runs: their dumps if both have one, otherwise their metrics. B is the reference. If RUN_A is an .onnx file,
compare its values in inference, computed as in the run with network=onnx RUN_B, with those of onnxruntime.

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
    first = "a run directory, the path of a dump, or a folder below that,"
    parser.add_argument("a", type=path, metavar="RUN_A", help=first)
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


@command("report", "write an HTML page about runs or a sweep", "runner.report.html.command:main")
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


@command("golden", "save the results of a run in a file, or check them", "runner.report.ci:main")
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


@command("convert", "convert files of an asynchronous dump to .npy", "runner.report.dump.convert:main")
def convert(parser: Parser) -> None:
    """`runner convert`, with the flags of MindSpore's script."""
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

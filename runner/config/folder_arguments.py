"""The arguments of the commands about run directories: `ls`, `rm`, `watch`; as `command_arguments`."""

from runner.config.command_line import OVERRIDE, Parser, code, path, positive

STATES = ("ok", "running", "interrupted", "failed", "killed", "broken")  # of a run, as `runner ls` shows them


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
        "--status", action="append", default=[], choices=STATES, metavar="STATUS", help=f"{status}: {', '.join(STATES)}"
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

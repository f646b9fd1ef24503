"""Run by mpirun: `runner` whose second rank does something else before the training: `rank_start.py KIND words...`."""

import os
import signal
import sys

from runner import cli
from runner.errors import DataError
from runner.experiment import run
from runner.experiment.ranks import group
from runner.host.process import launched


def stop(*_: object) -> None:
    """As a rank whose machine does not answer."""
    os.kill(os.getpid(), signal.SIGSTOP)


def miss(*_: object) -> None:
    raise DataError("a file is missing", file="/data/images")


def fail(*_: object) -> None:
    raise ZeroDivisionError("a defect")


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if launched()[0] == 1:
        group.build = {"stop": stop, "miss": miss, "fail": fail, "usual": group.build}[kind]
    if launched()[0] == 0 and kind == "usual":
        run.build = fail
    sys.exit(cli.main(words))

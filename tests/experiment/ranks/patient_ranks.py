"""Run by mpirun: `runner` whose ranks wait for each other as long as it takes, however busy the machine is."""

import sys

from runner import cli
from runner.experiment.ranks import group


def wait_long() -> None:
    """From now on this rank gives the others minutes to fail or to stop as it does."""
    group.SAME_ERROR_SECONDS = group.STOP_SECONDS = 600.0


if __name__ == "__main__":
    wait_long()
    sys.exit(cli.main(sys.argv[1:]))

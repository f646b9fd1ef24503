"""Run by mpirun: `runner` in which one rank fails before a step: `failing.py RANK STEP KIND words...`."""

import os
import signal
import sys

from runner import agreement, cli
from runner.communication.joining import announced
from runner.errors import StorageError


def fail_at(step: int, kind: str) -> None:
    """From now on this rank fails when it has made so many steps."""
    usual = agreement.Agreement.step_end

    def step_end(self, run_context):
        if run_context.original_args().cur_step_num == step:
            if kind == "raise":
                raise StorageError("the disk is gone", path="/nowhere")
            if kind == "defect":
                raise ZeroDivisionError("a defect")
            os.kill(os.getpid(), signal.Signals[kind])
        usual(self, run_context)

    agreement.Agreement.step_end = step_end


if __name__ == "__main__":
    rank, step, kind, *words = sys.argv[1:]
    if announced()[0] == int(rank):
        fail_at(int(step), kind)
    sys.exit(cli.main(words))

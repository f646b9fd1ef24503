"""Run by mpirun: `runner` in which one rank fails before a step: `failing.py RANK STEP KIND words...`."""

import os
import signal
import sys

from runner import agreement, cli
from runner.communication.joining import announced
from runner.errors import StorageError

RANK, STEP, KIND = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
usual = agreement.Agreement.step_end


def step_end(self, run_context):
    if run_context.original_args().cur_step_num == STEP:
        if KIND == "raise":
            raise StorageError("the disk is gone", path="/nowhere")
        if KIND == "defect":
            raise ZeroDivisionError("a defect")
        os.kill(os.getpid(), signal.Signals[KIND])
    usual(self, run_context)


if announced()[0] == RANK:
    agreement.Agreement.step_end = step_end
sys.exit(cli.main(sys.argv[4:]))

"""Run by mpirun: `runner` in which one rank fails before a step: `failing.py RANK STEP KIND words...`."""

import os
import signal
import sys

from runner import agreement, cli
from runner.communication.joining import announced
from runner.errors import StorageError


def fail_at(step, kind):
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
    if announced()[0] == int(sys.argv[1]):
        fail_at(int(sys.argv[2]), sys.argv[3])
    sys.exit(cli.main(sys.argv[4:]))

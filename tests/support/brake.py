"""Run by tests in a process of its own: `brake.py STEP ...` is `runner ...` that waits after a step for a signal.

So a signal comes in the middle of a run, however quick the machine is and however late it is sent.
"""

import os
import signal
import sys

from runner import cli
from runner.experiment.callbacks import MetricsJournal


def wait_after(step: int) -> None:
    """From now on every run of this process, and of those that it forks, waits when the row of that step is written."""
    usual = MetricsJournal.step_end
    signals: list[int] = []

    def step_end(self, run_context):
        if not signals:  # in the process of the run: a pool has its own use for the pipe until then
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write)
            signals.append(read)
        usual(self, run_context)
        if run_context.original_args().cur_step_num == step:
            os.read(signals[0], 1)

    MetricsJournal.step_end = step_end


if __name__ == "__main__":
    wait_after(int(sys.argv[1]))
    sys.exit(cli.main(sys.argv[2:]))

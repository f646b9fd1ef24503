"""Run by mpirun: `runner` in which one rank fails before a step: `rank_failure.py RANK STEP KIND words...`.

With the kinds `image` and `label` that rank has a batch, number STEP, with values that no network can bear.
"""

import os
import signal
import sys

import numpy as np
from patient_ranks import wait_long

from runner import cli
from runner.dataset.pipeline import Dataset
from runner.errors import StorageError
from runner.experiment.ranks import start_up
from runner.host.process import launched


def fail_at(step: int, kind: str) -> None:
    """From now on this rank fails when it has made so many steps."""
    usual = start_up.SynchronizeSignals.step_end

    def step_end(self, run_context):
        if run_context.original_args().cur_step_num == step:
            if kind == "raise":
                raise StorageError("the disk is gone", path="/nowhere")
            if kind == "defect":
                raise ZeroDivisionError("a defect")
            if kind.startswith("SIG"):
                os.kill(os.getpid(), signal.Signals[kind])
        usual(self, run_context)
        if kind == "late SIGINT" and run_context.original_args().cur_step_num == step:
            os.kill(os.getpid(), signal.SIGINT)  # the ranks have just agreed that nothing has happened

    start_up.SynchronizeSignals.step_end = step_end


def spoil_at(step: int, kind: str) -> None:
    """From now on this rank has a number that is not finite, or a class that there is not, in the batch of a step."""
    usual = Dataset.fetch

    def fetch(self, visits):
        image, label = usual(self, visits)
        if np.array_equal(visits, next(iter(self.visits_from(step)))):
            image, label = image.copy(), label.copy()
            if kind == "image":
                image[3] = np.inf
            else:
                label[3] = 99
        return image, label

    Dataset.fetch = fetch


if __name__ == "__main__":
    rank, step, kind, *words = sys.argv[1:]
    if kind in (
        "image",
        "SIGINT",
        "late SIGINT",
    ):  # what all ranks come to know; of other kinds the failing one is alone
        wait_long()
    if launched()[0] == int(rank):
        (spoil_at if kind in ("image", "label") else fail_at)(int(step), kind)
    sys.exit(cli.main(words))

"""`metrics.jsonl`: one line per callback event. It holds no times, so that two equal runs write equal bytes."""

from collections.abc import Mapping

import numpy as np

from runner.files import Journal
from runner.train.callback import Callback, RunContext, step_in_epoch


def number(value: np.generic | np.ndarray | float) -> float:
    """The shortest decimal that reads back as the same value of its own precision.

    >>> import numpy as np
    >>> number(np.float32(0.1))
    0.1
    """
    return float(str(value))


class MetricsJournal(Callback):
    """Writes `step` events while training, and `eval` events when told."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def step_end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        row = {
            "event": "step",
            "epoch": seen.cur_epoch_num,
            "step": step_in_epoch(seen),
            "global_step": seen.cur_step_num,
        }
        self.journal.append({**row, "loss": number(seen.net_outputs)})

    def epoch_end(self, run_context: RunContext) -> None:
        self.journal.sync()

    def evaluated(self, metrics: Mapping[str, float], epoch: int, global_step: int) -> None:
        """Write an `eval` event."""
        self.journal.append({"event": "eval", "epoch": epoch, "global_step": global_step, **metrics})
        self.journal.sync()

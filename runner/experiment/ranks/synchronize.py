"""Keeping the ranks of a data-parallel run in step: equal initial state, equal dumped steps, one step to stop at."""

import signal
from collections.abc import Callable
from typing import Any

from runner.communication.world import world
from runner.core.graph import ValueObserver
from runner.errors import ConfigError
from runner.experiment.ranks import start_up
from runner.host.process import KINDS, Interruption
from runner.nn.cell import Cell
from runner.nn.wrap import broadcast
from runner.train.callback import Callback, RunContext

NUMBERS = {kind: number for number, kind in KINDS.items()}


class SynchronizeSignals(Callback):
    """All-reduces signals after every step: when one rank received a signal, all ranks stop at this step.

    All begin the first epoch at the same time: before it, an error of one rank is an error of all.
    `requested` is the exception of that signal, on all ranks after the same step. A signal that a rank receives after
    the reduction counts for the next step: stopping alone, it would leave the others waiting for its gradients.
    """

    def __init__(self, interruption: Interruption) -> None:
        self.interruption = interruption
        self.requested: type[KeyboardInterrupt] | None = None

    def epoch_begin(self, run_context: RunContext) -> None:
        if world().limit is not None:  # no step is running that could end first
            with self.interruption.raised_at_once():
                start_up.training_begins(world())

    def end(self, run_context: RunContext) -> None:
        start_up.training_begins(world())  # no epoch was left

    def step_end(self, run_context: RunContext) -> None:
        received = self.interruption.requested
        found = max(world().gathered(NUMBERS[received] if received else 0))
        if found:
            self.requested = KINDS[signal.Signals(found)]
            if world().rank:  # the first rank saves a checkpoint first
                raise self.requested


class FlushValues(Callback):
    """Waits after every step until its dump is written: a checkpoint of the first rank is one of all ranks."""

    def __init__(self, values: ValueObserver) -> None:
        self.values = values

    def step_end(self, run_context: RunContext) -> None:
        self.values.flush()


def read_on_first_rank(network: Cell, read: Callable[[], Any] = lambda: None) -> Any:
    """Read parameters on the first rank and broadcast them, with the JSON value that `read` returns.

    Raises on all ranks the error of the first one.
    """
    known = start_up.exchange(world(), read() if world().rank == 0 else None)[0]
    broadcast(network.get_parameters())
    return known


def check_all_or_none(shows: bool) -> None:
    """Raise ConfigError when only some ranks dump: graph mode executes dumped steps twice, on all ranks or on none."""
    every = start_up.exchange(world(), shows)
    if len(set(every)) > 1:
        without = ", ".join(str(rank) for rank, one in enumerate(every) if not one)
        hint = "list every rank in support_device, or none"
        raise ConfigError("some ranks dump and others do not", key="dump.support_device", without=without, hint=hint)

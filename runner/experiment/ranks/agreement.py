"""What all ranks of a data-parallel run do alike: begin with the same state, show the same steps, stop together."""

import signal
from collections.abc import Callable
from typing import Any

from runner.communication.world import world
from runner.errors import ConfigError, RunnerError
from runner.host.signals import KINDS, Interruption
from runner.nn.cell import Cell
from runner.nn.gradient_reducer import broadcast
from runner.train.callback import Callback, RunContext

NUMBERS = {kind: number for number, kind in KINDS.items()}


class Agreement(Callback):
    """After every step the ranks agree whether one of them was asked to stop: then all of them are, at this step."""

    def __init__(self, interruption: Interruption) -> None:
        self.interruption = interruption

    def step_end(self, run_context: RunContext) -> None:
        asked = self.interruption.requested
        found = max(world().gathered(NUMBERS[asked] if asked else 0))
        if found:
            self.interruption.requested = KINDS[signal.Signals(found)]
            if world().rank:  # on the first rank the checkpoint comes before
                raise self.interruption.requested


def first_reads(network: Cell, read: Callable[[], Any] = lambda: None) -> Any:
    """The first rank reads parameters from files, and all get them and the value of JSON that its `read` returns: so
    they begin alike, whatever each of them would have found.

    Raises on all ranks what it raises there, so that they end alike.
    """
    failed: RunnerError | None = None
    known = None
    if world().rank == 0:
        try:
            known = read()
        except RunnerError as error:
            failed = error
    exit_code = world().shared(failed.exit_code if failed else None)
    if failed is None and exit_code is not None:
        failed = RunnerError("the first rank could not read what the run begins with")
        failed.exit_code = exit_code
    if failed is not None:
        raise failed
    broadcast(network.get_parameters())
    return world().shared(known)


def check_all_or_none(shows: bool) -> None:
    """Raise ConfigError when only some ranks dump: graph mode computes dumped steps twice, and all ranks must."""
    every = world().gathered(int(shows))
    if len(set(every)) > 1:
        without = ", ".join(str(rank) for rank, one in enumerate(every) if not one)
        hint = "list every rank in support_device, or none"
        raise ConfigError("some ranks dump and others do not", key="dump.support_device", without=without, hint=hint)

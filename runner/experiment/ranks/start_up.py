"""Exchanges of a run that starts: a failure of one rank is the failure of all, with one error and one exit code.

Until the training begins, ranks communicate through `exchange`, and a rank that fails takes part in the next one with
its error. So no rank waits for one that has failed, and the first rank can report the error and record it in
`status.json`. Each wait has a time limit (`World.limit`), for ranks that cannot answer.
"""

import os
import platform
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from runner import errors
from runner.communication.world import World, world
from runner.config.groups.entries import DatasetSettings
from runner.core.graph import ValueObserver
from runner.errors import ConfigError, ConfigErrors, RunnerError, some
from runner.host.process import KINDS, Interruption
from runner.nn.cell import Cell
from runner.nn.wrap import broadcast
from runner.train.callback import Callback, RunContext

NAMED = 5  # of what differs, in an error


def exchange(world: World, value: Any = None, failed: RunnerError | None = None, is_common: bool = False) -> list[Any]:
    """A JSON value of each rank, in the order of ranks.

    `failed` is the error of this rank, `is_common` whether it concerns all ranks. Raises on all ranks the error of the
    first one that has one, with its rank unless it is common; TrainingError when ranks do not answer.
    """
    own = {"value": value, "errors": [_packed(error) for error in _single(failed)], "is_common": is_common}
    every = world.all_gathered({**own, "host": platform.node(), "directory": _directory()})
    if any(one["errors"] for one in every):
        world.ended = True
        raise _common_error(every, world.rank, failed)
    return [one["value"] for one in every]


@contextmanager
def failures_shared(world: World, first_leads: bool = False) -> Iterator[None]:
    """Inside, an error of this rank is raised on all of them, unless training has begun.

    `first_leads`: the first rank works for all of them, so that its error is that of the run.
    """
    try:
        yield
    except RunnerError as error:
        if world.size == 1 or world.limit is None or world.ended:
            raise
        exchange(world, failed=error, is_common=first_leads and world.rank == 0)


def require_equal(world: World, what: str, label: str, own: Mapping[str, Sequence[str]], repair: str) -> None:
    """Raise ConfigError, the same on all ranks, when one has another value than the first one.

    `own` are pairs by name: what is compared, and how it is shown. `label` is the row with the names that differ.
    """
    first, *others = exchange(world, {"host": platform.node(), "values": own})
    for rank, other in enumerate(others, 1):
        pairs = first["values"], other["values"]
        names = [name for name in {**pairs[0], **pairs[1]} if len({one.get(name, ("",))[0] for one in pairs}) > 1]
        if names:
            rows = {
                f"rank {r}": f"{one['host']}: {_shown(one['values'], names)}" for r, one in ((0, first), (rank, other))
            }
            raise ConfigError(what, **{label: some(names, NAMED)}, **rows, repair=repair)


def _shown(values: Mapping[str, Sequence[str]], names: Sequence[str]) -> str:
    return some([values[name][1] for name in names if name in values] or ["none"], NAMED)


def require_equal_inputs(settings: DatasetSettings, data: str, network: Mapping[str, str]) -> None:
    """Raise ConfigError, the same on all ranks, when their training data or the files of the network differ.

    `data` is the sha256 of the training data, `network` those of the files by name.
    """
    keys = [name for name, own in settings.entry.keys.items() if own.rule.path and getattr(settings, name)]
    paths = some([os.path.abspath(getattr(settings, name)) for name in keys] or [settings.name], NAMED)
    named = ", ".join(f"dataset.{name}" for name in keys) or "dataset"
    own = {named: data, **{f"network {name}": digest for name, digest in network.items()}}
    pairs = {name: (digest, f"{paths if name == named else name} ({digest[:12]})") for name, digest in own.items()}
    require_equal(world(), "ranks have different data", "key", pairs, "the same files on every host")


def training_begins(world: World) -> None:
    """The last exchange of the start: all ranks are ready. From now on they wait for each other without a limit."""
    if world.limit is not None:
        exchange(world)
        world.limit = None


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError as reason:  # it was removed
        return f"none: {reason.strerror}"


def _single(error: RunnerError | None) -> Sequence[RunnerError]:
    """The error, or the single ones of several."""
    return () if error is None else error.errors if isinstance(error, ConfigErrors) else (error,)


def _packed(error: RunnerError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "what": error.what, "rows": error.rows}


def _unpacked(packed: Mapping[str, Any]) -> RunnerError:
    error: RunnerError = getattr(errors, packed["kind"], RunnerError)(packed["what"], **packed["rows"])
    return error


def _common_error(every: Sequence[Mapping[str, Any]], own: int, failed: RunnerError | None) -> RunnerError:
    """The error of the first rank that has one; with its rank, host and directory unless it is that of all ranks.

    `failed` is the error of this rank, whose number is `own`.
    """
    rank, found = next((rank, one) for rank, one in enumerate(every) if one["errors"])
    made = _single(failed) if rank == own else [_unpacked(packed) for packed in found["errors"]]
    if not found["is_common"] and any(one["errors"] != found["errors"] for one in every):
        where = {"rank": f"{rank} of {len(every)}", "host": found["host"], "directory": found["directory"]}
        repair = "all ranks need the same config and files, under the same paths"
        made = [error.add(**where, repair=repair) for error in made]
    return made[0] if len(made) == 1 else ConfigErrors([error for error in made if isinstance(error, ConfigError)])


# Keeping the ranks of a data-parallel run in step: equal initial state, equal dumped steps, one step to stop at.

NUMBERS = {kind: number for number, kind in KINDS.items()}
STOP = 1 << 8  # added to the number of a signal: a callback has requested a stop


class SynchronizeSignals(Callback):
    """All-reduces signals after every step: when one rank received a signal, all ranks stop at this step.

    The same for stops that callbacks of the first rank request, after every step and around every epoch.
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
                training_begins(world())
        self._reduced(0, run_context)

    def end(self, run_context: RunContext) -> None:
        training_begins(world())  # no epoch was left

    def epoch_end(self, run_context: RunContext) -> None:
        self._reduced(0, run_context)

    def _reduced(self, received: int, run_context: RunContext) -> int:
        """The signal that a rank has received, or 0, on all ranks; they request a stop as well if one of them does."""
        numbers = world().gathered(received + STOP * run_context.get_stop_requested())
        if max(numbers) >= STOP:
            run_context.request_stop()
        return max(number % STOP for number in numbers)

    def step_end(self, run_context: RunContext) -> None:
        received = self.interruption.requested
        if found := self._reduced(NUMBERS[received] if received else 0, run_context):
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
    known = exchange(world(), read() if world().rank == 0 else None)[0]
    broadcast(network.get_parameters())
    return known


def check_all_or_none(shows: bool) -> None:
    """Raise ConfigError when only some ranks dump: graph mode executes dumped steps twice, on all ranks or on none."""
    every = exchange(world(), shows)
    if len(set(every)) > 1:
        without = ", ".join(str(rank) for rank, one in enumerate(every) if not one)
        hint = "list every rank in support_device, or none"
        raise ConfigError("some ranks dump and others do not", key="dump.support_device", without=without, hint=hint)

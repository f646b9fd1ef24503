"""The processes that execute a run: this one, or the ranks that mpirun launched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from runner.communication.world import World, join
from runner.config.groups.services import DataParallel
from runner.config.schema import RunConfig, RunRequest, plain
from runner.errors import RunnerError, unexpected
from runner.experiment import ranks
from runner.host.console import LOG
from runner.host.json import flat
from runner.host.process import die_of, launched, stop_text

T = TypeVar("T")
# Keys that may differ: only the first rank tracks, perhaps under a name with the time.
OF_ONE_RANK = "parallel.global_rank", "tracking."


class OneProcess:
    """This process as the one that executes a run, with the methods of `RankGroup`."""

    def first(self, compute: Callable[[], T]) -> T:
        """A JSON value on all ranks, which the first one computes."""
        return compute()

    def run(self, request: RunRequest, work: Callable[[RunRequest], dict[str, Any]]) -> dict[str, Any]:
        """Execute this rank's part of a run; `work` is that of the first rank, and returns the summary."""
        return work(request)


@contextmanager
def processes_of(config: RunConfig, folder: Path, named: Mapping[str, str]) -> Iterator[OneProcess | ranks.RankGroup]:
    """The processes that execute a run with this config; at the end all have finished. Raises RunnerError.

    Ranks must have equal configs and equal texts in `named`. The run directory is that of the first rank: `folder`,
    that of this one, may have another time.
    """
    if isinstance(config.parallel, DataParallel):
        world = _joined_world(config.parallel.timeout_seconds)
        with ranks.joined(world, config.parallel, {**named, **_shared(config, folder)}) as group:
            yield group
        return
    if (size := launched()[1]) > 1:
        LOG.warning("mpirun launched %d processes with parallel=stand_alone: each is a separate run", size)
    yield OneProcess()


def _joined_world(seconds: float) -> World:
    with report_on_first_rank(["parallel"]):
        try:
            return join(seconds)
        except KeyboardInterrupt as stop:
            ranks.stop_all(stop)
            sys.stderr.write(f"{stop_text(stop)}\n")
            sys.stderr.flush()
            die_of(stop)
            raise


def _shared(config: RunConfig, folder: Path) -> dict[str, object]:
    """The values of a config that all ranks share, by key; paths in the run directory without its name."""
    values = {key: value for key, value in flat(plain(config)).items() if not key.startswith(OF_ONE_RANK)}
    own = str(folder.absolute())
    return {key: value.replace(own, "RUN_DIR") if isinstance(value, str) else value for key, value in values.items()}


def on_all_ranks(work: Callable[[], T]) -> T:
    """The result of `work`, for what each process does before it knows whether it is a rank of a data-parallel run.

    If it fails on one rank of such a run, it fails on all: the first rank raises the error, the others SystemExit with
    the same exit code.
    """
    try:
        return work()
    except Exception as error:
        _fail_on_all_ranks(error if isinstance(error, RunnerError) else unexpected(error))
        raise
    except KeyboardInterrupt as stop:
        if launched()[1] > 1:
            ranks.stop_all(stop)
        raise


def _fail_on_all_ranks(error: RunnerError) -> None:
    """Raise on all ranks; return when they cannot be reached, so that each process reports its own error."""
    if launched()[1] == 1:
        return
    try:
        world = join()
    except RunnerError:
        return
    with ranks.joined(world, DataParallel(), {}, error):
        pass


@contextmanager
def report_on_first_rank(overrides: Sequence[str]) -> Iterator[None]:
    """Report an error of the command line or config once: the other ranks exit with the same code, silently."""
    try:
        yield
    except RunnerError as error:
        if launched()[0] > 0 and any("parallel" in line for line in overrides):
            raise SystemExit(error.exit_code) from None
        raise

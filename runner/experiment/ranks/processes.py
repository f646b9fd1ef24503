"""Where a run meets the other processes of mpirun, if there are any."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from runner.communication.joining import announced, join
from runner.config.groups.parallel import DataParallel
from runner.config.schema import RunConfig, RunRequest
from runner.errors import RunnerError
from runner.experiment import ranks

_LOG = logging.getLogger("runner")


class Ranks(Protocol):
    """Who makes a run."""

    def folder(self, claim: Callable[[], Path]) -> Path:
        """The run's folder, which only the first rank claims."""

    def run(self, request: RunRequest, work: Callable[[RunRequest], dict[str, Any]]) -> dict[str, Any]:
        """Do this rank's part of a run; `work` is that of the first one, and gives the summary."""


class _Alone:
    def folder(self, claim: Callable[[], Path]) -> Path:
        return claim()

    def run(self, request: RunRequest, work: Callable[[RunRequest], dict[str, Any]]) -> dict[str, Any]:
        return work(request)


@contextmanager
def ranks_of(config: RunConfig) -> Iterator[Ranks]:
    """Who makes a run with this config; at the end all of them have come to it. Raises RunnerError."""
    if isinstance(config.parallel, DataParallel):
        with first_speaks(["parallel"]):
            world = join()
        with ranks.joined(world, config.parallel) as company:
            yield company
        return
    if (size := announced()[1]) > 1:
        _LOG.warning("mpirun has started %d processes, and parallel=stand_alone: each is a run of its own", size)
    yield _Alone()


@contextmanager
def first_speaks(overrides: Sequence[str]) -> Iterator[None]:
    """Of an error that all ranks find in what they were given, only the first one tells; others end with its code."""
    try:
        yield
    except RunnerError as error:
        if announced()[0] > 0 and any("parallel" in line for line in overrides):
            raise SystemExit(error.exit_code) from None
        raise

"""Rank and size for scripts: the reference's `mindspore.communication.management`."""

import sys
from types import TracebackType

from runner.communication import world
from runner.communication.launcher import join
from runner.errors import ConfigError

SAME_ERROR_SECONDS = 1.0  # ranks that fail with the same error do so within this time


def init(backend_name: str | None = None) -> None:
    """Join the other processes of mpirun; without mpirun this process is rank 0 of 1.

    `backend_name` is the reference's "hccl", "nccl" or "mpi": all of them use MPI here. From now on an uncaught
    exception on one rank ends all ranks. Raises ConfigError when mpi4py is missing.
    """
    if backend_name not in (None, "hccl", "nccl", "mpi"):
        raise ConfigError("no such backend", backend_name=repr(backend_name), allowed="hccl, nccl, mpi or None")
    if join().size > 1 and sys.excepthook is not _aborting:
        sys.excepthook = _aborting


def release() -> None:
    """Part of the reference's API, without effect: MPI ends with the process."""


def get_rank() -> int:
    """The rank of this process, from 0."""
    return world.world().rank


def get_group_size() -> int:
    """The number of ranks."""
    return world.world().size


def _aborting(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End all ranks: the others would wait for this one in their next collective."""
    sys.__excepthook__(kind, error, trace)
    sys.stderr.flush()
    if not world.world().met(SAME_ERROR_SECONDS):
        world.world().abort(int(getattr(error, "exit_code", 1)))

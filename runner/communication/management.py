"""Who this process is among those of mpirun, for scripts: the reference's `mindspore.communication.management`."""

import sys
from types import TracebackType

from runner.communication import world
from runner.communication.joining import join
from runner.errors import ConfigError

ALIKE_SECONDS = 1.0  # ranks that fail in the same way do so within this time


def init(backend_name: str | None = None) -> None:
    """Join the other processes of mpirun; without mpirun this process is rank 0 of 1.

    `backend_name` is the reference's "hccl", "nccl" or "mpi": here all go by MPI. From now on an exception that nobody
    catches on one rank ends all of them. Raises ConfigError when mpi4py is missing.
    """
    if backend_name not in (None, "hccl", "nccl", "mpi"):
        raise ConfigError("no such backend", backend_name=repr(backend_name), allowed="hccl, nccl, mpi or None")
    if join().size > 1 and sys.excepthook is not _aborting:
        sys.excepthook = _aborting


def release() -> None:
    """As the reference has it. MPI itself ends with the process."""


def get_rank() -> int:
    """This process among those that have joined, from 0."""
    return world.world().rank


def get_group_size() -> int:
    """How many have joined."""
    return world.world().size


def _aborting(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Others would wait for this rank for ever."""
    sys.__excepthook__(kind, error, trace)
    sys.stderr.flush()
    if not world.world().met(ALIKE_SECONDS):
        world.world().abort(int(getattr(error, "exit_code", 1)))

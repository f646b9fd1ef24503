"""Rank and size for scripts: MindSpore's `mindspore.communication.management`."""

import sys
from functools import partial
from types import TracebackType

from runner.communication import world
from runner.communication.world import join
from runner.errors import ConfigError
from runner.host.lazy import reference_attribute
from runner.validation.arguments import whole_number

HCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP = "hccl_world_group", "nccl_world_group"
WORLD = NCCL_WORLD_COMM_GROUP
SAME_ERROR_SECONDS = 1.0  # ranks that fail with the same error do so within this time

__getattr__ = partial(reference_attribute, __name__)


class GlobalComm:
    """The names of the backend and of the group of all ranks, as scripts pass them to operators."""

    BACKEND, WORLD_COMM_GROUP = "mpi", WORLD


def init(backend_name: str | None = None) -> None:
    """Join the other processes of mpirun; without mpirun this process is rank 0 of 1.

    `backend_name` is MindSpore's "hccl", "nccl" or "mpi": all of them use MPI here. From now on an uncaught
    exception on one rank ends all ranks. Raises ConfigError when mpi4py is missing.
    """
    if backend_name not in (None, "hccl", "nccl", "mpi"):
        raise ConfigError("no such backend", backend_name=repr(backend_name), allowed="hccl, nccl, mpi or None")
    if join().size > 1 and sys.excepthook is not _aborting:
        sys.excepthook = _aborting


def release() -> None:
    """Part of MindSpore's API, without effect: MPI ends with the process."""


def get_rank(group: str = WORLD) -> int:
    """The rank of this process, from 0. Raises ConfigError for another group than that of all ranks."""
    _check_group(group)
    return world.world().rank


def get_group_size(group: str = WORLD) -> int:
    """The number of ranks. Raises ConfigError as `get_rank`."""
    _check_group(group)
    return world.world().size


def get_local_rank(group: str = WORLD) -> int:
    """The number of this process among those of its machine, from 0. Raises ConfigError as `get_rank`."""
    _check_group(group)
    return world.world().local_rank


def get_local_rank_size(group: str = WORLD) -> int:
    """The number of ranks on this machine. Raises ConfigError as `get_rank`."""
    _check_group(group)
    return world.world().local_size


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """The same rank: there is one group. Raises ConfigError as `get_rank`."""
    _check_group(group)
    return whole_number("group_rank_id", group_rank_id, 0, world.world().size - 1)


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """The same rank: there is one group. Raises ConfigError as `get_rank`."""
    _check_group(group)
    return whole_number("world_rank_id", world_rank_id, 0, world.world().size - 1)


def _check_group(group: str) -> None:
    if group not in (HCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP):
        repair = "leave it out: runner has the group of all ranks"
        raise ConfigError(
            "no such group of ranks", group=repr(group), allowed=GlobalComm.WORLD_COMM_GROUP, repair=repair
        )


def _aborting(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End all ranks: the others would wait for this one in their next collective."""
    sys.__excepthook__(kind, error, trace)
    sys.stderr.flush()
    if not world.world().met(SAME_ERROR_SECONDS):
        world.world().abort(int(getattr(error, "exit_code", 1)))

"""Rank and size as mpirun sets them in the environment; MPI is loaded only when there are several processes."""

import os

from runner.communication import mpi
from runner.communication.world import World, enter, world

# Environment variables with rank and size: MPICH, Intel MPI and Slurm (the first pair), Open MPI.
LAUNCHERS = ("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")


def launched() -> tuple[int, int]:
    """Rank and size from the launcher of this process; (0, 1) without one."""
    for rank, size in LAUNCHERS:
        found = os.environ.get(rank, ""), os.environ.get(size, "")
        if found[0].isdigit() and found[1].isdigit():
            return int(found[0]), int(found[1])
    return 0, 1


START_SECONDS = 300.0  # how long a process waits for the others to start MPI


def join(seconds: float = START_SECONDS) -> World:
    """Join the world that mpirun launched this process in; without mpirun a world of size 1.

    Raises ConfigError when mpi4py or its MPI library is missing, or is not the MPI of mpirun, and TrainingError when
    other processes have not joined within `seconds`.
    """
    if world().size == 1 and launched()[1] > 1:
        enter(mpi.MpiWorld(*launched(), seconds))
    return world()

"""How a process finds the others: what mpirun says in the environment decides whether MPI is loaded at all."""

import os

from runner.communication import mpi
from runner.communication.world import World, enter, world

# How the launchers of MPICH, Intel MPI and Slurm (the first pair) and of Open MPI tell rank and size.
ANNOUNCED = ("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")


def announced() -> tuple[int, int]:
    """Rank and size as the launcher of this process tells them; (0, 1) when there was none."""
    for rank, size in ANNOUNCED:
        told = os.environ.get(rank, ""), os.environ.get(size, "")
        if told[0].isdigit() and told[1].isdigit():
            return int(told[0]), int(told[1])
    return 0, 1


def join() -> World:
    """The world that mpirun has started this process in; without mpirun a world of one.

    Raises ConfigError when mpi4py or its MPI is missing, or when it is another MPI than that of mpirun.
    """
    if world().size == 1 and announced()[1] > 1:
        enter(mpi.Ranks(announced()[1]))
    return world()

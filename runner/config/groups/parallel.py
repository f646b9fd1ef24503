"""Keys of the group `parallel`, which depend on its `name` (spec section 1.3)."""

from runner.communication import settings
from runner.validation.rules import MAX_COUNT, Frozen, key

# Modes of the reference that are not supported.
UNSUPPORTED = "hybrid_parallel", "semi_auto_parallel", "auto_parallel"
HINT = "this mode of the reference is not supported; stand_alone and data_parallel are"


class StandAlone(Frozen):
    """A single process."""

    name: str = key("stand_alone", choices=("stand_alone",))  # the parallel mode


class DataParallel(Frozen):
    """The processes of one `mpirun -n N runner ...`: each processes its part of every batch, gradients are reduced.

    `gradients_mean` false sums the gradients, as the reference does, which multiplies the learning rate by N.
    `device_num` and `global_rank`, if not null, must agree with mpirun.
    """

    name: str = key("data_parallel", choices=("data_parallel",))  # the parallel mode
    device_num: int | None = key(None, low=1, high=4096)  # number of processes; null: that of mpirun
    global_rank: int | None = key(None, low=0, high=4095)  # rank of this process; null: that of mpirun
    gradients_mean: bool = False  # mean of the gradients instead of their sum
    parameter_broadcast: bool = False  # initialise all ranks with the parameters of rank 0
    sync_batch_norm: bool = False  # batch normalization with the statistics of all ranks
    all_reduce_fusion_config: tuple[int, ...] | None = key(None, validate=settings.validate_indices)  # null: one bucket
    timeout_seconds: float = key(300.0, above=0, high=MAX_COUNT)  # wait of processes for each other at start and end


Parallel = StandAlone | DataParallel

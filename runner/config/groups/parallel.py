"""Keys of the group `parallel`, whose `name` decides which keys it has (spec section 1.3)."""

from dataclasses import dataclass

from runner.communication import fusion
from runner.validation.rules import key

# Modes of the reference that a user may ask for, and that are not here.
UNSUPPORTED = "hybrid_parallel", "semi_auto_parallel", "auto_parallel"
HINT = "this mode of the reference is not supported; stand_alone and data_parallel are"


@dataclass(frozen=True)
class StandAlone:
    """One process by itself."""

    name: str = key("stand_alone", choices=("stand_alone",))  # which one


@dataclass(frozen=True)
class DataParallel:
    """The processes of one `mpirun -n N runner ...`: each takes its part of every batch, gradients are those of all.

    `gradients_mean` false sums them, as the reference does: the learning rate then counts N times. `device_num` and
    `global_rank` null are those of mpirun; given, they must agree with it.
    """

    name: str = key("data_parallel", choices=("data_parallel",))  # which one
    device_num: int | None = key(None, low=1, high=4096)  # number of processes; null: that of mpirun
    global_rank: int | None = key(None, low=0, high=4095)  # of this process; null: that of mpirun
    gradients_mean: bool = False  # the mean of all gradients, not their sum
    parameter_broadcast: bool = False  # all begin with the parameters of the first
    all_reduce_fusion_config: tuple[int, ...] | None = key(None, validate=fusion.validate_indices)  # null: one bucket


Parallel = StandAlone | DataParallel
PARALLELS: dict[str, type[Parallel]] = {"stand_alone": StandAlone, "data_parallel": DataParallel}

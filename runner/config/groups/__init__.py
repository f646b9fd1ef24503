"""Groups of the config whose keys depend on the chosen option."""

from collections.abc import Mapping
from typing import Any, get_args

from runner.config.groups import further_optimizers  # noqa: F401  registers them
from runner.config.groups.dataset import DATASETS, DatasetSettings
from runner.config.groups.dump import Dump
from runner.config.groups.loss import LOSSES, LossSettings
from runner.config.groups.network import NETWORKS, NetworkSettings
from runner.config.groups.optimizer import OPTIMIZERS, OptimizerSettings
from runner.config.groups.parallel import Parallel
from runner.config.groups.profiling import Profiling
from runner.config.groups.schedule import SCHEDULES, ScheduleSettings
from runner.config.groups.tracking import Tracking

_UNIONS: dict[str, Any] = {"dump": Dump, "profiling": Profiling, "parallel": Parallel, "tracking": Tracking}
# The options of each group by name, the first one is the default. Those of the first four are registered.
GROUPS: dict[str, Mapping[str, type[Any]]] = {
    "network": NETWORKS,
    "dataset": DATASETS,
    "optimizer": OPTIMIZERS,
    "loss": LOSSES,
    **{group: {kind.name: kind for kind in get_args(union)} for group, union in _UNIONS.items()},
}
REGISTERED = ("network", "dataset", "optimizer", "loss")
# The records of each field of the schema whose keys depend on its `name`, by name.
NAMED: dict[Any, Mapping[str, type[Any]]] = {
    **{union: GROUPS[group] for group, union in _UNIONS.items()},
    NetworkSettings: NETWORKS,
    DatasetSettings: DATASETS,
    OptimizerSettings: OPTIMIZERS,
    LossSettings: LOSSES,
    ScheduleSettings: SCHEDULES,
}

"""Groups of the config whose keys depend on the chosen option."""

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

from runner import register
from runner.config.groups.dataset import DATASETS, DatasetSettings
from runner.config.groups.dump import Dump
from runner.config.groups.loss import LOSSES, LossSettings
from runner.config.groups.network import NETWORKS, NetworkSettings
from runner.config.groups.optimizer import OPTIMIZERS, OptimizerSettings
from runner.config.groups.parallel import Parallel
from runner.config.groups.profiling import Profiling
from runner.config.groups.schedule import SCHEDULES, ScheduleSettings
from runner.config.groups.tracking import Tracking

# Optimizers that few runs choose: their keys are read from signatures when one is chosen.
for _name in ("adam_weight_decay", "lamb", "lars", "rmsprop", "adagrad", "proximal_adagrad", "ftrl"):
    register.optimizer.late(_name, partial(importlib.import_module, "runner.config.groups.further_optimizers"))

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

"""Groups of the config whose keys depend on the chosen option."""

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

from runner import register
from runner.config.groups.entries import (
    DATASETS,
    LOSSES,
    NETWORKS,
    OPTIMIZERS,
    SCHEDULES,
    DatasetSettings,
    LossSettings,
    NetworkSettings,
    OptimizerSettings,
    ScheduleSettings,
)
from runner.config.groups.services import Dump, Parallel, Profiling, Tracking

# Optimizers that few runs choose: their keys are read from signatures when one is chosen.
for _name in ("adam_weight_decay", "lamb", "lars", "rmsprop", "adagrad", "proximal_adagrad", "ftrl"):
    register.optimizer.late(_name, partial(importlib.import_module, "runner.config.groups.entries"))

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

"""Groups of the config whose keys depend on the chosen option."""

from collections.abc import Mapping
from typing import Any

from runner.config.groups.dump import DUMPS, Dump
from runner.config.groups.loss import LOSSES, LossSettings
from runner.config.groups.optimizer import OPTIMIZERS, OptimizerSettings
from runner.config.groups.parallel import PARALLELS, Parallel
from runner.config.groups.profiling import PROFILES, Profiling
from runner.config.groups.schedule import SCHEDULES, ScheduleSettings
from runner.config.groups.tracking import TRACKINGS, Tracking

GROUPS: dict[str, Mapping[str, type[Any]]] = {
    "optimizer": OPTIMIZERS,
    "dump": DUMPS,
    "profiling": PROFILES,
    "parallel": PARALLELS,
    "tracking": TRACKINGS,
}
# The records of each field of the schema whose keys depend on its `name`, by name; the first one is the default.
NAMED: dict[Any, Mapping[str, type[Any]]] = {
    OptimizerSettings: OPTIMIZERS,
    ScheduleSettings: SCHEDULES,
    LossSettings: LOSSES,
    Dump: DUMPS,
    Profiling: PROFILES,
    Parallel: PARALLELS,
    Tracking: TRACKINGS,
}

"""Groups of the config whose option decides which keys they have."""

from collections.abc import Mapping
from typing import Any

from runner.config.groups.dump import DUMPS
from runner.config.groups.optimizer import OPTIMIZERS
from runner.config.groups.parallel import PARALLELS
from runner.config.groups.profiling import PROFILES
from runner.config.groups.tracking import TRACKINGS

GROUPS: dict[str, Mapping[str, type[Any]]] = {
    "optimizer": OPTIMIZERS,
    "dump": DUMPS,
    "profiling": PROFILES,
    "parallel": PARALLELS,
    "tracking": TRACKINGS,
}

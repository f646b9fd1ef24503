"""Groups of the config whose option decides which keys they have."""

from collections.abc import Mapping
from typing import Any

from runner.config.dumps import DUMPS
from runner.config.optimizers import OPTIMIZERS
from runner.config.parallel import PARALLELS
from runner.config.profiling import PROFILES
from runner.config.tracking import TRACKINGS

GROUPS: dict[str, Mapping[str, type[Any]]] = {
    "optimizer": OPTIMIZERS,
    "dump": DUMPS,
    "profiling": PROFILES,
    "parallel": PARALLELS,
    "tracking": TRACKINGS,
}

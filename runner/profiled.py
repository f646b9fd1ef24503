"""The profile of a run: from its config to the settings that the run is given."""

from pathlib import Path
from typing import TYPE_CHECKING

from runner.config.profiling import NoProfiling, wanted
from runner.config.schema import RunConfig
from runner.startup import lazy_import

if TYPE_CHECKING:
    from runner.profiling.settings import ProfilingSettings

keys = lazy_import("runner.profiling.keys")  # few runs are profiled


def settings(config: RunConfig, folder: Path) -> "ProfilingSettings":
    """The profile of a checked run in `folder` that asks for one; the folder of its files is there afterwards.

    Without words or JSON that choose, the group `profiling=trace` traces everything. Raises StorageError.
    """
    profiling, session = config.profiling, config.session
    everything = not isinstance(profiling, NoProfiling) and profiling.options is None
    made: ProfilingSettings = keys.settings(wanted(profiling, session), everything, folder, config.device.id)
    return made

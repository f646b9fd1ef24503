"""The dump of a run: from its config, its JSON file or the environment to the settings that the run is given."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from runner.config.groups import dump as group
from runner.config.schema import RunConfig
from runner.observe import dump

_LOG = logging.getLogger("runner")
FOLDER = "dump"  # in the run directory, when the config names no other


def settings(config: RunConfig, folder: Path) -> dump.DumpSettings | None:
    """The dump of a checked run in `folder`, whose own folder exists afterwards; None when nothing is dumped.

    Writes warnings to the log. Raises StorageError when the dump cannot be written, and ConfigError or ConfigErrors
    when a JSON file is no longer as it was when the config was checked.
    """
    defaults = {"path": str(folder.absolute() / FOLDER), "net_name": config.network.name}
    requested = group.settings(config.dump, defaults)
    if os.environ.get(dump.VARIABLE) and config.dump != group.NoDump():
        _LOG.warning("%s has no effect: the config of the run says what is dumped", dump.VARIABLE)
    return None if requested is None else requested.on(config.device.id)

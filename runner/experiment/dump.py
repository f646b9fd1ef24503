"""The dump of a run: its settings from the config, a JSON file or the environment."""

from __future__ import annotations

import os
from pathlib import Path

from runner.config.groups import dump as group
from runner.config.schema import RunConfig
from runner.host.log import LOG
from runner.observe import dump

FOLDER = "dump"  # in the run directory, when the config names no other


def settings(config: RunConfig, folder: Path) -> dump.DumpSettings | None:
    """The dump settings of a checked run in `folder`; None when nothing is dumped. Creates the dump's folder.

    Logs warnings. Raises StorageError when the dump cannot be written, and ConfigError or ConfigErrors when a JSON file
    has changed since the config was checked.
    """
    defaults = {"path": str(folder.absolute() / FOLDER), "net_name": config.network.name}
    requested = group.settings(config.dump, defaults)
    if os.environ.get(dump.VARIABLE) and config.dump != group.NoDump():
        LOG.warning("%s has no effect: the config of the run selects the dump", dump.VARIABLE)
    return None if requested is None else requested.on(config.device.id)

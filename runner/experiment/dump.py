"""The dump of a run: its settings from the config, a JSON file or the environment."""

from __future__ import annotations

import os
from dataclasses import replace

from runner import rundir
from runner.config.groups import services as group
from runner.config.schema import RunRequest
from runner.experiment import output_directories
from runner.host.console import LOG
from runner.observe import dump


def settings(request: RunRequest) -> dump.DumpSettings | None:
    """The dump settings of a checked run; None when nothing is dumped. Creates the dump's folder.

    Logs warnings. Raises StorageError when the dump cannot be written, and ConfigError or ConfigErrors when a JSON file
    has changed since the config was checked.
    """
    config = request.config
    defaults = {"path": str(request.folder.absolute() / rundir.DUMP), "net_name": config.network.name}
    requested = group.settings(config.dump, defaults)
    if os.environ.get(dump.VARIABLE) and config.dump != group.NoDump():
        LOG.warning("%s has no effect: the config of the run selects the dump", dump.VARIABLE)
    if requested is None:
        return None
    return replace(requested, path=output_directories.place(request.directories, requested.path)).on(config.device.card)

"""The dump of a run: from its config, its JSON file or the environment to the settings that the run is given."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.config.groups.dump import AsyncDump, GeDump, NoDump, SyncDump, from_file
from runner.config.schema import RunConfig
from runner.observe import dump

_LOG = logging.getLogger("runner")
FOLDER = "dump"  # in the run directory, when the config names no other


def settings(config: RunConfig, folder: Path) -> dump.DumpSettings | None:
    """The dump of a checked run in `folder`, whose own folder is there afterwards; None when nothing is dumped.

    What the user ought to know goes to the log. Raises StorageError when the dump cannot be written, and ConfigError
    or ConfigErrors when a JSON file is no longer as it was when the config was checked.
    """
    chosen = config.dump
    if isinstance(chosen, NoDump):
        asked: dump.Asked | None = from_file(chosen)
    elif chosen.enable:
        network = config.network.name
        asked = _of_ge(chosen, network) if isinstance(chosen, GeDump) else _of_keys(chosen, network, folder)
    else:
        asked = None
    if os.environ.get(dump.VARIABLE) and (chosen.config or not isinstance(chosen, NoDump)):
        _LOG.warning("%s has no effect: the config of the run says what is dumped", dump.VARIABLE)
    return None if asked is None else asked.on(config.device.id)


def _of_keys(group: SyncDump | AsyncDump, network: str, folder: Path) -> dump.Asked:
    values = asdict(group)
    values["path"] = group.path or str(folder.absolute() / FOLDER)
    values["net_name"] = group.net_name or network
    kind: dump.Kind = "sync" if isinstance(group, SyncDump) else "async"
    made = dump.Asked(dump.keys.settings(kind, values, _as_file(values)), group.support_device)
    return made


def _of_ge(group: GeDump, network: str) -> dump.Asked:
    values = {
        "path": os.path.abspath(str(group.dump_path)),
        "net_name": network,
        "iteration": "all" if group.dump_step is None else group.dump_step,
        "dump_mode": 0,
        "input_output": ("all", "input", "output").index(group.dump_mode),
        "file_format": group.file_format,
        "queue_mb": group.queue_mb,
    }
    source = _text({name: getattr(group, name) for name in ("enable_dump", "dump_path", "dump_step", "dump_mode")})
    made = dump.Asked(dump.keys.settings("ge", values, source))
    return made


def _as_file(values: Mapping[str, Any]) -> bytes:
    """The JSON file that asks for the same."""
    common, sync = dump.json_config.EXAMPLES[dump.json_config.COMMON], dump.json_config.EXAMPLES[dump.json_config.SYNC]
    chosen = {name: values[name] for name in (*common, "op_debug_mode")}
    if "trans_flag" in values:
        return _text({dump.json_config.COMMON: chosen, dump.json_config.SYNC: {name: values[name] for name in sync}})
    return _text({dump.json_config.COMMON: chosen | ({"file_format": "npy"} if values["file_format"] == "npy" else {})})


def _text(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=4) + "\n").encode()

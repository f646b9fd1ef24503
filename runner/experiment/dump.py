"""The dump of a run: from its config, its JSON file or the environment to the settings that the run is given."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.config.groups.dump import AsyncDump, GeDump, NoDump, SyncDump, from_file
from runner.config.schema import RunConfig
from runner.host.lazy import lazy_import
from runner.observe.dump import VARIABLE

if TYPE_CHECKING:
    from runner.observe.dump.json_config import Asked
    from runner.observe.dump.settings import DumpSettings

# Few runs dump anything.
json_file = lazy_import("runner.observe.dump.json_config")
keys = lazy_import("runner.observe.dump.keys")

_LOG = logging.getLogger("runner")
FOLDER = "dump"  # in the run directory, when the config names no other


def settings(config: RunConfig, folder: Path) -> "DumpSettings | None":
    """The dump of a checked run in `folder`, whose own folder is there afterwards; None when nothing is dumped.

    What the user ought to know goes to the log. Raises StorageError when the dump cannot be written, and ConfigError
    or ConfigErrors when a JSON file is no longer as it was when the config was checked.
    """
    dump = config.dump
    if isinstance(dump, NoDump):
        asked: Asked | None = from_file(dump)
    elif dump.enable:
        network = config.network.name
        asked = _of_ge(dump, network) if isinstance(dump, GeDump) else _of_keys(dump, network, folder)
    else:
        asked = None
    if os.environ.get(VARIABLE) and (dump.config or not isinstance(dump, NoDump)):
        _LOG.warning("%s has no effect: the config of the run says what is dumped", VARIABLE)
    return None if asked is None else asked.on(config.device.id)


def _of_keys(dump: SyncDump | AsyncDump, network: str, folder: Path) -> "Asked":
    values = asdict(dump)
    values["path"] = dump.path or str(folder.absolute() / FOLDER)
    values["net_name"] = dump.net_name or network
    kind = "sync" if isinstance(dump, SyncDump) else "async"
    made: Asked = json_file.Asked(keys.settings(kind, values, _as_file(values)), dump.support_device)
    return made


def _of_ge(dump: GeDump, network: str) -> "Asked":
    values = {
        "path": os.path.abspath(str(dump.dump_path)),
        "net_name": network,
        "iteration": "all" if dump.dump_step is None else dump.dump_step,
        "dump_mode": 0,
        "input_output": ("all", "input", "output").index(dump.dump_mode),
        "file_format": dump.file_format,
        "queue_mb": dump.queue_mb,
    }
    source = _text({name: getattr(dump, name) for name in ("enable_dump", "dump_path", "dump_step", "dump_mode")})
    made: Asked = json_file.Asked(keys.settings("ge", values, source))
    return made


def _as_file(values: Mapping[str, Any]) -> bytes:
    """The JSON file that asks for the same."""
    common, sync = json_file.EXAMPLES[json_file.COMMON], json_file.EXAMPLES[json_file.SYNC]
    chosen = {name: values[name] for name in (*common, "op_debug_mode")}
    if "trans_flag" in values:
        return _text({json_file.COMMON: chosen, json_file.SYNC: {name: values[name] for name in sync}})
    return _text({json_file.COMMON: chosen | ({"file_format": "npy"} if values["file_format"] == "npy" else {})})


def _text(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=4) + "\n").encode()

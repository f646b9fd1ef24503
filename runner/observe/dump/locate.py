"""Locates the iterations of a dump below a run directory, a dump path, or any folder in between.

{path}/{net_name}/{device_id}/iteration_{i}                    sync; MindSpore r1.2 on a CPU has no {device_id}
{path}/{device_id}/{net_name}_graph_{graph}/{graph}/{i}        async; GE has a folder named by the start time above
{path}/rank_{id}/{net_name}/{graph}/{i}                        MindSpore from r1.3 on
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, DataError
from runner.host import json
from runner.host.files import real_path, storage_errors
from runner.host.ownership import directories_of
from runner.observe.dump.file_names import AsyncName, NpyName

CONFIG, FOLDER = "config.json", "dump"  # of a run directory
CONFIG_LIMIT = 1 << 24  # bytes
MAX_DEPTH = 8  # levels from a dump path to an iteration: GE has six
_SYNC = re.compile(r"iteration_(\d{1,18})")
_NUMBER = re.compile(r"\d{1,18}")
_GRAPH = re.compile(r"(.*)_graph_\d+")
_OTHER_FOLDERS = {"graphs", "execution_order", "constants"}


@dataclass(frozen=True)
class DumpLocation:
    """The folder of one iteration; asynchronous dumps have one folder per graph.

    `device` is the folder with `graphs` and `execution_order`; `graph` is None if all graphs share the folder.
    """

    folder: Path
    device: Path
    iteration: int
    graph: int | None

    @property
    def series(self) -> tuple[Path, str]:
        """The device folder and the network: the iterations with equal values are one dump."""
        if self.graph is None:
            return self.device, ""
        network = self.folder.parent.parent.name
        found = _GRAPH.fullmatch(network)
        return self.device, network if found is None else found[1]

    @property
    def series_path(self) -> Path:
        """A path that contains this series only."""
        return self.device if self.graph is None else self.folder.parent.parent


def find_iterations(path: Path) -> tuple[DumpLocation, ...]:
    """The iterations of the dump at `path`, ascending.

    Raises DataError if there is no dump, ConfigError if there are several.
    """
    if not path.exists():
        raise DataError("the run or dump does not exist", path=path)
    root = _dump_path(path) if (path / CONFIG).is_file() or (path / FOLDER).is_dir() else path
    found: list[DumpLocation] = []
    with storage_errors("cannot read a folder of a dump", root), suppress(FileNotFoundError):
        found = sorted(_scan(real_path(root), MAX_DEPTH), key=lambda one: (one.iteration, one.graph or 0))
    if not found:
        searched = root if root != path else None
        hint = "runner ... dump=sync dataset_sink_mode=false writes a dump, and so does dump=async"
        raise DataError("no dump found", path=path, searched=searched, hint=hint)
    dumps = {location.series: location.series_path for location in reversed(found)}
    if len(dumps) > 1:
        listed = "\n".join(sorted(map(str, dumps.values())))
        raise ConfigError("the path has several dumps", path=path, choices=listed, hint="give the path of one")
    return tuple(found)


def _dump_path(run: Path) -> Path:
    """The dump path in the config of a run."""
    config = run / CONFIG
    group = _read_json(config).get("dump") if config.is_file() else None
    values = group if isinstance(group, dict) else {}
    path = values.get("path") or values.get("dump_path")
    claimed = directories_of(run)
    if not path and values.get("config"):
        common = _read_json(Path(str(values["config"]))).get("common_dump_settings")
        path = common.get("path") if isinstance(common, dict) else None
    return Path(claimed.get(os.path.abspath(str(path)), str(path))) if path else run / FOLDER


def _read_json(path: Path) -> dict[str, Any]:
    found = json.read(path, CONFIG_LIMIT)
    return found if isinstance(found, dict) else {}


def _scan(folder: Path, depth: int) -> Iterator[DumpLocation]:
    if found := _SYNC.fullmatch(folder.name):
        yield DumpLocation(folder, folder.parent, int(found[1]), None)
        return
    with os.scandir(folder) as entries:
        parts = [(entry.name, entry.is_dir()) for entry in entries]
    if _NUMBER.fullmatch(folder.name) and any(_is_dump_file(name) for name, is_folder in parts if not is_folder):
        graph = folder.parent.name
        yield DumpLocation(folder, folder.parents[2], int(folder.name), int(graph) if _NUMBER.fullmatch(graph) else 0)
    elif depth:
        for name, is_folder in parts:
            if is_folder and name not in _OTHER_FOLDERS and not name.startswith("."):
                yield from _scan(folder / name, depth - 1)


def _is_dump_file(name: str) -> bool:
    return AsyncName.parse(name) is not None or NpyName.parse(name) is not None

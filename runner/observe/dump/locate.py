"""Where a dump lies: the folders of its iterations, below a run directory, a dump path, or any folder in between.

{path}/{net_name}/{device_id}/iteration_{i}                    sync; without the device MindSpore r1.2 on a CPU
{path}/{device_id}/{net_name}_graph_{graph}/{graph}/{i}        async; with a folder of the start in front GE
{path}/rank_{id}/{net_name}/{graph}/{i}                        MindSpore from r1.3 on
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, DataError
from runner.host.files import read_bytes, storage_error
from runner.observe.dump.file_names import AsyncName, NpyName

CONFIG, FOLDER = "config.json", "dump"  # of a run directory
CONFIG_LIMIT = 1 << 24  # bytes
DEEPEST = 8  # levels from a dump path to an iteration: GE has six
_SYNC = re.compile(r"iteration_(\d{1,18})")
_NUMBER = re.compile(r"\d{1,18}")
_GRAPH = re.compile(r"(.*)_graph_\d+")
_ASIDE = {"graphs", "execution_order", "constants"}


@dataclass(frozen=True)
class Place:
    """The folder of one iteration; async ones have one for each graph.

    `device` is the folder with `graphs` and `execution_order`; `graph` is None where all graphs share the folder.
    """

    folder: Path
    device: Path
    iteration: int
    graph: int | None

    @property
    def series(self) -> tuple[Path, str]:
        """What makes one dump: a device, and a network on it."""
        if self.graph is None:
            return self.device, ""
        network = self.folder.parent.parent.name
        found = _GRAPH.fullmatch(network)
        return self.device, network if found is None else found[1]

    @property
    def choice(self) -> Path:
        """A path that leads to this series only."""
        return self.device if self.graph is None else self.folder.parent.parent


def find(path: Path) -> tuple[Place, ...]:
    """The iterations of the dump at `path`, ascending.

    Raises DataError when there is none, ConfigError when there are several dumps to choose from.
    """
    if not path.exists():
        raise DataError("the run or dump does not exist", path=path)
    root = _dump_of_run(path) if (path / CONFIG).is_file() or (path / FOLDER).is_dir() else path
    try:
        found = sorted(_below(root.resolve(), DEEPEST), key=lambda place: (place.iteration, place.graph or 0))
    except FileNotFoundError:
        found = []
    except OSError as reason:
        raise storage_error("cannot read a folder of a dump", root, reason) from reason
    if not found:
        where = root if root != path else None
        hint = "runner ... dump=sync dataset_sink_mode=false writes a dump, and so does dump=async"
        raise DataError("no dump found", path=path, looked_in=where, hint=hint)
    choices = {place.series: place.choice for place in reversed(found)}
    if len(choices) > 1:
        listed = "\n".join(sorted(map(str, choices.values())))
        raise ConfigError("several dumps to choose from", path=path, choices=listed, hint="give the path of one")
    return tuple(found)


def _dump_of_run(run: Path) -> Path:
    """Where the config of a run has put its dump."""
    config = run / CONFIG
    block = _json(config).get("dump") if config.is_file() else None
    chosen = block if isinstance(block, dict) else {}
    place = chosen.get("path") or chosen.get("dump_path")
    if not place and chosen.get("config"):
        common = _json(Path(str(chosen["config"]))).get("common_dump_settings")
        place = common.get("path") if isinstance(common, dict) else None
    return Path(str(place)) if place else run / FOLDER


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(path, CONFIG_LIMIT))
    except (ValueError, RecursionError) as reason:
        if isinstance(reason, DataError):
            raise
        raise DataError("not a JSON file", file=path, reason=reason) from None
    return found if isinstance(found, dict) else {}


def _below(folder: Path, depth: int) -> Iterator[Place]:
    if found := _SYNC.fullmatch(folder.name):
        yield Place(folder, folder.parent, int(found[1]), None)
        return
    with os.scandir(folder) as entries:
        parts = [(entry.name, entry.is_dir()) for entry in entries]
    if _NUMBER.fullmatch(folder.name) and any(_is_dumped(name) for name, is_folder in parts if not is_folder):
        graph = folder.parent.name
        yield Place(folder, folder.parents[2], int(folder.name), int(graph) if _NUMBER.fullmatch(graph) else 0)
    elif depth:
        for name, is_folder in parts:
            if is_folder and name not in _ASIDE and not name.startswith("."):
                yield from _below(folder / name, depth - 1)


def _is_dumped(name: str) -> bool:
    return AsyncName.parse(name) is not None or NpyName.parse(name) is not None

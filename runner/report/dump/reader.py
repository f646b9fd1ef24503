"""A dump on disk: `find_iterations` locates its iterations, `read_entries` has the parameters, constants and operators
of one with their tensors.

Elements are memory-mapped and read on access. Operators of asynchronous dumps get the full names that the caller
passes; the others keep their sanitised names.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from runner import dtype as dt, rundir
from runner.errors import ConfigError, DataError
from runner.host import json
from runner.host.files import names, read_bytes, real_path, storage_errors
from runner.observe.dump import layouts
from runner.observe.dump.files import (
    ASYNCHRONOUS,
    DEFAULT_FORMAT,
    FORMATS,
    OVERFLOW,
    PARAMETER,
    AsyncName,
    StoredFile,
    long_names,
)
from runner.rundir import directories_of
from runner.types import Shape, TensorType

TEXT_LIMIT = 1 << 28  # bytes of a list of names
PLAIN = (DEFAULT_FORMAT, *layouts.PLAIN)
VIEWS = (*PLAIN, "CHWN", layouts.TILED)  # formats without padding
_NUMBER = re.compile(r"op(\d{1,18})$")


@dataclass(frozen=True)
class SavedTensor:
    """A tensor in a file. `shape` is in the layout `format`; `original` is the logical shape, () if unknown."""

    io: str
    slot: int
    path: Path
    dtype: dt.DType
    shape: Shape
    format: str
    original: Shape
    raw: Callable[[], np.ndarray]  # the elements in the layout `format`; raises DataError

    @property
    def label(self) -> str:
        """Side and slot as in file names: `output_0`."""
        return f"{self.io}_{self.slot}"

    @property
    def type(self) -> TensorType:
        """The logical dtype and shape, as far as known."""
        shape = self.shape
        if self.format == "CHWN":
            shape = (*shape[-1:], *shape[:-1])
        elif self.format == layouts.TILED and len(shape) == 6:
            shape = shape[5], shape[2], 2 * shape[3], 2 * shape[4]
        elif self.original and self.format not in PLAIN:
            shape = self.original
        return TensorType(self.dtype, shape)

    def array(self) -> np.ndarray:
        """The elements in the logical shape. Raises DataError for a damaged file and an unknown format."""
        raw = self.raw()
        try:
            return raw if self.format in PLAIN else layouts.to_nchw(raw, self.format, self.original)
        except DataError as error:
            raise error.add(file=self.path) from None


@dataclass(frozen=True)
class DumpEntry:
    """A parameter, a constant, or an operator with its inputs and outputs."""

    name: str
    is_value: bool  # a parameter or constant
    read: Callable[[], Sequence[SavedTensor]]

    def tensors(self) -> dict[str, SavedTensor]:
        """By label: inputs, then outputs. Raises DataError for damaged files."""
        return {tensor.label: tensor for tensor in sorted(self.read(), key=lambda tensor: (tensor.io, tensor.slot))}

    @property
    def number(self) -> int:
        """N of `op{N}`: the position in execution order, for dumps without an `execution_order` file."""
        found = _NUMBER.search(self.name)
        return int(found[1]) if found else 1 << 60


def read_entries(folder: Path, full_names: dict[str, str]) -> Iterator[DumpEntry]:
    """The entries of one iteration; `full_names` maps sanitised names to full ones."""
    executions: dict[tuple[str, str], dict[AsyncName, list[tuple[StoredFile, Path]]]] = {}
    unshortened = long_names(folder)
    for file in names(folder):
        path, name = folder / file, unshortened.get(file, file)
        if file.startswith("."):  # a temporary file of a dump that is being written
            continue
        size = path.stat().st_size
        for format in FORMATS:
            if stored := format.parse(name, size):
                operator = stored.operator
                full = operator.op_name if format.has_full_names else full_names.get(operator.op_name, operator.op_name)
                entry = executions.setdefault((operator.op_type, full), {})
                entry.setdefault(operator, []).append((stored, path))
                break
    for (op_type, name), found in executions.items():
        if op_type != OVERFLOW:
            latest = found[max(found, key=lambda operator: operator.timestamp)]  # of the last run that wrote here
            yield DumpEntry(name, op_type == PARAMETER, partial(_tensors, latest))


def _tensors(files: Sequence[tuple[StoredFile, Path]]) -> list[SavedTensor]:
    return [
        SavedTensor(io, slot, path, header.dtype, header.shape, header.format, header.original, elements)
        for file, path in files
        for io, slot, header, elements in file.read(path)
    ]


def read_text(path: Path) -> str:
    """The content of a UTF-8 file. Raises DataError."""
    try:
        return read_bytes(path, TEXT_LIMIT).decode()
    except UnicodeDecodeError:
        raise DataError("not a text file", file=path) from None


# Locates the iterations of a dump below a run directory, a dump path, or any folder in between.
#
# {path}/{net_name}/{device_id}/iteration_{i}                    sync; MindSpore r1.2 on a CPU has no {device_id}
# {path}/{device_id}/{net_name}_graph_{graph}/{graph}/{i}        async; GE has a folder named by the start time above
# {path}/rank_{id}/{net_name}/{graph}/{i}                        MindSpore from r1.3 on

CONFIG_LIMIT = 1 << 24  # bytes
MAX_DEPTH = 8  # levels from a dump path to an iteration: GE has six
_SYNC = re.compile(r"iteration_(\d{1,18})")
_FOLDER_NUMBER = re.compile(r"\d{1,18}")
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
    root = _dump_path(path) if (path / rundir.CONFIG).is_file() or (path / rundir.DUMP).is_dir() else path
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
    config = run / rundir.CONFIG
    group = _read_json(config).get("dump") if config.is_file() else None
    values = group if isinstance(group, dict) else {}
    path = values.get("path") or values.get("dump_path")
    claimed = directories_of(run)
    if not path and values.get("config"):
        common = _read_json(Path(str(values["config"]))).get("common_dump_settings")
        path = common.get("path") if isinstance(common, dict) else None
    return Path(claimed.get(os.path.abspath(str(path)), str(path))) if path else run / rundir.DUMP


def _read_json(path: Path) -> dict[str, Any]:
    found = json.read(path, CONFIG_LIMIT)
    return found if isinstance(found, dict) else {}


def _scan(folder: Path, depth: int) -> Iterator[DumpLocation]:
    if found := _SYNC.fullmatch(folder.name):
        yield DumpLocation(folder, folder.parent, int(found[1]), None)
        return
    with os.scandir(folder) as entries:
        parts = [(entry.name, entry.is_dir()) for entry in entries]
    if _FOLDER_NUMBER.fullmatch(folder.name) and any(_is_dump_file(name) for name, is_folder in parts if not is_folder):
        graph = folder.parent.name
        yield DumpLocation(
            folder, folder.parents[2], int(folder.name), int(graph) if _FOLDER_NUMBER.fullmatch(graph) else 0
        )
    elif depth:
        for name, is_folder in parts:
            if is_folder and name not in _OTHER_FOLDERS and not name.startswith("."):
                yield from _scan(folder / name, depth - 1)


def _is_dump_file(name: str) -> bool:
    return any(format.parse(name, 0) for format in ASYNCHRONOUS.values())

"""The synchronous layout of seed 002: one file per tensor, written before the step continues.

{path}/{net_name}/{device_id}/iteration_{i}/{SyncName}
{path}/{net_name}/{device_id}/graphs/ms_output_trace_code_graph_{graph}.ir, .pb
{path}/{net_name}/{device_id}/execution_order/ms_execution_order_graph_{graph}.csv
{path}/.metadata/data_dump.json
"""

from collections.abc import Iterator
from pathlib import Path

from runner.core.graph import ObservedValue
from runner.core.lowering import PLAIN
from runner.core.operators import Node
from runner.host.files import make_directory, names
from runner.observe.dump.file_names import DEFAULT_FORMAT, INPUT, OUTPUT, SyncName
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.writer import DumpWriter, Side, write_metadata, write_pieces
from runner.types import TensorType

STEP = "iteration_"


class SyncWriter(DumpWriter):
    """Writer of the synchronous layout. Raises StorageError if a file cannot be written."""

    def __init__(self, settings: DumpSettings, device_id: int) -> None:
        super().__init__(settings.path / settings.net_name / str(device_id))
        write_metadata(settings.path, settings)

    def write_operator(self, step: int, graph: int, task: int, node: Node, inputs: Side, outputs: Side) -> None:
        """Write a file for each tensor, named by the full name of the operator."""
        folder = make_directory(self.step_folder(step, graph))
        for io, values in ((INPUT, inputs), (OUTPUT, outputs)):
            for slot, value in enumerate(values or ()):
                _write(folder, node.name, io, slot, value)

    def write_value(self, step: int, graph: int, name: str, value: ObservedValue) -> None:
        """Write a parameter or constant as an output under its own name."""
        _write(make_directory(self.step_folder(step, graph)), name, OUTPUT, 0, value)

    def step_folder(self, step: int, graph: int) -> Path:
        """All graphs share the folder of a step."""
        return self.folder / f"{STEP}{step}"

    def step_folders(self) -> Iterator[tuple[int, Path]]:
        """The folders `iteration_{step}`."""
        for name in names(self.folder):
            if name.startswith(STEP) and (number := name.removeprefix(STEP)).isdecimal():
                yield int(number), self.folder / name


def _write(folder: Path, name: str, io: str, slot: int, value: ObservedValue) -> None:
    array, layout = value
    format = DEFAULT_FORMAT if layout is PLAIN else layout.value
    write_pieces(folder / str(SyncName(name, io, slot, TensorType.of(array), format)), [array])

"""What dump files are converted to: .npy and raw files, named as the reference's msaccucmp.py names them.

    {file}.{io}.{slot}.npy                                      as it lies
    {file}.{io}.{slot}.{d0xd1x...}.npy                          converted to a format, with the shape as converted
    {file}.{io}.{slot}.{d0_d1_...}.{numpy type}.{FORMAT}.bin    type bin: the elements only
    {file}.{io}.{slot}.{FORMAT}.npy                             type msnpy: {file} has the last part of the full name
    {file}.l1buffer.{k}.bin, {file}.space.{k}.bin               pieces of memory
    {file}.output.{slot}.json                                   the record of an overflow

A name that is too long becomes a number; `mapping.csv` says which.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

import numpy as np

from runner.errors import DataError
from runner.host.files import make_directory
from runner.observe.dump import formats, mapping_csv, overflow
from runner.observe.dump.async_writer import npy_header
from runner.observe.dump.cann_file import DumpFile, Loaded, Stored, read
from runner.observe.dump.file_names import INPUT, OUTPUT, AsyncName, sanitised
from runner.observe.dump.formats import in_order
from runner.observe.dump.writer import Piece, write_pieces
from runner.types import Shape

TOO_LONG = 255  # bytes; the reference shortens names from here on
_RECORD = f"{overflow.OP_TYPE}.{overflow.OP_NAME}."


@dataclass(frozen=True)
class Choice:
    """What is to be made of each file. `shape` is () where nothing was said; `input` and `output` are slots."""

    format: str | None = None
    shape: Shape = ()
    type: Literal["npy", "bin", "msnpy"] = "npy"
    input: int | None = None
    output: int | None = None
    version: Literal[1, 2] | None = None

    def of(self, file: DumpFile) -> Iterator[tuple[str, int, Loaded]]:
        """The tensors that were chosen, each with its side and slot. Raises DataError when there is no such slot."""
        everything = self.input is None and self.output is None
        for side, slot, tensors in ((INPUT, self.input, file.inputs), (OUTPUT, self.output, file.outputs)):
            if slot is not None and slot >= len(tensors):
                raise DataError(f"the operator has no such {side}", slot=slot, allowed=f"below {len(tensors)}")
            for k, tensor in enumerate(tensors):
                if everything or k == slot:
                    yield side, k, tensor


class Lost(NamedTuple):
    """A tensor that could not be converted, or a file when `place` is empty."""

    place: str
    error: DataError


class Results:
    """The folder of the results. To be closed: it then says which names were too long."""

    def __init__(self, folder: Path, choice: Choice) -> None:
        self._folder, self._choice = folder, choice
        self._mapped: dict[Path, dict[str, str]] = {}
        self.count = 0  # files written

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for folder, names in self._mapped.items():
            mapping_csv.add(folder, names)

    def add(self, path: Path, name: str, below: Path) -> list[Lost]:
        """Convert a file that has this name, into a folder below that of the results; what could not be converted.

        Raises StorageError.
        """
        try:
            file = read(path, self._choice.version)
            chosen = list(self._choice.of(file))
        except DataError as error:
            return [Lost("", error.add(file=path))]
        folder, lost = make_directory(self._folder / below), []
        for side, slot, tensor in chosen:
            try:
                self._add_tensor(folder, name, file.op_name, side, slot, tensor)
            except DataError as error:
                lost.append(Lost(f"{side}:{slot}", error.add(file=path, place=f"{side} {slot}")))
        if self._choice.input is None and self._choice.output is None:
            for kind, pieces in (("l1buffer", file.buffers), ("space", file.spaces)):
                for k, piece in enumerate(pieces):
                    self._write(folder, f"{name}.{kind}.{k}", ".bin", [np.frombuffer(piece, np.uint8)])
        return lost

    def _add_tensor(self, folder: Path, name: str, op_name: str, side: str, slot: int, tensor: Loaded) -> None:
        if name.startswith(_RECORD) and side == OUTPUT:
            content = tensor.array.reshape(-1).view(np.uint8).data
            parsed = json.dumps(overflow.parse(content), indent=4).encode()
            self._write(folder, f"{name}.{side}.{slot}", ".json", [parsed])
            return
        choice, array, format = self._choice, tensor.array, tensor.format
        if choice.format:
            format = choice.format
            original = choice.shape or tensor.original
            array = in_order(formats.convert(array, tensor.format, format, original, tensor.groups))
        stem = f"{name}.{side}.{slot}"
        if choice.type == "bin":
            stem += f".{'_'.join(map(str, array.shape))}.{array.dtype.name}.{format}"
            self._write(folder, stem, ".bin", [array])
            return
        if choice.type == "msnpy":
            stem = f"{_shorter(name, op_name)}.{side}.{slot}.{format}"
        elif choice.format:
            stem += "." + "x".join(map(str, array.shape))
        self._write(folder, stem, ".npy", [npy_header(Stored(tensor.dtype, format, array.shape, ())), array])

    def _write(self, folder: Path, stem: str, suffix: str, pieces: Sequence[Piece]) -> None:
        name = stem + suffix
        if len(os.fsencode(name)) >= TOO_LONG:
            short = uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + suffix
            self._mapped.setdefault(folder, {})[short] = name
            name = short
        write_pieces(folder / name, pieces)
        self.count += 1


def _shorter(name: str, op_name: str) -> str:
    """The name of a dump file with the last part of the operator's full name."""
    parts = name.split(".")
    last = sanitised(op_name.rpartition("/")[2])
    return ".".join((parts[0], last, *parts[2:])) if last and AsyncName.parse(name) else name

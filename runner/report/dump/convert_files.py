"""Conversion of dump files to .npy and raw files, named as the reference's msaccucmp.py names them.

    {file}.{io}.{slot}.npy                                      in the device layout
    {file}.{io}.{slot}.{d0xd1x...}.npy                          converted to a format; the shape after conversion
    {file}.{io}.{slot}.{d0_d1_...}.{numpy type}.{FORMAT}.bin    type bin: the elements only
    {file}.{io}.{slot}.{FORMAT}.npy                             type msnpy: {file} has the last part of the full name
    {file}.l1buffer.{k}.bin, {file}.space.{k}.bin               memory buffers
    {file}.output.{slot}.json                                   an overflow record

A name that is too long is replaced by a hash, and `mapping.csv` has the full name.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from runner.errors import DataError
from runner.host.files import make_directory
from runner.observe.dump import formats, mapping_csv, overflow
from runner.observe.dump.async_writer import npy_header
from runner.observe.dump.cann_file import DumpFile, LoadedTensor, TensorHeader, read
from runner.observe.dump.file_names import INPUT, OUTPUT, AsyncName, sanitised
from runner.observe.dump.formats import to_c_order
from runner.observe.dump.writer import Piece, write_pieces
from runner.types import Shape

MAX_NAME_BYTES = 255  # as in the reference, which shortens names of this length and above
_RECORD = f"{overflow.OP_TYPE}.{overflow.OP_NAME}."


@dataclass(frozen=True)
class ConversionOptions:
    """Options of `runner convert`. `shape` is () if not given; `input` and `output` are slots, None if not given."""

    format: str | None = None
    shape: Shape = ()
    type: Literal["npy", "bin", "msnpy"] = "npy"
    input: int | None = None
    output: int | None = None
    version: Literal[1, 2] | None = None

    def select(self, file: DumpFile) -> Iterator[tuple[str, int, LoadedTensor]]:
        """The selected tensors with side and slot. Raises DataError if a slot does not exist."""
        everything = self.input is None and self.output is None
        for side, slot, tensors in ((INPUT, self.input, file.inputs), (OUTPUT, self.output, file.outputs)):
            if slot is not None and slot >= len(tensors):
                raise DataError(f"the operator has no such {side}", slot=slot, allowed=f"below {len(tensors)}")
            for k, tensor in enumerate(tensors):
                if everything or k == slot:
                    yield side, k, tensor


class ConversionFailure(NamedTuple):
    """A tensor, as `{side}:{slot}`, that could not be converted; the whole file if `tensor` is empty."""

    tensor: str
    error: DataError


class Converter:
    """Converts dump files into `folder`; to be closed."""

    def __init__(self, folder: Path, options: ConversionOptions) -> None:
        self._folder, self._options = folder, options
        self._shortened: dict[Path, dict[str, str]] = {}
        self.count = 0  # files written

    def close(self) -> None:
        """Write `mapping.csv` for names that were too long."""
        for folder, names in self._shortened.items():
            mapping_csv.add(folder, names)

    def convert(self, path: Path, name: str, subfolder: Path) -> list[ConversionFailure]:
        """Convert a file, whose full name is `name`, into a subfolder of the output; returns what failed.

        Raises StorageError.
        """
        try:
            file = read(path, self._options.version)
            selected = list(self._options.select(file))
        except DataError as error:
            return [ConversionFailure("", error.add(file=path))]
        folder, failures = make_directory(self._folder / subfolder), []
        for side, slot, tensor in selected:
            try:
                self._convert_tensor(folder, name, file.op_name, side, slot, tensor)
            except DataError as error:
                failures.append(ConversionFailure(f"{side}:{slot}", error.add(file=path, place=f"{side} {slot}")))
        if self._options.input is None and self._options.output is None:
            for kind, buffers in (("l1buffer", file.buffers), ("space", file.spaces)):
                for k, buffer in enumerate(buffers):
                    self._write(folder, f"{name}.{kind}.{k}", ".bin", [np.frombuffer(buffer, np.uint8)])
        return failures

    def _convert_tensor(
        self, folder: Path, name: str, op_name: str, side: str, slot: int, tensor: LoadedTensor
    ) -> None:
        if name.startswith(_RECORD) and side == OUTPUT:
            content = tensor.array.reshape(-1).view(np.uint8).data
            parsed = json.dumps(overflow.parse(content), indent=4).encode()
            self._write(folder, f"{name}.{side}.{slot}", ".json", [parsed])
            return
        options, array, format = self._options, tensor.array, tensor.format
        if options.format:
            format = options.format
            original = options.shape or tensor.original
            array = to_c_order(formats.convert(array, tensor.format, format, original, tensor.groups))
        stem = f"{name}.{side}.{slot}"
        if options.type == "bin":
            stem += f".{'_'.join(map(str, array.shape))}.{array.dtype.name}.{format}"
            self._write(folder, stem, ".bin", [array])
            return
        if options.type == "msnpy":
            stem = f"{_short_name(name, op_name)}.{side}.{slot}.{format}"
        elif options.format:
            stem += "." + "x".join(map(str, array.shape))
        self._write(folder, stem, ".npy", [npy_header(TensorHeader(tensor.dtype, format, array.shape, ())), array])

    def _write(self, folder: Path, stem: str, suffix: str, pieces: Sequence[Piece]) -> None:
        name = stem + suffix
        if len(os.fsencode(name)) >= MAX_NAME_BYTES:
            short = uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + suffix
            self._shortened.setdefault(folder, {})[short] = name
            name = short
        write_pieces(folder / name, pieces)
        self.count += 1


def _short_name(name: str, op_name: str) -> str:
    """The name of a dump file with only the last part of the operator's full name."""
    parts = name.split(".")
    last = sanitised(op_name.rpartition("/")[2])
    return ".".join((parts[0], last, *parts[2:])) if last and AsyncName.parse(name) else name

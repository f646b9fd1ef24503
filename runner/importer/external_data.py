"""Tensors of an ONNX model whose elements are in other files: those below the model's directory, of the right size."""

import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from runner.errors import DataError
from runner.host.files import open_regular
from runner.host.machine import require_memory

ALLOWED = "a file below the directory of the model"


class ExternalData:
    """The files beside a model. Nothing outside of its directory is opened, whatever the model says."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.folder = Path(os.path.realpath(model.parent))
        self._files: set[Path] = set()

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that were read."""
        return tuple(sorted(self._files))

    def array(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], entries: dict[str, str]) -> np.ndarray:
        """The elements of a tensor. Raises DataError for another place, and for another length than the type has."""
        needed = math.prod(shape) * dtype.itemsize
        path = self._path(name, entries.get("location", ""))
        self._files.add(path)
        offset, length = (self._whole(name, entries, key) for key in ("offset", "length"))
        if length is not None and length != needed:
            what = "external data have another length than the tensor"
            raise DataError(what, tensor=name, file=path, declared=length, expected=needed, model=self.model)
        require_memory(needed, tensor=name, model=self.model)
        try:
            with open_regular(path, 1 << 62) as file:
                return self._read(file, offset or 0, needed, dtype).reshape(shape)
        except DataError as error:
            raise error.add(tensor=name, model=self.model) from None

    def _path(self, name: str, location: str) -> Path:
        path = Path(os.path.realpath(self.folder / location))
        if not location or os.path.isabs(location) or "\0" in location or self.folder not in path.parents:
            what = "external data are outside of the model's directory"
            raise DataError(what, tensor=name, location=repr(location), model=self.model, allowed=ALLOWED)
        return path

    def _whole(self, name: str, entries: dict[str, str], key: str) -> int | None:
        text = entries.get(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise DataError(f"{key} of external data is no number", tensor=name, value=repr(text), model=self.model)
        return int(text)

    def _read(self, file: BinaryIO | Any, offset: int, needed: int, dtype: np.dtype[Any]) -> np.ndarray:
        size = os.fstat(file.fileno()).st_size
        if offset + needed > size:
            raise DataError(
                "a file of external data is too short", file=file.name, expected=offset + needed, found=size
            )
        file.seek(offset)
        data = file.read(needed)
        if len(data) != needed:
            raise DataError("a file of external data is too short", file=file.name, expected=needed, found=len(data))
        return np.frombuffer(data, dtype)

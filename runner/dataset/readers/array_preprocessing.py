"""The inputs of a network from arrays of numpy, and from new files with such arrays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from runner import dtype as dt
from runner.dataset.column import Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset
from runner.dataset.preprocessing import Preprocessing
from runner.dataset.readers.arguments import require_files
from runner.dataset.readers.npy_content import NpzFile, map_array
from runner.dataset.readers.selected_rows import value_range
from runner.dataset.row_source import RowSource
from runner.dataset.transforms.c_transforms.labels import TypeCast
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.c_transforms.intensity import Rescale
from runner.errors import DataError
from runner.host.json import StoredValues

__all__ = ["ArrayPreprocessing"]

INT32 = np.iinfo(np.int32)

Source = np.ndarray | RowSource


class ArrayPreprocessing(Preprocessing):
    """Arrays as Float32 or Int32 samples.

    `shapes` has the shape of a sample for each input, `integers` those that become Int32; the values of the others are
    multiplied by `scale`, if there is one.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], integers: tuple[str, ...] = (), scale: float | None = None
    ) -> None:
        self.shapes, self.integers, self.scale = dict(shapes), integers, scale

    def dataset(self, inputs: Mapping[str, Source], *more: Column) -> Dataset:
        """The dataset of these inputs and of other columns. Raises DataError for integers outside of 32 bits."""
        columns = [Column(name, values) for name, values in inputs.items()]
        data = Dataset([*columns, *more], SourceOrder(len(columns[0].source)))
        for name, values in inputs.items():
            if name in self.integers:
                _require_int32(name, values)
            data = data.map(self._transform(name), name)
        data.preprocessing = self
        return data

    def read(self, paths: Sequence[Path]) -> Dataset:
        """The samples of `.npz` files that have the inputs; for one input also of `.npy` files, with samples or one.

        Raises DataError for other shapes and for damaged files.
        """
        require_files(paths)
        inputs: dict[str, list[np.ndarray]] = {name: [] for name in self.shapes}
        row_names: list[str] = []
        for path in paths:
            found = self._read_file(path)
            row_names += [f"{path}[{row}]" for row in range(len(next(iter(found.values()))))]
            for name, values in found.items():
                inputs[name].append(values)
        whole = {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in inputs.items()}
        data = self.dataset(whole)
        data.row_names = row_names
        return data

    def as_json(self) -> dict[str, Any]:
        """The values of the constructor."""
        inputs = [
            {"name": name, "shape": list(shape), "is_integer": name in self.integers}
            for name, shape in self.shapes.items()
        ]
        return {"reader": "npz", "inputs": inputs, "scale": self.scale}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The preprocessing from the result of `as_json`. Raises DataError for any other values."""
        stored = StoredValues(values)
        inputs = stored.groups("inputs")
        shapes = {one.text("name"): one.shape("shape") for one in inputs}
        integers = tuple(one.text("name") for one in inputs if one.flag("is_integer"))
        return cls(shapes, integers, None if values.get("scale") is None else stored.number("scale"))

    def _transform(self, name: str) -> Transform:
        if name in self.integers:
            return TypeCast(dt.int32)
        return TypeCast(dt.float32) if self.scale is None else Rescale(self.scale, 0.0)

    def _read_file(self, path: Path) -> dict[str, np.ndarray]:
        if path.suffix == ".npy" and len(self.shapes) == 1:
            (name,) = self.shapes
            values = map_array(path)
            arrays = {name: values[np.newaxis] if values.shape == self.shapes[name] else values}
        else:
            container = NpzFile(path)
            if lacking := [name for name in self.shapes if name not in container.names]:
                found = ", ".join(container.names)
                raise DataError("a file lacks an input", file=path, array=lacking[0], found=found)
            arrays = {name: container.read(name) for name in self.shapes}
        require_equal_rows(arrays, path)
        for name, shape in self.shapes.items():
            if arrays[name].shape[1:] != shape:
                found = f"the shape {arrays[name].shape}"
                expected = f"samples of the shape {shape}, as in the training"
                raise DataError("an array has another shape", file=path, array=name, expected=expected, found=found)
            if name in self.integers and arrays[name].dtype.kind == "f":
                rows = {"expected": "integers, as in the training", "found": arrays[name].dtype}
                raise DataError("an array has another element type", file=path, array=name, **rows)
        return arrays


def require_equal_rows(arrays: Mapping[str, np.ndarray], path: Path) -> int:
    """The number of rows of all arrays. Raises DataError unless it is the same, at least 1."""
    counts = {name: len(values) if values.ndim else 0 for name, values in arrays.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        expected = "the same number of rows in all arrays, at least one"
        raise DataError("arrays have different numbers of rows", file=path, expected=expected, found=found)
    return next(iter(counts.values()))


def _require_int32(name: str, values: Source) -> None:
    least, most = value_range(values)
    if least < INT32.min or most > INT32.max:
        rows = {"expected": f"{INT32.min} to {INT32.max}", "found": f"{least} to {most}"}
        raise DataError("integers are outside of 32 bits", array=name, **rows, repair="save other numbers, or floats")

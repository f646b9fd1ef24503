"""Arrays of numpy as a dataset, `dataset=npz`: a `.npz`, or a folder of `.npy` that stay on the disk.

`NpzFile` and `NpyFolder` read the files, `SelectedRows` are those of a split; `npz_arrays` opens the dataset, and
`ArrayPreprocessing` reads new files in the same way.
"""

import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.lib import format as npy_format

from runner import dtype as dt, register
from runner.dataset.column import CACHED_BYTES, Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset, Preprocessing
from runner.dataset.readers.mnist_cifar import missing
from runner.dataset.readers.split import (
    MAX_SEED,
    Fraction,
    Seed,
    Split,
    Task,
    checked_split,
    data_path,
    fraction,
    in_test_split,
    one_way_to_split,
    require_files,
)
from runner.dataset.samples import RowSource, source_type
from runner.dataset.transforms.transform import Transform, TypeCast
from runner.dataset.vision.array_transforms import Rescale
from runner.errors import ConfigError, DataError, RunnerError, known_names
from runner.host import files
from runner.host.json import StoredValues
from runner.host.machine import require_memory
from runner.types import TensorType
from runner.validation.arguments import finite_number, one_of, whole_number
from runner.validation.rules import LARGEST_FLOAT32, Rule

# The files. They are untrusted: nothing is unpickled, and element type, shape and size are checked by the header before
# memory is taken.

MAX_FILE_BYTES = 1 << 42  # memory-mapped files may be larger than the memory
PIECE_BYTES = 1 << 24  # read at a time
MAX_ARRAYS = 1000
MAX_AXES = 8
KINDS = "biuf"
ALLOWED_TYPES = "bool, integers, float16, float32 or float64, in this machine's byte order"
DAMAGED = "save the arrays again with numpy.savez or numpy.save"
DAMAGES = ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, KeyError


class NpyHeader(NamedTuple):
    """What the head of a `.npy` says, and the number of bytes before the values."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


class NpyFolder:
    """The arrays in the `.npy` files of a folder, memory-mapped. Raises DataError without such a folder or files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            found = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(".npy"))
        except OSError:
            found = []
        if not found:
            raise missing(path, "NAME.npy for each array", "set data_dir to the folder of the arrays")
        self.names = tuple(name.removesuffix(".npy") for name in found)

    def read(self, name: str) -> np.ndarray:
        """An array, read-only. Raises DataError for a damaged file or another element type, ConfigError for a name."""
        _require_known(name, self.names, self.path)
        return map_array(self.path / f"{name}.npy")

    def header(self, name: str) -> NpyHeader:
        """The header of an array. Raises as `read`."""
        _require_known(name, self.names, self.path)
        with files.open_regular(self.path / f"{name}.npy", MAX_FILE_BYTES) as file:
            return read_header(file, self.path / f"{name}.npy")


class NpzFile:
    """The arrays in a `.npz`. Raises DataError for a file that is missing or no such file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._archive() as archive:
            members = archive.namelist()
        if not 0 < len(members) <= MAX_ARRAYS or len(set(members)) != len(members):
            raise _damaged(path, f"1 to {MAX_ARRAYS} arrays of different names", f"{len(members)} files")
        self.names = tuple(name.removesuffix(".npy") for name in members)

    def read(self, name: str) -> np.ndarray:
        """An array, in memory. Raises as that of NpyFolder, also ConfigError when there is not enough memory."""
        _require_known(name, self.names, self.path)
        with self._archive() as archive, archive.open(f"{name}.npy") as member:
            header = read_header(member, self.path, name)
            require_memory(header.nbytes, file=self.path, array=name)
            values = np.empty(header.nbytes, np.uint8)
            count = 0
            while part := member.read(PIECE_BYTES):  # reading to the end also checks the checksum
                if count + len(part) > header.nbytes:
                    break
                values[count : count + len(part)] = np.frombuffer(part, np.uint8)
                count += len(part)
            if part or count < header.nbytes:
                found = "more" if part else f"{count}"
                raise _damaged(self.path, f"{header.nbytes} bytes of values", found, name)
        return _shaped(values, header)

    def header(self, name: str) -> NpyHeader:
        """The header of an array. Raises as `read`."""
        _require_known(name, self.names, self.path)
        with self._archive() as archive, archive.open(f"{name}.npy") as member:
            return read_header(member, self.path, name)

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with files.open_regular(self.path, MAX_FILE_BYTES) as file:
            try:
                with zipfile.ZipFile(file) as archive:
                    yield archive
            except RunnerError:
                raise
            except (*DAMAGES, RuntimeError, OSError) as reason:  # RuntimeError: encrypted
                raise _damaged(self.path, "a .npz file", _reason(reason)) from None


Arrays = NpyFolder | NpzFile


def map_array(path: Path) -> np.ndarray:
    """The array of a `.npy` file, memory-mapped and read-only. Raises DataError for a damaged file."""
    with files.open_regular(path, MAX_FILE_BYTES) as file:
        header = read_header(file, path)
        size = os.fstat(file.fileno()).st_size
    if size != header.offset + header.nbytes:
        raise _damaged(path, f"{header.offset + header.nbytes} bytes", f"{size} bytes")
    if header.nbytes == 0:
        raise _damaged(path, "at least one value", f"the shape {header.shape}")
    order: Literal["F", "C"] = "F" if header.is_fortran else "C"
    with files.storage_errors("cannot map a file into memory", path):
        return np.asarray(np.memmap(path, header.dtype, "r", header.offset, header.shape, order))


def read_header(file: IO[bytes], path: Path, name: str | None = None) -> NpyHeader:
    """The header of a `.npy`. Raises DataError for anything else, and for element types that samples cannot have."""
    try:
        version = npy_format.read_magic(file)
        reader = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = reader(file)
    except RunnerError:
        raise
    except Exception as reason:  # a parser of Python's literals has many
        raise _damaged(path, "an array of numpy, version 1 or 2", _reason(reason), name) from None
    if dtype.kind not in KINDS or dtype.itemsize > 8 or not dtype.isnative:
        repair = "convert it with astype and save it again; arrays of objects would have to be unpickled"
        rows = {"array": name, "expected": ALLOWED_TYPES, "found": str(dtype), "repair": repair}
        raise DataError("an array has an element type that samples cannot have", file=path, **rows)
    if len(shape) > MAX_AXES or any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) >= 1 << 48:
        raise _damaged(path, f"at most {MAX_AXES} axes", f"the shape {str(shape)[:100]}", name)
    return NpyHeader(dtype, shape, is_fortran, file.tell())


def _shaped(values: np.ndarray, header: NpyHeader) -> np.ndarray:
    typed = values.view(header.dtype)
    return typed.reshape(header.shape[::-1]).T if header.is_fortran else typed.reshape(header.shape)


def _require_known(name: str, names: tuple[str, ...], path: Path) -> None:
    if name not in names:
        raise ConfigError("no array of this name", array=name, file=path, **known_names(name, names))


def _damaged(path: Path, expected: str, found: str, name: str | None = None) -> DataError:
    rows = {"array": name, "expected": expected, "found": found, "repair": DAMAGED}
    return DataError("a data file is not as expected", file=path, **rows)


def _reason(reason: Exception) -> str:
    text = str(reason).strip().splitlines()
    return text[0][:200] if text else type(reason).__name__


# Some rows of an array that may be larger than the memory (`numpy.memmap`).


class SelectedRows(RowSource):
    """The rows with these numbers, read when they are used."""

    def __init__(self, values: np.ndarray, rows: np.ndarray) -> None:
        super().__init__(TensorType(dt.of(values.dtype), (len(rows), *values.shape[1:])))
        self.values, self.rows = values, rows

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        taken: np.ndarray = self.values.take(self.rows[rows], axis=0)
        return taken

    def contents(self) -> Iterator[bytes]:
        return (piece.tobytes() for piece in pieces(self))


def pieces(values: np.ndarray | RowSource) -> Iterator[np.ndarray]:
    """All rows in order, in pieces of about PIECE_BYTES."""
    step = max(1, PIECE_BYTES * len(values) // max(1, values.nbytes))
    for start in range(0, len(values), step):
        if isinstance(values, RowSource):
            yield values.take(np.arange(start, min(start + step, len(values))))
        else:
            yield values[start : start + step]


def value_range(values: np.ndarray | RowSource) -> tuple[int, int]:
    """The least and the greatest of integers."""
    ranges = [(int(piece.min()), int(piece.max())) for piece in pieces(values)]
    return min(least for least, _ in ranges), max(most for _, most in ranges)


# The inputs of a network from arrays of numpy, and from new files with such arrays.

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


# The dataset.

MAX_CLASSES = 1_000_000


@register.dataset("npz")
def npz_arrays(
    split: Split,
    *,
    data_file: Path | None = None,
    test_file: Path | None = None,
    data_dir: Path | None = None,
    inputs: tuple[str, ...] = ("x",),
    target: str = "y",
    task: Task = "auto",
    test_fraction: Fraction = None,
    seed: Seed = 0,
    scale: Annotated[float | None, Rule(low=-LARGEST_FLOAT32, high=LARGEST_FLOAT32)] = None,
) -> Dataset:
    """Arrays of numpy: a column for each of `inputs`, then `target`; row k of all of them is sample k.

    Floats become Float32, integers Int32. Without `test_file`, `test_fraction` or folders train and test, the arrays
    are NAME_train and NAME_test. Raises ConfigError for arguments and names, DataError for files.

    Args:
        data_file: a .npz file
        test_file: a .npz file with the test split
        data_dir: folder of NAME.npy, which are memory-mapped, or with such folders train and test
        inputs: names of the arrays that are the network's inputs
        target: name of the array that is the target
        task: classification or regression; auto: integers are classes, floats a regression
        test_fraction: part of the rows, of each class, that is the test split
        seed: of the test split
        scale: factor of all inputs, which become Float32; 0.00392156862745098 for bytes of images
    """
    names, factor = _names(inputs, target), None if scale is None else finite_number("scale", scale)
    training, testing = _parts(data_file, test_file, data_dir, names, test_fraction)
    own = training if checked_split(split) == "train" else testing
    labels = training.read(target)
    has_classes = _has_classes(labels, task, training, target)
    num_classes = _num_classes(labels, training, target) if has_classes else None
    arrays: Mapping[str, Source] = _own_arrays(training, own, names, num_classes)
    if test_fraction is not None:
        arrays = _divided(arrays, labels, has_classes, fraction(test_fraction), seed, split)
    return _dataset(arrays, names, factor, has_classes, num_classes)


def _own_arrays(training: "_Part", own: "_Part", names: tuple[str, ...], classes: int | None) -> dict[str, np.ndarray]:
    """The arrays of a split, which has the same kinds of samples as the training split."""
    for part in (training, own):
        part.require(names)
    arrays = {name: own.read(name) for name in names}
    if own is not training:
        _require_same_samples(training, own, names)
        if classes is not None:
            _require_known_classes(arrays[names[-1]], classes, own, names[-1])
    require_equal_rows(arrays, own.arrays.path)
    return arrays


class _Part(NamedTuple):
    """The arrays of a split: where they are, and what follows their names there."""

    arrays: Arrays
    suffix: str = ""

    def read(self, name: str) -> np.ndarray:
        try:
            values = self.arrays.read(name + self.suffix)
        except ConfigError as error:
            hint = "the arrays are selected by inputs=[...] and target=NAME"
            raise error.add(argument="inputs, target", hint=hint) from None
        if values.ndim == 0 or values.size == 0:
            repair = "the first axis has the samples, at least one"
            raise self.error("an array has no rows", name, found=f"the shape {values.shape}", repair=repair)
        return values

    def require(self, names: Sequence[str]) -> None:
        """Raise ConfigError for a name that no array has, before one is read: an array may take all memory."""
        for name in names:
            if name + self.suffix not in self.arrays.names:
                self.read(name)

    def error(self, what: str, name: str, **rows: object) -> DataError:
        return DataError(what, file=self.arrays.path, array=name + self.suffix, **rows)


def _names(inputs: Sequence[str], target: str) -> tuple[str, ...]:
    names = (*([inputs] if isinstance(inputs, str) else inputs), target)
    if len(names) < 2 or len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
        rows = {"argument": "inputs", "value": ", ".join(map(str, names)), "allowed": "different names of arrays"}
        raise ConfigError("inputs and target have to be different arrays, at least one of them an input", **rows)
    return names


def _parts(
    data_file: Path | None,
    test_file: Path | None,
    data_dir: Path | None,
    names: tuple[str, ...],
    test_fraction: float | None,
) -> tuple[_Part, _Part]:
    """The training and the test split; the same one when `test_fraction` divides the rows."""
    if (data_file is None) == (data_dir is None):
        given = f"data_file={data_file}, data_dir={data_dir}"
        raise ConfigError("one of data_file and data_dir is needed", argument="data_file", value=given)
    if data_dir is not None and test_file is not None:
        repair = "put the arrays into the folders train and test of data_dir"
        raise ConfigError("test_file belongs to data_file", argument="test_file", value=test_file, repair=repair)
    whole, parts = _opened(data_file, test_file, data_dir)
    if not parts and whole is not None and all(f"{name}_train" in whole.names for name in names):
        parts = (_Part(whole, "_train"), _Part(whole, "_test"))
    fixed = "give a file or folder without a test split"
    one_way_to_split(bool(parts), test_fraction, "set test_file, or name the arrays NAME_train and NAME_test", fixed)
    if parts:
        return parts
    assert whole is not None
    return _Part(whole), _Part(whole)


def _opened(
    data_file: Path | None, test_file: Path | None, data_dir: Path | None
) -> tuple[Arrays | None, tuple[_Part, _Part] | None]:
    """All arrays, and the two splits where files or folders divide them."""
    if data_dir is None:
        arrays = NpzFile(data_path("data_file", data_file, "a .npz file"))
        if test_file is None:
            return arrays, None
        return None, (_Part(arrays), _Part(NpzFile(data_path("test_file", test_file, "a .npz file"))))
    folder = data_path("data_dir", data_dir, "a folder")
    if (folder / "train").is_dir():
        return None, (_Part(NpyFolder(folder / "train")), _Part(NpyFolder(folder / "test")))
    return NpyFolder(folder), None


def _has_classes(labels: np.ndarray, task: str, part: _Part, name: str) -> bool:
    one_of({}, get_args(Task), task=task)
    is_float = labels.dtype.kind == "f"
    if task == "classification" and is_float:
        repair = "save class numbers as integers, from 0 on, or set task=regression"
        raise part.error("the target of a classification has no class numbers", name, found=labels.dtype, repair=repair)
    return task != "regression" and not is_float


def _num_classes(labels: np.ndarray, part: _Part, name: str) -> int:
    least, most = value_range(labels)
    if least < 0 or most >= MAX_CLASSES:
        expected, repair = f"0 to {MAX_CLASSES - 1}", "number the classes from 0, or set task=regression"
        raise part.error("not class numbers", name, expected=expected, found=f"{least} to {most}", repair=repair)
    return most + 1


def _require_same_samples(training: _Part, own: _Part, names: tuple[str, ...]) -> None:
    for name in names:
        expected, found = (part.arrays.header(name + part.suffix) for part in (training, own))
        if expected.shape[1:] != found.shape[1:]:
            rows = {"expected": f"samples of the shape {expected.shape[1:]}", "found": f"{found.shape[1:]}"}
            raise own.error("the splits have samples of different shapes", name, **rows)
        if (expected.dtype.kind == "f") != (found.dtype.kind == "f"):
            rows = {"expected": f"as {expected.dtype} in the training split", "found": str(found.dtype)}
            raise own.error("the splits have different element types", name, **rows)


def _require_known_classes(labels: np.ndarray, num_classes: int, part: _Part, name: str) -> None:
    least, most = value_range(labels)
    if least < 0 or most >= num_classes:
        expected = f"integers from 0 to {num_classes - 1}, as in the training split"
        repair = "correct the numbers, or add samples of the class to the training split"
        raise part.error(
            "the test split has other classes", name, expected=expected, found=f"{least} to {most}", repair=repair
        )


def _divided(
    arrays: Mapping[str, Source], labels: np.ndarray, has_classes: bool, part: float, seed: int, split: str
) -> dict[str, Source]:
    groups = labels if has_classes and labels.ndim == 1 else np.zeros(len(labels), np.int32)
    is_test = in_test_split(groups, part, whole_number("seed", seed, 0, MAX_SEED))
    if not is_test.any():
        raise DataError("there are too few samples for a test split", found=len(groups), repair="add samples")
    rows = np.flatnonzero(is_test == (split == "test"))
    return {name: _selected(values, rows) for name, values in arrays.items() if isinstance(values, np.ndarray)}


def _selected(values: np.ndarray, rows: np.ndarray) -> Source:
    """Some rows: in memory, or for a larger part of a mapped file, read when they are used."""
    selected = SelectedRows(values, rows)
    return selected if selected.nbytes > CACHED_BYTES and values.ndim > 1 else values[rows]


def _dataset(
    arrays: Mapping[str, Source], names: tuple[str, ...], factor: float | None, has_classes: bool, classes: int | None
) -> Dataset:
    *inputs, target = names
    shapes = {name: source_type(arrays[name]).shape[1:] for name in inputs}
    integers = tuple(name for name in inputs if source_type(arrays[name]).dtype.numpy.kind != "f" and factor is None)
    preprocessing = ArrayPreprocessing(shapes, integers, factor)
    data = preprocessing.dataset(
        {name: arrays[name] for name in inputs}, Column(target, _target(arrays[target], has_classes))
    )
    data.num_classes = classes
    return data.map(TypeCast(dt.int32 if has_classes else dt.float32), target)


def _target(values: Source, has_classes: bool) -> Source:
    """The target; that of a regression has at least one axis, as the output of a network has."""
    is_number = isinstance(values, np.ndarray) and values.ndim == 1 and not has_classes
    return values.reshape(-1, 1) if isinstance(values, np.ndarray) and is_number else values

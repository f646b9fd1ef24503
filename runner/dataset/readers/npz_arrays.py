"""Arrays of numpy as a dataset: a `.npz`, or a folder of `.npy` that stay on the disk."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import numpy as np

from runner import dtype as dt, register
from runner.dataset.column import CACHED_BYTES, Column
from runner.dataset.pipeline import Dataset
from runner.dataset.readers.arguments import (
    MAX_SEED,
    Fraction,
    Seed,
    Split,
    Task,
    checked_split,
    data_path,
    fraction,
    one_way_to_split,
)
from runner.dataset.readers.array_preprocessing import ArrayPreprocessing, Source, require_equal_rows
from runner.dataset.readers.npy_content import Arrays, NpyFolder, NpzFile
from runner.dataset.readers.rows import in_test_split
from runner.dataset.readers.selected_rows import SelectedRows, value_range
from runner.dataset.row_source import source_type
from runner.dataset.transforms.c_transforms.labels import TypeCast
from runner.errors import ConfigError, DataError
from runner.validation.arguments import finite_number, one_of, whole_number
from runner.validation.rules import LARGEST_FLOAT32, Rule

__all__ = ["npz_arrays"]

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

"""The public dataset classes. Each reads its data in the constructor, so that damaged data is reported before training.

All take `num_samples` (only the first rows of the data), `shuffle` (True: a full shuffle in every epoch, before
sharding; None or False: the order of the data, where MindSpore shuffles for None) or a `sampler` that determines
rows and order (`runner/dataset/samplers.py`), `num_shards` with `shard_id` (rows `shard_id::num_shards` of that order)
and `num_parallel_workers` (1 to 64 threads that prefetch batches; a single one is used only for large batches, and
results never depend on them). Source: `mindspore.dataset` r1.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.column import Column, labels_column, listed_column
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.readers import digits, mnist_cifar
from runner.dataset.readers.digits import make_images
from runner.dataset.readers.mnist_cifar import missing
from runner.dataset.samplers import RowSelection
from runner.dataset.samples import TEXT, as_value, target_type
from runner.errors import ConfigError
from runner.host.machine import require_memory
from runner.types import TensorType
from runner.validation.arguments import as_list, flag, one_of, whole_number

USAGES = ("train", "test", "all")
Folder = str | PathLike[str]
Pair = tuple[np.ndarray, np.ndarray]  # images and labels


class MnistDataset(Dataset):
    """MNIST: columns `image` uint8 [28, 28, 1] and `label`, uint32 for scripts and int32 for networks.

    Reads `train-*` and `t10k-*` in IDX format, plain or `.gz`, from the folder or its `train` and `test` folders.
    `usage` is "train", "test" or "all"; None is all existing splits. A warning names a file of the
    published shape that has another sha256: other data (Fashion-MNIST), or a damaged copy; not with `verify=False`.
    Raises DataError when a file is missing, or is no file of this format.
    """

    def __init__(
        self,
        dataset_dir: Folder,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
        *,
        verify: bool = True,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        folder = _folder(dataset_dir)
        flag({}, verify=verify)
        present = [split for split in mnist_cifar.PREFIXES if mnist_cifar.has_part_of(folder, split)]
        if usage is None and not present:
            raise missing(
                folder,
                "MNIST's train-* and t10k-* files, in the folder or in its train/ and test/",
                mnist_cifar.MISSING,
            )
        splits = _splits(usage, present)
        data = _concatenate([mnist_cifar.read_split(folder, split, verify) for split in splits], folder)
        super().__init__(*selection.apply(_labelled(data, selection)))


class Cifar10Dataset(Dataset):
    """CIFAR-10: columns `image` uint8 [32, 32, 3] (red, green, blue) and `label`, of types as for MNIST.

    Reads `data_batch_{1..5}.bin` (those that exist) and `test_batch.bin`, plain or `.gz`. `usage` as for MNIST.
    Raises DataError when a file is missing or damaged.
    """

    def __init__(
        self,
        dataset_dir: Folder,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        folder = _folder(dataset_dir)
        present = [split for split in mnist_cifar.FILES if mnist_cifar.cifar_split_files(folder, split)]
        if usage is None and not present:
            raise missing(folder, "CIFAR-10's data_batch_*.bin and test_batch.bin", mnist_cifar.CIFAR_MISSING)
        data = _concatenate([mnist_cifar.read_cifar_split(folder, split) for split in _splits(usage, present)], folder)
        super().__init__(*selection.apply(_labelled(data, selection)))


class DigitsDataset(Dataset):
    """Handwritten digits, distributed with runner: columns `image` uint8 [8, 8, 1] (0..255) and `label` int32.

    1,437 rows for "train" and 360 for "test", by a fixed split; None and "all" are all 1,797.

    >>> DigitsDataset("test").get_dataset_size()
    360
    """

    def __init__(
        self,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        chosen = "all" if usage is None else usage
        one_of({}, USAGES, usage=chosen)
        images, labels = digits.read_digits()
        rows = np.arange(len(labels)) if chosen == "all" else digits.split_rows(chosen)
        super().__init__(*selection.apply({"image": images[rows], "label": labels[rows]}))


class SyntheticDataset(Dataset):
    """Random images of learnable classes: columns `image` uint8 [H, W, C] and `label` int32.

    They depend on `seed`, not on the run's seed; "train" and "test" have the same classes.

    >>> SyntheticDataset(num_samples=4, image_shape=(8, 8, 1)).get_col_names()
    ['image', 'label']
    """

    def __init__(
        self,
        num_samples: int = 1024,
        image_shape: Sequence[int] = (28, 28, 1),
        num_classes: int = 10,
        usage: str = "train",
        seed: int = 1,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id)
        one_of({}, USAGES[:2], usage=usage)
        sides = tuple(whole_number("image_shape", side, 1) for side in as_list(image_shape))
        if len(sides) != 3:
            raise ConfigError("not the shape of an image", argument="image_shape", value=sides, allowed="(H, W, C)")
        count, classes = whole_number("num_samples", num_samples, 1), whole_number("num_classes", num_classes, 1)
        shape = sides[0], sides[1], sides[2]
        images, labels = make_images(count, shape, classes, whole_number("seed", seed, 0), usage)
        super().__init__(*selection.apply({"image": images, "label": labels}))


def _folder(dataset_dir: Folder) -> Path:
    if not isinstance(dataset_dir, str | PathLike) or not str(dataset_dir):
        raise ConfigError("not a folder", argument="dataset_dir", value=repr(dataset_dir), allowed="a path")
    return Path(dataset_dir).expanduser()


def _splits(usage: str | None, present: list[str]) -> list[str]:
    if usage is None:
        return present
    one_of({}, USAGES, usage=usage)
    return ["train", "test"] if usage == "all" else [usage]


def _concatenate(parts: list[Pair], folder: Path) -> dict[str, np.ndarray]:
    shapes = {images.shape[1:] for images, _ in parts}
    if len(shapes) != 1:
        raise ConfigError("the splits have images of different sizes", folder=folder, found=shapes, allowed="one usage")
    images, labels = (part[0] if len(parts) == 1 else np.concatenate(part) for part in zip(*parts, strict=True))
    return {"image": images, "label": labels}


def _labelled(data: Mapping[str, np.ndarray], selection: RowSelection) -> dict[str, np.ndarray | Column]:
    return {**data, "label": labels_column("label", data["label"][: selection.num_samples])}


# Datasets of a script's own values: arrays, samples of Python code, and samples to fill up shards.

Values = np.ndarray | list[np.ndarray]  # samples of one shape [N, ...], or of several


class NumpySlicesDataset(Dataset):
    """Rows of arrays in memory: one array or list (`column_0`), a tuple of them (`column_0`, ...) or a dict by name.

    Networks get Float64 arrays as Float32 and Int64 arrays as Int32; iterators return the values in their own types.
    Other arrays are not copied. Raises ConfigError for arrays of
    different lengths, for numbers that do not fit, and for text and objects, with the name of the column.

    >>> NumpySlicesDataset({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}).batch(2).column_types()
    [TensorType(dtype=Float32, shape=(2, 2)), TensorType(dtype=Int32, shape=(2,))]
    """

    def __init__(
        self,
        data: object,
        column_names: str | Sequence[str] | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        arrays = _named_arrays(data, column_names)
        lengths = {name: len(values) if values.ndim else 0 for name, values in arrays.items()}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise ConfigError(
                "columns must have the same number of rows, at least one", argument="data", value=f"rows: {lengths}"
            )
        super().__init__(*selection.apply(arrays))


class GeneratorDataset(Dataset):
    """Samples of Python code: tuples with a value for each of `column_names`, or the values of the only column.

    `source` has `__getitem__` and `__len__`; or it is an iterable of samples, or a function that returns one, such as a
    generator. It is read once, in the constructor, so that every epoch and every resumed run has the same samples, with
    the types of `NumpySlicesDataset`; `num_samples` is the number of samples that are read, also of an iterable without
    end. Samples may differ in shape until they are batched. `column_types` are checked; `python_multiprocessing` has no
    effect. Raises ConfigError, with the number of the sample and its column, for one whose element type or number of
    axes differs from those of the first, and when there is not enough memory for the samples.

    >>> GeneratorDataset(lambda: (([k, k], k) for k in range(6)), ["x", "y"]).column_types()
    [TensorType(dtype=Int32, shape=(2,)), TensorType(dtype=Int32, shape=())]
    """

    def __init__(
        self,
        source: object,
        column_names: str | Sequence[str] | None = None,
        column_types: Sequence[Any] | None = None,
        schema: None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        python_multiprocessing: bool = True,
    ) -> None:
        refuse(schema=schema)
        flag({}, python_multiprocessing=python_multiprocessing)
        if column_names is None:
            raise ConfigError(
                "columns need names", argument="column_names", value=None, allowed="a name for each column"
            )
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        names = [str(name) for name in as_list(column_names)]
        check_names(names, max(1, len(names)))
        values = read_samples(source, names, selection.num_samples)
        if column_types is not None:
            _require_types(values, column_types)
        columns = {name: listed_column(name, own) if isinstance(own, list) else own for name, own in values.items()}
        super().__init__(*selection.apply(columns))


def _require_types(values: Mapping[str, Values], column_types: Sequence[Any]) -> None:
    """Raise ConfigError unless the columns have these element types; None is any."""
    types = [None if kind is None else dt.of(kind) for kind in column_types]
    found = [dt.of(own[0].dtype) for own in values.values()]
    if len(types) != len(found) or any(kind not in (None, own) for kind, own in zip(types, found, strict=True)):
        names = {"found": ", ".join(map(str, found)), "columns": ", ".join(values)}
        repair = "source values of these types, such as np.float32(...)"
        raise ConfigError("samples have other types than column_types", expected=types, **names, repair=repair)


def _named_arrays(data: object, column_names: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    values = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, tuple) else [data]
    named = [str(name) for name in data] if isinstance(data, Mapping) else [f"column_{k}" for k in range(len(values))]
    names = named if column_names is None else [str(name) for name in as_list(column_names)]
    check_names(names, len(values))
    return {name: _as_array(name, value) for name, value in zip(names, values, strict=True)}


def check_names(names: Sequence[str], columns: int) -> None:
    """Raise ConfigError unless there is a different name for each of `columns` columns."""
    if len(names) != columns or len(set(names)) != columns or "" in names:
        rows = {"argument": "column_names", "value": names, "allowed": f"{columns} different names"}
        raise ConfigError("column_names must have one different name per column", **rows)


def _as_array(name: str, value: object) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as reason:
        raise ConfigError("not an array", argument="data", column=name, found=reason) from None


class PaddedDataset(Dataset):
    """Samples that fill up the last shard of another dataset: `real + PaddedDataset([{"image": ..., "label": ...}])`.

    `padded_samples` are dicts of arrays with the same columns. Raises ConfigError for anything else.
    """

    def __init__(self, padded_samples: Sequence[Mapping[str, Any]]) -> None:
        if not isinstance(padded_samples, list | tuple) or not padded_samples:
            allowed = "a list of dicts of arrays"
            raise ConfigError("not samples", argument="padded_samples", value=padded_samples, allowed=allowed)
        names = list(padded_samples[0])
        if any(list(sample) != names for sample in padded_samples):
            raise ConfigError("samples with different columns", argument="padded_samples", columns=", ".join(names))
        selection = RowSelection(None, None, None, None, None)
        columns = {name: listed_column(name, [np.asarray(one[name]) for one in padded_samples]) for name in names}
        super().__init__(*selection.apply(columns))


# The samples of `GeneratorDataset`, read once into an array for each column.

FIRST_BYTES = 1 << 20  # of an array for samples whose number is not known; it grows by a quarter
SOURCES = "an object with __getitem__ and __len__, an iterable, or a function that returns an iterable"


def read_samples(source: object, names: Sequence[str], most: int | None) -> dict[str, Values]:
    """The columns of at most `most` samples, in their own types. Raises ConfigError as `GeneratorDataset`."""
    samples, count = _samples(source)
    capacity = count if count is None or most is None else min(count, most)
    buffers: list[_Buffer | _Texts] = []
    for number, sample in enumerate(islice(samples, most)):
        values = _values(sample, names, number)
        buffers = buffers or [_buffer(name, value, capacity) for name, value in zip(names, values, strict=True)]
        for buffer, value in zip(buffers, values, strict=True):
            buffer.add(value)
    if not buffers:
        raise ConfigError("a source without samples", argument="source", value=repr(source))
    return {buffer.name: buffer.filled() for buffer in buffers}


class _Buffer:
    """The values of one column. The first one determines element type and number of axes."""

    def __init__(self, name: str, first: object, capacity: int | None) -> None:
        self.name, self.count = name, 0
        array = _array(name, 0, first)
        self.type = TensorType(dt.of(target_type(name, array)), array.shape)
        self.dtype = array.dtype.newbyteorder("=")
        self.bytes = array.size * self.dtype.itemsize
        capacity = max(1, FIRST_BYTES // max(1, self.bytes)) if capacity is None else capacity
        self._require(capacity)
        self.rows = np.empty((capacity, *array.shape), self.dtype)
        self.different: list[np.ndarray] | None = None  # all values, once one has another shape

    def add(self, value: object) -> None:
        """Add the value of the next sample."""
        array = _array(self.name, self.count, value)
        found = TensorType(dt.of(target_type(self.name, array)), array.shape)
        if found.dtype != self.type.dtype or len(found.shape) != len(self.type.shape):
            rows = {"column": self.name, "sample": self.count, "found": found, "first_sample": self.type}
            repair = "samples of one shape and type: crop, pad or convert them"
            raise ConfigError("the samples of a column differ in shape or element type", **rows, repair=repair)
        if self.different is None and found.shape != self.type.shape:
            self.different = [row.copy() for row in self.rows[: self.count]]
        if self.different is not None:
            self.different.append(array.astype(self.dtype))
        else:
            self._add_row(array)
        self.count += 1

    def _add_row(self, array: np.ndarray) -> None:
        if self.count == len(self.rows):
            self._require(more := self.count // 4 + 1)
            self.rows.resize((self.count + more, *self.type.shape), refcheck=False)  # in place: not a second copy
        self.rows[self.count] = array

    def filled(self) -> Values:
        """The values so far."""
        if self.different is not None:
            return self.different
        self.rows.resize((self.count, *self.type.shape), refcheck=False)
        return self.rows

    def _require(self, rows: int) -> None:
        repair = "num_samples, or arrays in files that are mapped into memory: NumpySlicesDataset"
        require_memory(rows * self.bytes, column=self.name, sample=self.count, value=self.type, repair=repair)


class _Texts:
    """The texts of one column, of any lengths."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._texts: list[np.ndarray] = []

    def add(self, value: object) -> None:
        """Add the value of the next sample. Raises ConfigError for a number."""
        text = _array(self.name, len(self._texts), value)
        if text.dtype.kind not in TEXT:
            rows = {"column": self.name, "sample": len(self._texts), "found": text.dtype, "first_sample": "text"}
            raise ConfigError("the samples of a column differ in shape or element type", **rows)
        self._texts.append(text)

    def filled(self) -> Values:
        """The texts so far."""
        return self._texts


def _buffer(name: str, first: object, capacity: int | None) -> "_Buffer | _Texts":
    is_text = _array(name, 0, first).dtype.kind in TEXT
    return _Texts(name) if is_text else _Buffer(name, first, capacity)


def _array(column: str, sample: int, value: object) -> np.ndarray:
    try:
        return as_value(value)
    except ValueError as reason:
        rows = {"column": column, "sample": sample, "found": reason}
        raise ConfigError("the value of a sample is not an array", **rows) from None


def _samples(source: object) -> tuple[Iterator[Any], int | None]:
    """The samples one by one, and their number if it is known."""
    is_called = callable(source) and not hasattr(source, "__getitem__")
    given: Any = source() if is_called else source  # type: ignore[operator]
    if not isinstance(given, Mapping | str | bytes):
        if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
            return (given[k] for k in range(len(given))), len(given)
        if isinstance(given, Iterable):
            return iter(given), None
    found = type(given).__name__ + (", returned by the function" if is_called else "")
    repair = "NumpySlicesDataset, which takes a dict of arrays" if isinstance(given, Mapping) else None
    rows = {"argument": "source", "found": found, "allowed": SOURCES, "repair": repair}
    raise ConfigError("not a source of samples", **rows)


def _values(sample: object, names: Sequence[str], number: int) -> list[object]:
    """The values of a sample, one for each column."""
    values = list(sample) if isinstance(sample, tuple) else [sample]
    if len(values) != len(names):
        found = f"a tuple of {len(values)}" if isinstance(sample, tuple) else type(sample).__name__
        rows = {"sample": number, "found": found, "allowed": f"a tuple of {len(names)}: {', '.join(names)}"}
        raise ConfigError("a sample needs a value for each column", **rows)
    return values

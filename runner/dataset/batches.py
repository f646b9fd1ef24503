"""A dataset as a run uses it: opened by its registered name, in batches (`open_dataset`), and what networks are built
from (`facts_of`), such as the number of classes.
"""

from typing import Any

import numpy as np

from runner import dtype as dt, register
from runner.dataset import catalog  # noqa: F401  registers the built-in datasets
from runner.dataset.column import Column
from runner.dataset.pipeline import Dataset
from runner.dataset.samplers import RowSelection
from runner.dataset.transforms.transform import OneHot, TypeCast
from runner.errors import ConfigError
from runner.register import Key
from runner.validation.arguments import flag
from runner.validation.rules import Invalid, validate


def open_dataset(
    name: str = "digits",
    train: bool = True,
    *,
    batch_size: int = 32,
    drop_remainder: bool = True,
    shuffle: bool = True,
    buffer_size: int = 10000,
    num_parallel_workers: int = 1,
    one_hot: int | None = None,
    num_shards: int | None = None,
    shard_id: int | None = None,
    **keys: Any,
) -> Dataset:
    """The batches of the training or test split of a registered dataset; `keys` are its own.

    Only training data is shuffled. With `one_hot`, the number of classes, the target is one-hot, Float32
    [batch, one_hot]. `num_shards` and `shard_id` select a part of the rows. Raises ConfigError for invalid arguments,
    DataError for missing or damaged files.
    """
    entry = register.dataset.of(name)
    values = {key: _valued(key, own, keys.pop(key, own.default)) for key, own in entry.keys.items()}
    if keys:
        raise ConfigError("unknown argument", argument=next(iter(keys)), allowed=", ".join(entry.keys))
    flag({}, shuffle=shuffle)
    selection = RowSelection(None, num_parallel_workers, None, num_shards, shard_id)
    data = entry.call(values, {"split": "train" if train else "test"}).with_order(selection.shard)
    return in_batches(
        data,
        batch_size,
        drop_remainder=drop_remainder,
        buffer_size=buffer_size if shuffle and train else None,
        num_parallel_workers=num_parallel_workers,
        one_hot=one_hot,
    )


def _valued(name: str, key: Key, value: object) -> Any:
    try:
        return validate(key.kind, key.rule, value)
    except Invalid as invalid:
        about = {"allowed": invalid.allowed, "nearest": invalid.nearest, "hint": invalid.hint}
        raise ConfigError(invalid.what, argument=name, value=repr(value), **about) from None


def in_batches(
    data: Dataset,
    batch_size: int,
    *,
    drop_remainder: bool,
    buffer_size: int | None,
    num_parallel_workers: int,
    one_hot: int | None = None,
) -> Dataset:
    """Samples in batches, shuffled with a buffer unless `buffer_size` is None; `one_hot` is a number of classes.

    A target of floats has the numbers of all classes already.
    """
    if one_hot is not None:
        is_encoded = data._columns[-1].sample.dtype.numpy.kind == "f"
        steps = [TypeCast(dt.float32)] if is_encoded else [OneHot(one_hot), TypeCast(dt.float32)]
        data = data.map(steps, data.get_col_names()[-1])
    if buffer_size is not None:
        data = data.shuffle(buffer_size)
    return data.batch(batch_size, drop_remainder, num_parallel_workers)


def is_batched(dataset: Dataset) -> bool:
    """Whether the rows of a dataset are grouped into batches."""
    return dataset._order.batch_size is not None or dataset.has_whole_batches


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """The facts that exist of a dataset, whose last column is the target, by the names of constructor parameters.

    `class_names`, if the dataset has some. `num_classes`: the attribute of this name, or the number of `class_names`,
    or one more than the largest number in a target of class numbers, or the length of the rows of a target that are
    one-hot or soft labels. Of a sample of the first input: `input_shape`, a tuple; `num_features`, the length of its
    only axis; `num_channels` and `image_size`, the first and the last of its three axes (C, H, W), the latter if H is
    W. The same before and after `batch`. Reads the numbers of the target, and transforms nothing. Raises ConfigError
    for a target with more classes than the dataset states.

    >>> from runner.dataset import NumpySlicesDataset
    >>> facts_of(NumpySlicesDataset({"x": [[1.5, 2.5], [3.5, 4.5]], "y": [0, 2]}))
    {'num_classes': 3, 'input_shape': (2,), 'num_features': 2}
    """
    columns = dataset._columns
    shape = columns[0].sample.shape
    stated, counted = _stated_classes(dataset), _classes_in(columns[-1]) if len(columns) > 1 else None
    if stated is not None and counted is not None and counted > stated:
        rows = {"column": dataset.get_col_names()[-1], "largest": counted - 1, "num_classes": stated}
        raise ConfigError("a target has a class that class_names or num_classes lack", **rows)
    found: dict[str, Any] = {
        "num_classes": counted if stated is None else stated,
        "class_names": getattr(dataset, "class_names", None),
        "num_channels": shape[0] if len(shape) == 3 else None,
        "image_size": shape[2] if len(shape) == 3 and shape[1] == shape[2] else None,
        "input_shape": shape,
        "num_features": shape[0] if len(shape) == 1 else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _stated_classes(dataset: Dataset) -> int | None:
    names, number = (getattr(dataset, name, None) for name in ("class_names", "num_classes"))
    return int(number) if number is not None else None if names is None else len(names)


def _classes_in(target: Column) -> int | None:
    """The number of classes in a target of class numbers from 0, one-hot, or distributions; None for another target."""
    encoded = next((step for step in target.transforms if isinstance(step, OneHot)), None)
    if encoded is not None:
        return encoded.num_classes
    numbers = target.source
    if not isinstance(numbers, np.ndarray) or not all(isinstance(step, TypeCast) for step in target.transforms):
        return None
    if _has_distributions(target):
        return int(numbers.shape[1])
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or target.sample.dtype.numpy.kind not in "iu":
        return None
    return int(numbers.max()) + 1 if numbers.min() >= 0 else None


def _has_distributions(target: Column) -> bool:
    """Whether the stored rows of a target are one-hot or soft labels: several floats from 0 whose sum is 1."""
    rows = target.source
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] < 2 or rows.dtype.kind != "f":
        return False
    return bool(rows.min() >= 0 and np.allclose(rows.sum(1, np.float64), 1, rtol=0, atol=1e-3))

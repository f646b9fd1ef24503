"""The batches of a dataset by its registered name, as a run reads them."""

from typing import Any

from runner import dtype as dt, register
from runner.dataset import catalog  # noqa: F401  registers the built-in datasets
from runner.dataset.pipeline import Dataset
from runner.dataset.selection import RowSelection
from runner.dataset.transforms.c_transforms.labels import OneHot, TypeCast
from runner.errors import ConfigError
from runner.register import Key
from runner.validation.arguments import flag
from runner.validation.rules import Invalid, validate

__all__ = ["open_dataset"]


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
    """Samples in batches, shuffled with a buffer unless `buffer_size` is None; `one_hot` is a number of classes."""
    if one_hot is not None:
        data = data.map([OneHot(one_hot), TypeCast(dt.float32)], data.get_col_names()[-1])
    if buffer_size is not None:
        data = data.shuffle(buffer_size)
    return data.batch(batch_size, drop_remainder, num_parallel_workers)


def is_batched(dataset: Dataset) -> bool:
    """Whether the rows of a dataset are grouped into batches."""
    return dataset._order.batch_size is not None or dataset.has_whole_batches

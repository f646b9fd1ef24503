"""Facts of a dataset that networks are built from, such as the number of classes."""

from typing import Any

import numpy as np

from runner.dataset.column import Column
from runner.dataset.pipeline import Dataset
from runner.dataset.transforms.c_transforms.labels import OneHot, TypeCast
from runner.errors import ConfigError


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """The facts that exist of a dataset, whose last column is the target, by the names of constructor parameters.

    `class_names`, if the dataset has some. `num_classes`: the attribute of this name, or the number of `class_names`,
    or one more than the largest number in a target of class numbers. Of a sample of the first input: `input_shape`, a
    tuple; `num_features`, the length of its only axis; `num_channels` and `image_size`, the first and the last of its
    three axes (C, H, W), the latter if H is W. The same before and after `batch`. Reads the numbers of the target, and
    transforms nothing. Raises ConfigError for a target with more classes than the dataset states.

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
    """The number of classes in a target of class numbers from 0, or one-hot; None for another target."""
    encoded = next((step for step in target.transforms if isinstance(step, OneHot)), None)
    if encoded is not None:
        return encoded.num_classes
    numbers = target.source
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 1 or target.sample.dtype.numpy.kind not in "iu":
        return None
    if numbers.dtype.kind not in "iu" or not all(isinstance(step, TypeCast) for step in target.transforms):
        return None
    return int(numbers.max()) + 1 if numbers.min() >= 0 else None

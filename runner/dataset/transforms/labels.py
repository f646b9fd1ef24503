"""Element types and one-hot encoding, also of whole columns and in operators."""

from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.transforms.transform import Transform
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import whole_number


class TypeCast(Transform):
    """Convert values to another element type: a `runner.dtype`, or anything that names one.

    >>> TypeCast("int32")(np.array([7], np.uint8)).dtype
    dtype('int32')
    """

    def __init__(self, data_type: dt.DType | np.dtype | type | str) -> None:
        self.data_type = dt.of(data_type)

    def __repr__(self) -> str:
        return f"TypeCast({self.data_type})"

    def infer(self, sample: TensorType) -> TensorType:
        return sample.with_dtype(self.data_type)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """The batch itself when it already has the type."""
        return np.asarray(batch).astype(self.data_type.numpy, copy=False)

    def lower(self, batch: Any, ops: Any) -> Any:
        return ops.Cast(self.data_type)(batch)

    def attributes(self) -> dict[str, Any]:
        return {"data_type": self.data_type.numpy.name}


class OneHot(Transform):
    """One-hot encoding of labels; keeps the element type, as the reference does.

    >>> OneHot(3)(np.array([2, 0], np.int32)).tolist()
    [[0, 0, 1], [1, 0, 0]]
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = whole_number("num_classes", num_classes, 1)

    def __repr__(self) -> str:
        return f"OneHot({self.num_classes})"

    def infer(self, sample: TensorType) -> TensorType:
        """[num_classes] for one integer, of shape [] or [1]; [n, num_classes] for [n] integers."""
        if sample.dtype.numpy.kind not in "iu" or sample.ndim > 1 or sample.size == 0:
            raise ConfigError("OneHot takes one integer per sample, or integers of one axis", sample=sample)
        return sample.with_shape(*self._labels(sample.shape), self.num_classes)

    def _labels(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the labels without axes of length 1."""
        return tuple(length for length in shape if length != 1)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """[B, num_classes] or [B, n, num_classes]; [num_classes] for one label.

        Raises ConfigError for one outside 0 to num_classes - 1.
        """
        batch = np.asarray(batch)
        rows = batch.shape[:1] + self._labels(batch.shape[1:])
        labels = batch.reshape(*rows, 1)
        if labels.size and not 0 <= labels.min() <= labels.max() < self.num_classes:
            wrong = labels[(labels < 0) | (labels >= self.num_classes)][0]
            raise ConfigError(
                "a label is out of range", argument="num_classes", value=wrong, allowed=f"0 to {self.num_classes - 1}"
            )
        ones: np.ndarray = labels == np.arange(self.num_classes)
        return ones.astype(batch.dtype)

    def lower(self, batch: Any, ops: Any) -> Any:
        """As `__call__`; a label that is out of range gives zeros."""
        rows = batch.shape[0], *self._labels(batch.shape[1:])
        return ops.OneHot(depth=self.num_classes, dtype=batch.dtype)(ops.Reshape(rows)(batch))

    def attributes(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes}

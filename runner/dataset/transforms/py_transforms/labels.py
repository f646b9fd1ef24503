"""One-hot encoding with label smoothing."""

from typing import Any

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.transforms.sample_transform import SampleTransform
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import finite_number, whole_number

__all__ = ["OneHotOp"]


class OneHotOp(SampleTransform):
    """One-hot encoding of labels in Float64: `1 - smoothing_rate` for the class, plus `smoothing_rate / num_classes`.

    >>> OneHotOp(4, smoothing_rate=0.2)(np.array(1)).tolist()
    [[0.05, 0.8500000000000001, 0.05, 0.05]]
    """

    def __init__(self, num_classes: int, smoothing_rate: float = 0.0) -> None:
        self.num_classes = whole_number("num_classes", num_classes, 1)
        self.smoothing_rate = finite_number("smoothing_rate", smoothing_rate)
        if not 0.0 <= self.smoothing_rate <= 1.0:
            raise ConfigError("not a share", argument="smoothing_rate", value=smoothing_rate, allowed="0 to 1")

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[..., num_classes] for integers [...], [1, num_classes] for one. Raises ConfigError for other labels."""
        labels = np.atleast_1d(value)
        if labels.dtype.kind not in "iu":
            raise ConfigError("OneHotOp takes integers", sample=TensorType.of(labels))
        if labels.size and not 0 <= labels.min() <= labels.max() < self.num_classes:
            wrong = labels[(labels < 0) | (labels >= self.num_classes)][0]
            allowed = f"0 to {self.num_classes - 1}"
            raise ConfigError("a label is out of range", argument="num_classes", value=wrong, allowed=allowed)
        ones: np.ndarray = labels[..., np.newaxis] == np.arange(self.num_classes)
        return (1 - self.smoothing_rate) * ones + self.smoothing_rate / self.num_classes

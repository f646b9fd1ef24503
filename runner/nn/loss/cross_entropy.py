"""Softmax cross-entropy: one of several classes."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import ops
from runner.core.values import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.loss.base import LossBase, constant_weights
from runner.validation.arguments import at_least

__all__ = ["SoftmaxCrossEntropyWithLogits"]


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Softmax cross-entropy of logits (N, C).

    `sparse`: labels are class numbers (N,) as Int32 or Int64, otherwise distributions (N, C). `reduction` over the
    batch: `none` gives (N,), `mean` and `sum` a scalar.

    `label_smoothing` s, from 0 to below 1, gives the share s of each label to all classes in equal parts.
    `class_weights`, C numbers of at least 0, multiply the loss of a sample by the weight of its class, for a
    distribution by the mean weight under it. A `mean` is over samples, whatever their weights, so batches and ranks
    of any size agree. Raises ConfigError for other values, ShapeError when there is not one weight per class.
    """

    activation: ClassVar[str] = "softmax"

    def __init__(
        self,
        sparse: bool = False,
        reduction: str | None = "none",
        *,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__(reduction)
        self.sparse = sparse
        self.softmax_cross_entropy = ops.SoftmaxCrossEntropyWithLogits()
        self.sparse_softmax_cross_entropy = ops.SparseSoftmaxCrossEntropyWithLogits()
        self.one_hot, self.gather, self.select = ops.OneHot(), ops.Gather(), ops.Select()
        self.sum_classes = ops.ReduceSum()
        at_least({"loss": type(self).__name__}, 0, label_smoothing=label_smoothing)
        if label_smoothing >= 1:
            raise ConfigError("label_smoothing must be below 1", given=label_smoothing)
        self.label_smoothing = float(label_smoothing)
        self.class_weights = None if class_weights is None else constant_weights("class_weights", class_weights)

    def construct(self, logits: Value, labels: Value) -> Value:
        plain = not self.label_smoothing and self.class_weights is None
        if plain and self.sparse and self.reduction == "mean":
            loss: Value = self.sparse_softmax_cross_entropy(logits, labels)
            return loss
        weights = None if plain else self._sample_weights(logits, labels)
        if self.sparse:
            labels = self.one_hot(labels, logits.shape[-1])
        if self.label_smoothing:
            labels = labels * (1 - self.label_smoothing) + self.label_smoothing / logits.shape[-1]
        per_sample: Value = self.softmax_cross_entropy(logits, labels)[0]
        if weights is not None:
            per_sample = per_sample * weights
        return self.reduced(per_sample)

    def _sample_weights(self, logits: Value, labels: Value) -> Value | None:
        """The weights (N,) of the samples; None where all are 1."""
        weights = self.class_weights
        if weights is not None and weights.shape != logits.shape[-1:]:
            raise ShapeError("there must be one weight per class", class_weights=weights.shape, logits=logits.shape)
        found: Value
        if self.sparse:
            # Without weights too: Gather refuses numbers above the last class, for OneHot they are rows of zeros.
            ones = Tensor(np.ones(logits.shape[-1:], np.float32))
            above = Tensor(logits.shape[-1], labels.dtype)
            numbers = self.select(labels < 0, above, labels)  # negative ones would count from the last class
            found = self.gather(ones if weights is None else weights, numbers)
            return found
        if weights is None:
            return None
        found = self.sum_classes(labels * weights, -1)
        return found

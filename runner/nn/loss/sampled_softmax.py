"""Softmax cross-entropy over a few classes that are drawn, where there are too many for all of them."""

from collections.abc import Sequence

import numpy as np

from runner import dtype as dt, ops
from runner.core.value import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.loss.base import LossBase, Reduction
from runner.validation.arguments import flag, whole

__all__ = ["SampledSoftmaxLoss"]

SMALLEST = 1e-20  # is added to probabilities before their logarithm, as in the reference


class SampledSoftmaxLoss(LossBase):
    """Cross-entropy of the softmax over the `num_true` true classes of a sample and `num_sampled` others.

    `loss(weights, bias, labels, inputs)` takes the weights (C, D) and bias (C,) of the last layer, Int32 or Int64 class
    numbers (N, num_true), and the operands (N, D) of that layer; without a reduction it returns (N,). The others are
    drawn in every step, the same for the whole batch: different classes, each as likely; with `remove_accidental_hits`
    only classes that are true of no sample, as long as there are any. `sampled_values` fixes them: classes (S,), and
    how often true classes (N, num_true) and these (S,) are expected among them. `seed` is of the numbers drawn.

    Raises ConfigError for arguments out of range, ShapeError for shapes that do not fit.
    """

    def __init__(
        self,
        num_sampled: int,
        num_classes: int,
        num_true: int = 1,
        sampled_values: Sequence[Tensor] | None = None,
        remove_accidental_hits: bool = True,
        seed: int = 0,
        reduction: Reduction = "none",
    ) -> None:
        super().__init__(reduction)
        where = {"loss": type(self).__name__}
        whole(where, 1, num_classes=num_classes)
        whole(where, 1, num_classes, num_sampled=num_sampled, num_true=num_true)
        whole(where, 0, seed=seed)
        flag(where, remove_accidental_hits=remove_accidental_hits)
        if sampled_values is not None and not (isinstance(sampled_values, list | tuple) and len(sampled_values) == 3):
            allowed = "a list of the classes and two expected counts"
            raise ConfigError("sampled_values are three tensors", **where, given=type(sampled_values), allowed=allowed)
        self.num_sampled, self.num_classes, self.num_true = num_sampled, num_classes, num_true
        self.sampled_values, self.remove_accidental_hits = sampled_values, remove_accidental_hits
        self.random, self.top, self.gather = ops.UniformReal(seed), ops.TopK(), ops.Gather()
        self.softmax, self.log, self.concat = ops.Softmax(), ops.Log(), ops.Concat(1)
        self.matmul, self.reshape = ops.MatMul(False, True), ops.Reshape()
        self.update = ops.TensorScatterUpdate()

    def construct(self, weights: Value, bias: Value, labels: Value, inputs: Value) -> Value:
        self._check(weights, bias, labels, inputs)
        numbers = self.reshape(self.cast(labels, dt.int32), (-1, self.num_true))
        own = self.reduce_sum(inputs[:, None] * self.gather(weights, numbers, 0), 2) + self.gather(bias, numbers, 0)
        if self.sampled_values is None:  # all classes are as likely, which changes no share
            sampled = self.draw(numbers)
        else:
            sampled, expected_own, expected = self.sampled_values
            own = own - self.log(expected_own)
        others = self.matmul(inputs, self.gather(weights, sampled, 0)) + self.gather(bias, sampled, 0)
        if self.sampled_values is not None:
            others = others - self.log(expected)
        shares = self.softmax(self.concat((own, others)))[:, : self.num_true]
        return self.get_loss(self.reduce_sum(self.log(shares + SMALLEST), 1) * (-1.0 / self.num_true))

    def draw(self, labels: Value) -> Value:
        """Int32 (num_sampled,): different classes, the true ones (N, num_true) last."""
        order = self.random((self.num_classes,))
        if self.remove_accidental_hits:
            count = int(np.prod(labels.shape))
            behind = Tensor(np.full(count, -1, np.float32))
            order = self.update(order, self.reshape(labels, (count, 1)), behind)
        sampled: Value = self.top(order, self.num_sampled)[1]
        return sampled

    def _check(self, weights: Value, bias: Value, labels: Value, inputs: Value) -> None:
        fits = weights.ndim == inputs.ndim == 2 and weights.shape == (self.num_classes, inputs.shape[1])
        fits = fits and bias.shape == (self.num_classes,)
        if not fits or int(np.prod(labels.shape)) != inputs.shape[0] * self.num_true:
            shapes = {"weights": weights.shape, "bias": bias.shape, "labels": labels.shape, "inputs": inputs.shape}
            allowed = f"({self.num_classes}, D), ({self.num_classes},), (N, {self.num_true}), (N, D)"
            raise ShapeError("operands of a sampled softmax", **shapes, allowed=allowed)
        if labels.dtype not in (dt.int32, dt.int64):
            raise ShapeError("class numbers are Int32 or Int64", labels=labels.dtype)

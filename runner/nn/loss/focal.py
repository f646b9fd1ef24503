"""Focal loss: cross-entropy in which samples with a certain right answer count little (Lin et al., 2017)."""

from collections.abc import Sequence

from runner import dtype as dt, ops
from runner.core.value import Tensor, Value
from runner.errors import ShapeError
from runner.nn.loss.base import LossBase, Reduction, constant_weights
from runner.validation.arguments import at_least

__all__ = ["FocalLoss"]


class FocalLoss(LossBase):
    """-(1 - p)^`gamma` log(p), with p the softmax over axis 1 of logits (N, C), (N, C, L) or (N, C, H, W).

    Labels are class numbers with 1 in place of C, or distributions of the shape of the logits. `weight` has one number
    per class, at least 0. As in the reference, what is reduced is a mean: over the positions of a sample, (N,), for
    class numbers, and over those of a class, (N, C), for distributions. Raises ConfigError and ShapeError for others.
    """

    def __init__(
        self,
        weight: Tensor | Sequence[float] | None = None,
        gamma: float = 2.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        at_least({"loss": type(self).__name__}, 0, gamma=gamma)
        self.gamma, self.weight = float(gamma), None if weight is None else constant_weights("weight", weight)
        self.logsoftmax, self.exp, self.pow = ops.LogSoftmax(1), ops.Exp(), ops.Pow()
        self.one_hot, self.transpose, self.reshape = ops.OneHot(), ops.Transpose(), ops.Reshape()

    def construct(self, logits: Value, labels: Value) -> Value:
        self._check(logits, labels)
        samples, classes = logits.shape[:2]
        flat = self.reshape(logits, (samples, classes, -1))
        logarithms = self.logsoftmax(flat)
        if labels.shape[1] == 1:
            hot = self.one_hot(self.reshape(labels, (samples, -1)).astype(dt.int32), classes)
            chosen = self.transpose(hot, (0, 2, 1)).astype(logits.dtype)
        else:
            chosen = self.reshape(labels, flat.shape).astype(logits.dtype)
        weighted = chosen if self.weight is None else chosen * self.reshape(self.weight, (1, classes, 1))
        by_class = weighted * -logarithms
        if self.gamma:
            by_class = by_class * self.pow(1.0 - self.exp(logarithms), self.gamma)
        if labels.shape[1] == 1:
            return self.get_loss(self.reduce_mean(self.reduce_sum(by_class, 1), 1))
        return self.get_loss(self.reduce_mean(by_class, 2))

    def _check(self, logits: Value, labels: Value) -> None:
        """Raise ShapeError for operands that do not fit."""
        shapes = {"output": logits.shape, "target": labels.shape}
        if not 2 <= logits.ndim <= 4 or labels.ndim != logits.ndim or logits.shape[1] == 1:
            allowed = "both (N, C), (N, C, L) or (N, C, H, W), with more than one class"
            raise ShapeError("output and target of a focal loss", **shapes, allowed=allowed)
        expected = [(logits.shape[0], count, *logits.shape[2:]) for count in (1, logits.shape[1])]
        if labels.shape not in expected:
            raise ShapeError("the target does not fit the output", **shapes, allowed=" or ".join(map(str, expected)))
        if self.weight is not None and self.weight.shape != (logits.shape[1],):
            raise ShapeError("there must be one weight per class", weight=self.weight.shape, output=logits.shape)

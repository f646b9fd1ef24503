"""Losses of the angle between two outputs."""

from runner import ops
from runner.core.value import Value
from runner.errors import ConfigError, ShapeError
from runner.nn.loss.base import LossBase, Reduction
from runner.validation.arguments import finite_number

__all__ = ["CosineEmbeddingLoss"]


class CosineEmbeddingLoss(LossBase):
    """1 - c where the label is 1, max(0, c - `margin`) where it is -1, 0 elsewhere; c is the cosine of the rows.

    Outputs x1 and x2 (N, D), labels (N,) of any type. `margin` is from -1 to 1. `reduction` is over the batch. A row of
    zeros has no angle: its loss is not a number, as in the reference. Raises ConfigError and ShapeError for others.
    """

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = finite_number("margin", margin)
        if not -1.0 <= self.margin <= 1.0:
            raise ConfigError("margin must be from -1 to 1", loss=type(self).__name__, given=margin)
        self.square, self.sqrt = ops.Square(), ops.Sqrt()
        self.maximum, self.select = ops.Maximum(), ops.Select()

    def construct(self, logits_x1: Value, logits_x2: Value, labels: Value) -> Value:
        if logits_x1.shape != logits_x2.shape or logits_x1.ndim < 2:
            rows = {"x1": logits_x1.shape, "x2": logits_x2.shape, "allowed": "both (N, D)"}
            raise ShapeError("outputs of a cosine loss have different shapes", **rows)
        if labels.shape != (*logits_x1.shape[:1], *logits_x1.shape[2:]):
            raise ShapeError("a cosine loss needs a label for each row", x1=logits_x1.shape, label=labels.shape)
        lengths = [self.sqrt(self.reduce_sum(self.square(x), 1)) for x in (logits_x1, logits_x2)]
        cosine = self.reduce_sum(logits_x1 * logits_x2, 1) / (lengths[0] * lengths[1])
        near = self.select(labels == 1, 1.0 - cosine, 0.0)
        far = self.select(labels == -1, self.maximum(cosine - self.margin, 0.0), 0.0)
        return self.get_loss(near + far)

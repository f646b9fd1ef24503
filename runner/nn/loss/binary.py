"""Binary cross-entropy, of logits and of probabilities."""

from collections.abc import Sequence
from typing import ClassVar

from runner import ops
from runner.core.values import Tensor, Value
from runner.nn.loss.base import LossBase, Reduction, constant_weights, fitting, in_shape_of

__all__ = ["BCELoss", "BCEWithLogitsLoss"]

SMALLEST = 1e-12  # added to probabilities, as in the reference: the loss of a wrong certain answer is 27.6


class BCELoss(LossBase):
    """Binary cross-entropy of probabilities x of any shape: -w (y log(x) + (1 - y) log(1 - x)).

    Targets y are 0, 1, or probabilities between them; `weight` w, numbers of at least 0, broadcasts to x. 1e-12 is
    added to the operands of the logarithms. `reduction` is over all elements. Targets as in `MSELoss`. For logits, use
    `BCEWithLogitsLoss`, which is exact. Raises ConfigError for other arguments.
    """

    def __init__(self, weight: float | Sequence[float] | Tensor | None = None, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        self.weight = None if weight is None else constant_weights("weight", weight)
        self.log = ops.Log()

    def construct(self, logits: Value, labels: Value) -> Value:
        labels = in_shape_of(logits, labels)
        loss: Value = self.log(logits + SMALLEST) * -labels - self.log((1.0 - logits) + SMALLEST) * (1.0 - labels)
        if self.weight is not None:
            loss = loss * fitting("weight", self.weight, logits)
        return self.reduced(loss)


class BCEWithLogitsLoss(LossBase):
    """Binary cross-entropy of logits of any shape; targets are 0, 1, or probabilities between them.

    Exact for logits of any size: with x the logit, y the target, p `pos_weight` and w `weight`, an element is
    w (p y log(1 + exp(-x)) + (1 - y) log(1 + exp(x))). `weight` and `pos_weight`, numbers of at least 0, are broadcast
    to the logits: one number, or one for each label. `reduction` is over all elements. Targets as in `MSELoss`.
    Raises ConfigError for other arguments.
    """

    activation: ClassVar[str] = "sigmoid"

    def __init__(
        self,
        reduction: str = "mean",
        weight: float | Sequence[float] | Tensor | None = None,
        pos_weight: float | Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__(reduction)
        self.softplus = ops.Softplus()
        self.weight = None if weight is None else constant_weights("weight", weight)
        self.pos_weight = None if pos_weight is None else constant_weights("pos_weight", pos_weight)

    def construct(self, logits: Value, labels: Value) -> Value:
        labels = in_shape_of(logits, labels)
        # Two terms, neither of which cancels another: max(x, 0) - x y + log(1 + exp(-|x|)) has no gradient at 0.
        positive: Value = self.softplus(-logits) * labels
        if self.pos_weight is not None:
            positive = positive * fitting("pos_weight", self.pos_weight, logits)
        loss: Value = positive + self.softplus(logits) * (1.0 - labels)
        if self.weight is not None:
            loss = loss * fitting("weight", self.weight, logits)
        return self.reduced(loss)

"""Loss cells."""

from typing import ClassVar

from runner import ops
from runner.core.primitive import Primitive
from runner.core.value import Value
from runner.errors import ConfigError
from runner.nn.cell import Cell

__all__ = ["MSELoss", "SoftmaxCrossEntropyWithLogits"]

REDUCTIONS = ("none", "mean", "sum")


class SoftmaxCrossEntropyWithLogits(Cell):
    """Softmax cross-entropy of logits (N, C).

    `sparse`: labels are class numbers (N,) as Int32 or Int64, otherwise distributions (N, C). `reduction` over the
    batch: `none` gives (N,), `mean` and `sum` a scalar. `activation`, here and in a loss of your own, says how outputs
    of the network become probabilities in exported models: `softmax` or `sigmoid`.
    """

    activation: ClassVar[str] = "softmax"

    def __init__(self, sparse: bool = False, reduction: str | None = "none") -> None:
        super().__init__()
        self.sparse, self.reduction = sparse, (reduction or "none").lower()
        self.reduce = _reduce(self.reduction, reduction)
        self.softmax_cross_entropy = ops.SoftmaxCrossEntropyWithLogits()
        self.sparse_softmax_cross_entropy = ops.SparseSoftmaxCrossEntropyWithLogits()
        self.one_hot = ops.OneHot()

    def construct(self, logits: Value, labels: Value) -> Value:
        if self.sparse and self.reduction == "mean":
            loss: Value = self.sparse_softmax_cross_entropy(logits, labels)
            return loss
        if self.sparse:
            labels = self.one_hot(labels, logits.shape[-1])
        per_sample: Value = self.softmax_cross_entropy(logits, labels)[0]
        return per_sample if self.reduce is None else self.reduce(per_sample)


class MSELoss(Cell):
    """Squared difference, reduced by `none`, `mean` (the default) or `sum`."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.square, self.reduce = ops.Square(), _reduce(reduction, reduction)

    def construct(self, logits: Value, labels: Value) -> Value:
        squared: Value = self.square(logits - labels)
        return squared if self.reduce is None else self.reduce(squared)


def _reduce(reduction: str, given: str | None) -> Primitive | None:
    """The operator of a reduction; None for `none`. Raises ConfigError."""
    if reduction not in REDUCTIONS:
        raise ConfigError("unknown reduction", given=given, allowed=", ".join(REDUCTIONS))
    return {"mean": ops.ReduceMean(), "sum": ops.ReduceSum()}.get(reduction)

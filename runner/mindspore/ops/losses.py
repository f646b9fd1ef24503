"""Losses and norms, composed of other operators; formulas of r1.2."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runner.core.operators import ComposedOperator
from runner.core.values import Tensor, Value
from runner.ops.activation import Softplus
from runner.ops.array import ExpandDims, Squeeze, require
from runner.ops.composition import require_floats
from runner.ops.elementwise.arithmetic import Abs, Log, Sqrt, Square
from runner.ops.elementwise.compare import Less, Maximum, Select
from runner.ops.indexing.gather import Gather, GatherD
from runner.ops.reduce import ReduceMean, ReduceSum

REDUCTIONS: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "mean": lambda x: ReduceMean()(x),
    "sum": lambda x: ReduceSum()(x),
}
TINY = 1e-12


@dataclass(frozen=True)
class Reduced(ComposedOperator):
    """Base: the loss of each element, combined by `reduction`: mean, sum or none."""

    reduction: str = "mean"

    def __post_init__(self) -> None:
        allowed = ", ".join(REDUCTIONS)
        require(self.reduction in REDUCTIONS, "unknown reduction", given=self.reduction, allowed=allowed)

    def reduced(self, losses: Value) -> Value:
        """The losses, combined."""
        return REDUCTIONS[self.reduction](losses)


@dataclass(frozen=True)
class L2Loss(ComposedOperator):
    """Half of the sum of the squares, a scalar."""

    def compose(self, input_x: Value) -> Value:
        require_floats(input_x=input_x)
        return ReduceSum()(Square()(input_x)) * 0.5


@dataclass(frozen=True)
class L2Normalize(ComposedOperator):
    """x / sqrt(max(sum of the squares along `axis`, epsilon))."""

    axis: Any = 0
    epsilon: float = 1e-4

    def compose(self, input_x: Value) -> Value:
        require_floats(input_x=input_x)
        total = ReduceSum(True)(Square()(input_x), self.axis)
        return input_x / Sqrt()(Maximum()(total, self.epsilon))


@dataclass(frozen=True)
class SmoothL1Loss(ComposedOperator):
    """Of each element: with d = |prediction - target|, d * d / (2 beta) where d < beta, else d - beta / 2."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        require(self.beta > 0, "beta must be positive", given=self.beta)

    def compose(self, prediction: Value, target: Value) -> Value:
        require(
            prediction.type == target.type, "both must have one type", prediction=prediction.type, target=target.type
        )
        distance = Abs()(prediction - target)
        near = Square()(distance) * (0.5 / self.beta)
        return Select()(Less()(distance, self.beta), near, distance - 0.5 * self.beta)


@dataclass(frozen=True)
class SigmoidCrossEntropyWithLogits(ComposedOperator):
    """Of each element: log(1 + exp(x)) - x * label, the cross-entropy of the probability sigmoid(x)."""

    def compose(self, logits: Value, label: Value) -> Value:
        require(logits.type == label.type, "both must have one type", logits=logits.type, label=label.type)
        return Softplus()(logits) - logits * label


@dataclass(frozen=True)
class BinaryCrossEntropy(Reduced):
    """-(y * log(x + 1e-12) + (1 - y) * log(1 - x + 1e-12)), times the weight, of probabilities x and labels y."""

    def compose(self, logits: Value, labels: Value, weight: Value | None = None) -> Value:
        require_floats(logits=logits, labels=labels)
        chosen = labels * Log()(logits + TINY) + (1.0 - labels) * Log()(1.0 - logits + TINY)
        return self.reduced(-chosen if weight is None else -chosen * weight)


@dataclass(frozen=True)
class BCEWithLogitsLoss(Reduced):
    """The binary cross-entropy of sigmoid(x) and labels, times the weight; positive labels count `pos_weight` times."""

    def compose(self, logits: Value, label: Value, weight: Value, pos_weight: Value) -> Value:
        require_floats(logits=logits, label=label, weight=weight, pos_weight=pos_weight)
        # -log(sigmoid(x)) is softplus(-x), -log(1 - sigmoid(x)) is x + softplus(-x).
        share = 1.0 + (pos_weight - 1.0) * label
        losses = (1.0 - label) * logits + share * Softplus()(-logits)
        return self.reduced(losses * weight)


@dataclass(frozen=True)
class KLDivLoss(Reduced):
    """y * (log(y) - x), 0 where y is not positive, of logarithms of probabilities x and probabilities y."""

    def compose(self, logits: Value, labels: Value) -> Value:
        require_floats(logits=logits, labels=labels)
        positive = labels > 0.0
        safe = Select()(positive, labels, Tensor(1.0, labels.dtype))
        losses = labels * (Log()(safe) - logits)
        return self.reduced(Select()(positive, losses, Tensor(0.0, losses.dtype)))


@dataclass(frozen=True)
class NLLLoss(Reduced):
    """-weight[y] * x[y] of each sample, and the sum of these weights: x (N, C), labels y (N,), weight (C,).

    The mean divides by the sum of the weights.
    """

    def compose(self, logits: Value, labels: Value, weight: Value) -> tuple[Value, Value]:
        require_floats(logits=logits, weight=weight)
        fits = logits.ndim == 2 and labels.shape == logits.shape[:1] and weight.shape == logits.shape[1:]
        rows = {"logits": logits.type, "labels": labels.type, "weight": weight.type}
        require(fits, "needs logits (N, C), labels (N,) and a weight (C,)", **rows)
        weights = Gather()(weight, labels, 0)
        total = ReduceSum()(weights)
        losses = -weights * Squeeze(1)(GatherD(1)(logits, ExpandDims(1)(labels)))
        if self.reduction == "mean":
            return ReduceSum()(losses) / total, total
        return self.reduced(losses), total

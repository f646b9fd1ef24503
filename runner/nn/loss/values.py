"""Losses of values: squared and absolute differences of output and target."""

from runner import ops
from runner.core.values import Value
from runner.nn.loss.base import LossBase, Reduction, in_shape_of
from runner.validation.arguments import above

__all__ = ["L1Loss", "MAELoss", "MSELoss", "RMSELoss", "SmoothL1Loss"]


class MSELoss(LossBase):
    """Squared difference, reduced by `none`, `mean` (the default) or `sum` over all elements.

    Labels have the shape of the logits, up to axes of length 1: (N,) fits (N, 1). ShapeError for another shape, which
    would be broadcast to every pair of elements. Integers count as floats.
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.square = ops.Square()

    def construct(self, logits: Value, labels: Value) -> Value:
        squared: Value = self.square(logits - in_shape_of(logits, labels))
        return self.reduced(squared)


class RMSELoss(LossBase):
    """The square root of the mean of squared differences. Labels as in `MSELoss`.

    The gradient where all are equal is not a number.
    """

    def __init__(self) -> None:
        super().__init__("mean")
        self.square, self.sqrt = ops.Square(), ops.Sqrt()

    def construct(self, logits: Value, label: Value) -> Value:
        root: Value = self.sqrt(self.reduced(self.square(logits - in_shape_of(logits, label))))
        return root


class L1Loss(LossBase):
    """Absolute difference, reduced by `none`, `mean` (the default) or `sum` over all elements. Labels as in `MSELoss`.

    The gradient where both are equal is 0.
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.abs = ops.Abs()

    def construct(self, logits: Value, labels: Value) -> Value:
        difference: Value = self.abs(logits - in_shape_of(logits, labels))
        return self.reduced(difference)


class MAELoss(L1Loss):
    """`L1Loss` under its other name."""


class SmoothL1Loss(LossBase):
    """With d the absolute difference: d² / (2 `beta`) below `beta`, and d - `beta` / 2 from there on.

    `reduction` is `none` (the default, as in the reference), `mean` or `sum` over all elements. Labels as in `MSELoss`.
    Raises ConfigError when `beta` is not above 0.
    """

    def __init__(self, beta: float = 1.0, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        above({"loss": type(self).__name__}, 0, beta=beta)
        self.beta = float(beta)
        self.abs, self.minimum = ops.Abs(), ops.Minimum()

    def construct(self, logits: Value, labels: Value) -> Value:
        difference: Value = self.abs(logits - in_shape_of(logits, labels))
        # Of both parts at once, for m = min(d, beta): m / beta (d - m / 2). Its slope is m / beta on both sides.
        inner: Value = self.minimum(difference, self.beta)
        loss: Value = inner * (1 / self.beta) * (difference - inner * 0.5)
        return self.reduced(loss)

"""`LossBase`: what losses have in common, the reduction and checks of their operands."""

from typing import Any, TypeAlias

import numpy as np

from runner import dtype as dt, ops
from runner.core.source import current_source, user_line
from runner.core.values import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell

__all__ = ["LossBase"]

REDUCTIONS = ("none", "mean", "sum")
Weights: TypeAlias = float | Value
Reduction: TypeAlias = str | None


class LossBase(Cell):
    """Base of losses: `reduction` is `mean`, `sum` or `none`, also None, over all elements; ConfigError for others.

    Subclasses define `construct(logits, labels)`, which ends with `return self.get_loss(x)`. `reduce` is the operator
    of the reduction, or None, and `average` says whether a sum is divided by the number of elements: conditions of
    losses of r1.2 on these two attributes hold.
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction = (reduction or "none").lower() if isinstance(reduction, str | None) else reduction
        if self.reduction not in REDUCTIONS:
            raise ConfigError("unknown reduction", given=reduction, allowed=", ".join(REDUCTIONS))
        self.reduce_mean, self.reduce_sum = ops.ReduceMean(), ops.ReduceSum()
        self.average = self.reduction != "sum"
        self.reduce = {"mean": self.reduce_mean, "sum": self.reduce_sum}.get(self.reduction)
        self.mul, self.cast = ops.Mul(), ops.Cast()

    def get_axis(self, x: Value) -> tuple[int, ...]:
        """All axes of a value."""
        return tuple(range(x.ndim))

    def get_loss(self, x: Value, weights: Weights = 1.0) -> Value:
        """`x` times `weights`, which broadcast to it, reduced in Float32; the result has the element type of `x`."""
        wide: Value = x if x.dtype is dt.float32 else self.cast(x, dt.float32)
        if isinstance(weights, Value) or weights != 1.0:
            wide = self.mul(wide, self.cast(weights, dt.float32) if isinstance(weights, Value) else float(weights))
        loss = self.reduced(wide)
        return loss if loss.dtype is x.dtype else self.cast(loss, x.dtype)

    def reduced(self, x: Value) -> Value:
        """The mean or the sum of all elements, or `x` itself."""
        loss: Value = x if self.reduce is None else self.reduce(x)
        return loss


_Loss = LossBase  # the name of r1.2, which later releases call LossBase


def constant_weights(name: str, given: Any) -> Tensor:
    """Weights as a Float32 constant. Raises ConfigError unless they are finite numbers of at least 0."""
    try:
        values = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        values = np.full(1, np.nan, np.float32)
    if not values.size or not np.isfinite(values).all() or (values < 0).any():
        raise ConfigError(f"{name} must be finite numbers of at least 0", given=repr(given))
    return Tensor(values)


def fitting(name: str, weights: Tensor, logits: Value) -> Tensor:
    """The weights, which must broadcast to the shape of the logits without growing it. Raises ShapeError."""
    try:
        fits = np.broadcast_shapes(weights.shape, logits.shape) == logits.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{name} must be one number, or one per label", **{name: weights.shape}, logits=logits.shape)
    return weights


def in_shape_of(logits: Value, labels: Value) -> Value:
    """The labels as floats in the shape of the logits. Raises ShapeError if more than axes of length 1 differ."""
    if labels.shape != logits.shape:
        shapes = [[length for length in value.shape if length != 1] for value in (logits, labels)]
        if shapes[0] != shapes[1]:
            rows = {"output": logits.shape, "target": labels.shape}
            hint = "as many outputs of the network as the target has columns"
            line = user_line(current_source())
            raise ShapeError("output and target of a loss have different shapes", **rows, hint=hint, line=line)
        labels = ops.Reshape()(labels, logits.shape)
    return labels if labels.dtype.is_float else labels.astype(logits.dtype)

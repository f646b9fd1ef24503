"""Dice losses: how little two sets overlap, for segmentation."""

from runner import ops
from runner.core.value import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.activation import get_activation
from runner.nn.cell import Cell
from runner.nn.loss.base import LossBase
from runner.validation.arguments import above, one_of, whole

__all__ = ["DiceLoss", "MultiClassDiceLoss"]

ACTIVATIONS = ("softmax", "logsoftmax", "relu", "relu6", "tanh", "sigmoid")


class DiceLoss(LossBase):
    """1 - 2 sum(x y) / (sum(x^2) + sum(y^2) + `smooth`), a scalar, for x and y of one shape.

    Raises ConfigError when `smooth` is not above 0, ShapeError for other shapes.
    """

    def __init__(self, smooth: float = 1e-5) -> None:
        super().__init__("mean")
        above({"loss": type(self).__name__}, 0, smooth=smooth)
        self.smooth, self.square = float(smooth), ops.Square()

    def construct(self, logits: Value, label: Value) -> Value:
        same_shape(logits, label)
        both = self.reduce_sum(logits * label)
        loss: Value = 1.0 - both * 2.0 / (
            self.reduce_sum(self.square(logits)) + self.reduce_sum(self.square(label)) + self.smooth
        )
        return loss


class MultiClassDiceLoss(LossBase):
    """The mean over the classes, axis 1 of (N, C, ...), of their `DiceLoss`, after an activation.

    `weights`, of shape (C, K), multiply the loss of each class, so the result has the shape (K,). The class
    `ignore_indiex` (so r1.2 writes it) counts as 0. `activation` is a name, a cell, or None. Raises ConfigError and
    ShapeError for others.
    """

    def __init__(
        self,
        weights: Tensor | None = None,
        ignore_indiex: int | None = None,
        activation: str | Cell | None = "softmax",
    ) -> None:
        super().__init__("mean")
        where = {"loss": type(self).__name__}
        if weights is not None and (not isinstance(weights, Tensor) or weights.ndim != 2):
            raise ConfigError("weights must be a tensor of two axes", **where, given=getattr(weights, "type", weights))
        if ignore_indiex is not None:
            whole(where, 0, ignore_indiex=ignore_indiex)
        if isinstance(activation, str):
            one_of(where, ACTIVATIONS, activation=activation)
        elif activation is not None and not isinstance(activation, Cell):
            raise ConfigError("activation must be a name, a cell or None", **where, given=repr(activation))
        self.weights, self.ignore_indiex = weights, ignore_indiex
        self.activate = get_activation(activation) if isinstance(activation, str) else activation
        self.binarydiceloss = DiceLoss(1e-5)

    def construct(self, logits: Value, label: Value) -> Value:
        same_shape(logits, label)
        if label.ndim < 2:
            raise ShapeError("a dice loss of classes needs an axis of classes", label=label.shape)
        classes = label.shape[1]
        if self.weights is not None and self.weights.shape[0] != classes:
            raise ShapeError("there must be weights of each class", weights=self.weights.shape, label=label.shape)
        if self.activate is not None:
            logits = self.activate(logits)
        total: Value | None = None
        for k in range(classes):
            if k != self.ignore_indiex:
                loss = self.binarydiceloss(logits[:, k], label[:, k])
                loss = loss if self.weights is None else loss * self.weights[k]
                total = loss if total is None else total + loss
        if total is None:
            raise ShapeError("no class is left", ignore_indiex=self.ignore_indiex, label=label.shape)
        return total * (1.0 / classes)


def same_shape(logits: Value, label: Value) -> None:
    """Raise ShapeError for different shapes."""
    if logits.shape != label.shape:
        raise ShapeError("output and target of a loss have different shapes", output=logits.shape, target=label.shape)

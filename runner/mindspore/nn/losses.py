"""Losses of r1.2 that no key names: sampled softmax, Dice and focal loss, and the loss of the angle between outputs."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.basic import get_activation
from runner.nn.cell import Cell
from runner.nn.loss.losses import LossBase, Reduction, constant_weights
from runner.validation.arguments import above, at_least, finite_number, flag, one_of, whole

# Softmax cross-entropy over a few classes that are drawn, where there are too many for all of them.

SMALLEST = 1e-20  # is added to probabilities before their logarithm, as in MindSpore


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
        return self.top(order, self.num_sampled)[1]

    def _check(self, weights: Value, bias: Value, labels: Value, inputs: Value) -> None:
        fits = weights.ndim == inputs.ndim == 2 and weights.shape == (self.num_classes, inputs.shape[1])
        fits = fits and bias.shape == (self.num_classes,)
        if not fits or int(np.prod(labels.shape)) != inputs.shape[0] * self.num_true:
            shapes = {"weights": weights.shape, "bias": bias.shape, "labels": labels.shape, "inputs": inputs.shape}
            allowed = f"({self.num_classes}, D), ({self.num_classes},), (N, {self.num_true}), (N, D)"
            raise ShapeError("operands of a sampled softmax", **shapes, allowed=allowed)
        if labels.dtype not in (dt.int32, dt.int64):
            raise ShapeError("class numbers are Int32 or Int64", labels=labels.dtype)


# Dice losses: how little two sets overlap, for segmentation.

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
        return 1.0 - both * 2.0 / (
            self.reduce_sum(self.square(logits)) + self.reduce_sum(self.square(label)) + self.smooth
        )


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


# Focal loss: cross-entropy in which samples with a certain right answer count little (Lin et al., 2017).


class FocalLoss(LossBase):
    """-(1 - p)^`gamma` log(p), with p the softmax over axis 1 of logits (N, C), (N, C, L) or (N, C, H, W).

    Labels are class numbers with 1 in place of C, or distributions of the shape of the logits. `weight` has one number
    per class, at least 0. As in MindSpore, what is reduced is a mean: over the positions of a sample, (N,), for
    class numbers, and over those of a class, (N, C), for distributions. Raises ConfigError and ShapeError for others.
    """

    activation: ClassVar[str] = "softmax"

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


# Losses of the angle between two outputs.


class CosineEmbeddingLoss(LossBase):
    """1 - c where the label is 1, max(0, c - `margin`) where it is -1, 0 elsewhere; c is the cosine of the rows.

    Outputs x1 and x2 (N, D), labels (N,) of any type. `margin` is from -1 to 1. `reduction` is over the batch. A row of
    zeros has no angle: its loss is not a number, as in MindSpore. Raises ConfigError and ShapeError for others.
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

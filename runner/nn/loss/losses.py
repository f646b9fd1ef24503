"""Losses: `LossBase`, with reduction and checks of operands, and the losses of classes, values and probabilities.

A loss is a cell of (output, target); see the package. `LossInput` is what a loss says about the outputs that it takes.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from runner import dtype as dt, ops
from runner.core.operators import Primitive
from runner.core.source import current_source, user_line
from runner.core.values import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.validation.arguments import above, at_least

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
        return x if self.reduce is None else self.reduce(x)


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


# What a loss takes: a fact of its class, for metrics, predictions, exports, and for the end of imported networks.

LOGITS, PROBABILITIES, LOG_PROBABILITIES, VALUES = "logits", "probabilities", "log_probabilities", "values"
ACTIVATIONS: dict[str, Primitive] = {"softmax": ops.Softmax(), "sigmoid": ops.Sigmoid()}
OF_ACTIVATIONS = (LOGITS, PROBABILITIES, LOG_PROBABILITIES)


class LossInput(NamedTuple):
    """The attributes `activation` and `takes` of a loss; both None for one that takes any numbers.

    `activation` is what makes probabilities of logits. `takes` is what the network returns to the loss: `logits` (the
    default beside an activation, which the loss then applies itself), `probabilities`, `log_probabilities`, or, without
    an activation, `values` on the scale of the targets.
    """

    activation: str | None
    takes: str | None

    @classmethod
    def of(cls, loss_fn: object) -> Self:
        """What a loss declares. Raises ConfigError for other texts."""
        activation = getattr(loss_fn, "activation", None)
        takes = getattr(loss_fn, "takes", None if activation is None else LOGITS)
        loss = {"loss": type(loss_fn).__name__}
        if activation is not None and activation not in ACTIVATIONS:
            rows = {**loss, "value": repr(activation), "allowed": ", ".join(ACTIVATIONS)}
            raise ConfigError("activation of a loss is unknown", **rows)
        allowed = (VALUES, None) if activation is None else OF_ACTIVATIONS
        if takes not in allowed:
            rows = {**loss, "value": repr(takes), "allowed": ", ".join(map(str, allowed))}
            what = "what a loss takes is unknown" if takes not in OF_ACTIVATIONS else "such a loss needs an activation"
            raise ConfigError(what, **rows)
        return cls(activation, takes)

    @property
    def to_probabilities(self) -> Primitive | None:
        """What makes probabilities of the outputs of a network; None if they are, or become none."""
        if self.takes == LOGITS and self.activation is not None:
            return ACTIVATIONS[self.activation]
        return ops.Exp() if self.takes == LOG_PROBABILITIES else None

    def limit(self, threshold: float) -> float:
        """The output of a probability, for single outputs and labels; a loss of any numbers has logits there."""
        if self.takes in (PROBABILITIES, VALUES):
            return threshold
        return math.log(threshold) if self.takes == LOG_PROBABILITIES else math.log(threshold / (1 - threshold))


ANY_NUMBERS = LossInput(None, None)


# Softmax cross-entropy: one of several classes.


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Softmax cross-entropy of logits (N, C).

    `sparse`: labels are class numbers (N,) as Int32 or Int64, otherwise distributions (N, C). `reduction` over the
    batch: `none` gives (N,), `mean` and `sum` a scalar.

    `label_smoothing` s, from 0 to below 1, gives the share s of each label to all classes in equal parts.
    `class_weights`, C numbers of at least 0, multiply the loss of a sample by the weight of its class, for a
    distribution by the mean weight under it. A `mean` is over samples, whatever their weights, so batches and ranks
    of any size agree. Raises ConfigError for other values, ShapeError when there is not one weight per class.
    """

    activation: ClassVar[str] = "softmax"

    def __init__(
        self,
        sparse: bool = False,
        reduction: str | None = "none",
        *,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__(reduction)
        self.sparse = sparse
        self.softmax_cross_entropy = ops.SoftmaxCrossEntropyWithLogits()
        self.sparse_softmax_cross_entropy = ops.SparseSoftmaxCrossEntropyWithLogits()
        self.one_hot, self.gather, self.select = ops.OneHot(), ops.Gather(), ops.Select()
        self.sum_classes = ops.ReduceSum()
        at_least({"loss": type(self).__name__}, 0, label_smoothing=label_smoothing)
        if label_smoothing >= 1:
            raise ConfigError("label_smoothing must be below 1", given=label_smoothing)
        self.label_smoothing = float(label_smoothing)
        self.class_weights = None if class_weights is None else constant_weights("class_weights", class_weights)

    def construct(self, logits: Value, labels: Value) -> Value:
        plain = not self.label_smoothing and self.class_weights is None
        if plain and self.sparse and self.reduction == "mean":
            return self.sparse_softmax_cross_entropy(logits, labels)
        weights = None if plain else self._sample_weights(logits, labels)
        if self.sparse:
            labels = self.one_hot(labels, logits.shape[-1])
        if self.label_smoothing:
            labels = labels * (1 - self.label_smoothing) + self.label_smoothing / logits.shape[-1]
        per_sample: Value = self.softmax_cross_entropy(logits, labels)[0]
        if weights is not None:
            per_sample = per_sample * weights
        return self.reduced(per_sample)

    def _sample_weights(self, logits: Value, labels: Value) -> Value | None:
        """The weights (N,) of the samples; None where all are 1."""
        weights = self.class_weights
        if weights is not None and weights.shape != logits.shape[-1:]:
            raise ShapeError("there must be one weight per class", class_weights=weights.shape, logits=logits.shape)
        found: Value
        if self.sparse:
            # Without weights too: Gather refuses numbers above the last class, for OneHot they are rows of zeros.
            ones = Tensor(np.ones(logits.shape[-1:], np.float32))
            above = Tensor(logits.shape[-1], labels.dtype)
            numbers = self.select(labels < 0, above, labels)  # negative ones would count from the last class
            found = self.gather(ones if weights is None else weights, numbers)
            return found
        if weights is None:
            return None
        found = self.sum_classes(labels * weights, -1)
        return found


# Losses of values: squared and absolute differences of output and target.


class MSELoss(LossBase):
    """Squared difference, reduced by `none`, `mean` (the default) or `sum` over all elements.

    Labels have the shape of the logits, up to axes of length 1: (N,) fits (N, 1). ShapeError for another shape, which
    would be broadcast to every pair of elements. Integers count as floats.
    """

    takes: ClassVar[str] = VALUES

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

    takes: ClassVar[str] = VALUES

    def __init__(self) -> None:
        super().__init__("mean")
        self.square, self.sqrt = ops.Square(), ops.Sqrt()

    def construct(self, logits: Value, label: Value) -> Value:
        return self.sqrt(self.reduced(self.square(logits - in_shape_of(logits, label))))


class L1Loss(LossBase):
    """Absolute difference, reduced by `none`, `mean` (the default) or `sum` over all elements. Labels as in `MSELoss`.

    The gradient where both are equal is 0.
    """

    takes: ClassVar[str] = VALUES

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

    `reduction` is `none` (the default, as in MindSpore), `mean` or `sum` over all elements. Labels as in `MSELoss`.
    Raises ConfigError when `beta` is not above 0.
    """

    takes: ClassVar[str] = VALUES

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


# Binary cross-entropy, of logits and of probabilities.

SMALLEST = 1e-12  # added to probabilities, as in MindSpore: the loss of a wrong certain answer is 27.6


class BCELoss(LossBase):
    """Binary cross-entropy of probabilities x of any shape: -w (y log(x) + (1 - y) log(1 - x)).

    Targets y are 0, 1, or probabilities between them; `weight` w, numbers of at least 0, broadcasts to x. 1e-12 is
    added to the operands of the logarithms. `reduction` is over all elements. Targets as in `MSELoss`. For logits, use
    `BCEWithLogitsLoss`, which is exact. Raises ConfigError for other arguments.
    """

    activation: ClassVar[str] = "sigmoid"
    takes: ClassVar[str] = PROBABILITIES

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

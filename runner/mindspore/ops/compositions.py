"""Operators of r1.2 that only its scripts use, composed of others.

Losses and norms; random samples of classes and of true places of a mask; operators on images (N, C, H, W).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.operators import ComposedOperator
from runner.core.values import Tensor, Value
from runner.ops.activation import Softplus
from runner.ops.array import (
    Cast,
    Concat,
    ExpandDims,
    Pad,
    Reshape,
    Slice,
    Squeeze,
    Stack,
    Transpose,
    require,
    require_floats,
)
from runner.ops.convolution.conv import Conv2D
from runner.ops.elementwise.arithmetic import Abs, Exp, Floor, Log, Pow, Sqrt, Square
from runner.ops.elementwise.compare import GreaterEqual, Less, Maximum, Minimum, Select
from runner.ops.elementwise.division import FloorDiv, FloorMod
from runner.ops.indexing.gather import Gather, GatherD, TopK
from runner.ops.indexing.scatter import TensorScatterUpdate
from runner.ops.random import uniform
from runner.ops.reduce import ReduceMean, ReduceSum
from runner.validation.arguments import flag, whole

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


# Random samples of classes and of places: candidates for losses over many classes, and true elements of a mask.


@dataclass(frozen=True)
class RandomChoiceWithMask(ComposedOperator):
    """`count` different places of true elements of x, Bool with 1 to 5 axes: Int32 (count, axes), and Bool (count,).

    The second result is false for what x has too few true elements for; their places are 0.
    """

    count: int = 256
    seed: int = 0
    seed2: int = 0

    def __post_init__(self) -> None:
        whole({"operator": self.name}, 1, count=self.count)

    def compose(self, x: Value) -> tuple[Value, Value]:
        require(x.dtype is dt.bool_ and 1 <= x.ndim <= 5, "needs Bool with 1 to 5 axes", x=x.type)
        order = Select()(Reshape((-1,))(x), uniform((x.size,), self.seed, self.seed2), Tensor(-1.0, dt.float32))
        missing = self.count - x.size
        if missing > 0:
            order = Concat()(order, Tensor(np.full(missing, -1, np.float32)))
        values, places = TopK()(order, self.count)
        mask: Value = GreaterEqual()(values, 0.0)
        places = places * Cast(dt.int32)(mask)
        strides = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
        pairs = zip(strides, x.shape, strict=True)
        return Stack(1)([FloorMod()(FloorDiv()(places, stride), length) for stride, length in pairs]), mask


@dataclass(frozen=True)
class UniformCandidateSampler(ComposedOperator):
    """`num_sampled` classes below `range_max`, all as likely, for whole numbers (N, num_true) of true classes.

    Results: the classes (num_sampled,), of the type of the operand, and how often the true classes (N, num_true) and
    these (num_sampled,) are expected among them, Float32. With `unique` they are different, with
    `remove_accidental_hits` none is true of a sample, as long as there are any.
    """

    num_true: int
    num_sampled: int
    unique: bool
    range_max: int
    seed: int = 0
    remove_accidental_hits: bool = False

    def __post_init__(self) -> None:
        _check_sampler(self, self.num_true, self.num_sampled, self.unique, self.range_max, self.seed)
        flag({"operator": self.name}, remove_accidental_hits=self.remove_accidental_hits)

    def compose(self, true_classes: Value) -> tuple[Value, Value, Value]:
        _check_classes(true_classes, self.num_true)
        if self.unique or self.remove_accidental_hits:
            order = uniform((self.range_max,), self.seed)
            if self.remove_accidental_hits:
                places = Reshape((-1, 1))(true_classes)
                order = TensorScatterUpdate()(order, places, Tensor(np.full(len(places), -1, np.float32)))
            _, classes = TopK()(order, self.num_sampled if self.unique else self.range_max)
        if not self.unique:
            draws = uniform((self.num_sampled,), self.seed)
            if self.remove_accidental_hits:
                allowed = ReduceSum()(Cast(dt.float32)(GreaterEqual()(order, 0.0)))
                classes = Gather(0)(classes, Cast(dt.int32)(Floor()(draws * allowed)))
            else:
                classes = Cast(dt.int64)(Floor()(draws * float(self.range_max)))
        share = np.float32(self.num_sampled / self.range_max)
        expected = [Tensor(np.full(shape, share)) for shape in (true_classes.shape, (self.num_sampled,))]
        return Cast(true_classes.dtype)(classes), expected[0], expected[1]


@dataclass(frozen=True)
class LogUniformCandidateSampler(ComposedOperator):
    """`num_sampled` classes below `range_max`, class k as likely as log((k + 2) / (k + 1)) / log(range_max + 1), for
    whole numbers (N, num_true) of true classes.

    Results: the classes (num_sampled,), of the type of the operand, and how often the true classes (N, num_true) and
    these (num_sampled,) are expected among them, Float32. With `unique` they are different.
    """

    num_true: int = 1
    num_sampled: int = 5
    unique: bool = True
    range_max: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        _check_sampler(self, self.num_true, self.num_sampled, self.unique, self.range_max, self.seed)

    def compose(self, true_classes: Value) -> tuple[Value, Value, Value]:
        _check_classes(true_classes, self.num_true)
        if self.unique:
            # Each class comes at a time of its rate: the first ones are drawn, as with draws until they are different.
            every = Tensor(np.arange(self.range_max, dtype=np.int32))
            waits = Log()(1.0 - uniform((self.range_max,), self.seed)) / self._probability(every)
            times, classes = TopK()(waits, self.num_sampled)
            end = times[self.num_sampled - 1]  # minus the time of the last one
        else:
            scaled = uniform((self.num_sampled,), self.seed) * math.log(self.range_max + 1)
            classes = Minimum()(Cast(dt.int32)(Floor()(Exp()(scaled))) - 1, self.range_max - 1)
        expected = []
        for drawn in (true_classes, classes):
            share = self._probability(drawn)
            expected.append(1.0 - Exp()(share * end) if self.unique else share * float(self.num_sampled))
        return Cast(true_classes.dtype)(classes), expected[0], expected[1]

    def _probability(self, classes: Value) -> Value:
        k = Cast(dt.float32)(classes)
        return Log()((k + 2.0) / (k + 1.0)) / math.log(self.range_max + 1)


def _check_sampler(
    sampler: ComposedOperator, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: int
) -> None:
    where = {"operator": sampler.name}
    flag(where, unique=unique)
    whole(where, 1, range_max=range_max)
    whole(where, 1, num_true=num_true)
    whole(where, 1, range_max if unique else None, num_sampled=num_sampled)
    whole(where, 0, seed=seed)


def _check_classes(true_classes: Value, num_true: int) -> None:
    fits = true_classes.dtype in (dt.int32, dt.int64) and true_classes.ndim == 2 and true_classes.shape[1] == num_true
    allowed = f"Int32 or Int64 (N, {num_true})"
    require(fits, "true classes do not fit the sampler", true_classes=true_classes.type, allowed=allowed)


# Operators on images (N, C, H, W), composed of others: normalization across channels, depthwise convolution.


@dataclass(frozen=True)
class LRN(ComposedOperator):
    """x / (bias + alpha * the sum of the squares of up to `depth_radius` channels on each side) ** beta."""

    depth_radius: int = 5
    bias: float = 1.0
    alpha: float = 1.0
    beta: float = 0.5
    norm_region: str = "ACROSS_CHANNELS"

    def __post_init__(self) -> None:
        region = self.norm_region
        require(region == "ACROSS_CHANNELS", "unknown norm_region", given=region, allowed="ACROSS_CHANNELS")
        require(self.depth_radius >= 0, "depth_radius must not be negative", given=self.depth_radius)

    def compose(self, x: Value) -> Value:
        require(x.ndim == 4 and x.dtype.is_float, "needs floats (N, C, H, W)", x=x.type)
        radius = min(self.depth_radius, x.shape[1])
        squares = Pad(((0, 0), (radius, radius), (0, 0), (0, 0)))(Square()(x))
        total = Slice((0, 0, 0, 0), x.shape)(squares)
        for start in range(1, 2 * radius + 1):
            total = total + Slice((0, start, 0, 0), x.shape)(squares)
        return x * Pow()(total * self.alpha + self.bias, -self.beta)


@dataclass(frozen=True)
class DepthwiseConv2dNative(ComposedOperator):
    """Each channel of x (N, C, H, W) cross-correlated with its own filters (channel_multiplier, C, KH, KW): to
    (N, C * channel_multiplier, H', W')."""

    channel_multiplier: int
    kernel_size: Any
    mode: int = 3
    pad_mode: str = "valid"
    pad: Any = 0
    stride: Any = 1
    dilation: Any = 1
    group: int = 1

    def compose(self, x: Value, weight: Value) -> Value:
        require(x.ndim == weight.ndim == 4, "needs images and filters", x=x.type, weight=weight.type)
        channels, multiplier = x.shape[1], self.channel_multiplier
        fits = weight.shape[:2] == (multiplier, channels)
        require(fits, "needs filters (channel_multiplier, C, KH, KW)", x=x.type, weight=weight.type)
        filters = Reshape((channels * multiplier, 1, *weight.shape[2:]))(Transpose((1, 0, 2, 3))(weight))
        geometry = self.pad_mode, self.pad, self.stride, self.dilation
        convolution = Conv2D(channels * multiplier, self.kernel_size, 1, *geometry, channels)
        return convolution(x, filters)

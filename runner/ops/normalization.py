"""Batch normalisation over channels, and layer normalisation over the last axes: operators, gradients, lowerings.

Attributes, operands and outputs are those of MindSpore. Variances are computed from centred elements, so that a
mean far from 0 costs no precision. `collectives.py` normalises with the statistics of all ranks.
"""

from collections.abc import Sequence
from dataclasses import InitVar, replace
from functools import cache
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.communication.world import world
from runner.core.lowering import FUSED, LAST, PLAIN, Builder, Lowering
from runner.core.operators import Gradient, Primitive, Types, family, graph_operator, primitive
from runner.core.parts import Axes, PartRule, Parts, Replacement, Steps, added, each_sample
from runner.core.precision import OperandPrecision
from runner.core.values import Value
from runner.host.threads import block_length, compute_parts, slices
from runner.ops.array import Cast, require, require_nchw
from runner.ops.collectives import GatheredRows, OwnRows
from runner.ops.convolution.conv import Conv2D
from runner.ops.convolution.windows import as_rows, suits_batch_last
from runner.ops.elementwise.arithmetic import ELEMENT_FLOPS
from runner.ops.matrices import BiasAdd
from runner.types import Shape, TensorType, resolve_axes

# Batch normalisation (Ioffe and Szegedy, 2015) over the channels of (N, C) or (N, C, H, W), and its gradient.
#
# In batch-last layout every channel is one row of memory, for as few passes as possible: LayerNormalization of
# onnxruntime normalises a row in one pass, accurately for any mean; a convolution of each channel with one number
# scales and shifts rows in one pass, where Mul and Add take two.

BLOCK = 1 << 19  # bytes
PART = 1024  # terms of a sum at most


@family
class BatchNormalization(Primitive):
    """Base of both. `is_training`: use mean and variance of the batch, else the operands."""

    needs_elements: ClassVar = True

    is_training: bool = False
    epsilon: float = 1e-5

    def together(self, parts: Parts) -> Parts:
        """The parts whose statistics it needs: those of this process, or of all ranks."""
        return parts if self.communicates else replace(parts, ranks=1)

    def kernel(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        """For this rank's part. Raises TrainingError when other ranks have ended, whose statistics are needed."""
        over_all = self.communicates and self.is_training and world().size > 1
        return self.of_all_ranks(*operands) if over_all else self.of_one_rank(*operands)

    def of_one_rank(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        """The results with the statistics of the operands."""
        raise NotImplementedError

    def of_all_ranks(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        """The results for this rank's part of a batch, with the statistics of all ranks."""
        types, axes = [TensorType.of(x) for x in operands], [0 if x.ndim > 1 else None for x in operands]
        divided = self.divided(types, axes, Parts(1, len(operands[0]), world().size))
        assert divided is not None
        return divided.compute(operands)

    def __post_init__(self) -> None:
        require(0.0 < self.epsilon <= 1.0, "epsilon out of range", given=self.epsilon, allowed="above 0, at most 1")


@primitive
class BatchNorm(BatchNormalization):
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias, for each channel: (x, scale, bias, mean, variance).

    x is (N, C) or (N, C, H, W), the others (C,). Outputs: y; the new moving mean and variance, in which the batch has
    the weight `momentum` (without `is_training`: the operands); and the mean and 1 / sqrt(variance + epsilon) used for
    y. y uses the biased variance, the moving variance n / (n - 1) of it, as in cuDNN, Ascend, MindSpore 2 and PyTorch.
    The variance of a single element is 0, so that a last batch of one sample does not end a training.
    Only y has a gradient, with respect to x, scale and bias.
    """

    flops_each: ClassVar = 7  # mean 1, variance 3, normalised 2, scaled and shifted 2, rounded
    masters: ClassVar = (1, 2, 3, 4)
    without_gradient: ClassVar = (1, 2, 3, 4)
    operand_names: ClassVar = ("x", "scale", "offset", "mean", "variance")
    result_names: ClassVar = ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2")

    momentum: float = 0.1
    data_format: InitVar[str] = "NCHW"

    def __post_init__(self, data_format: str) -> None:
        super().__post_init__()
        require_nchw(data_format)
        require(0.0 <= self.momentum <= 1.0, "momentum out of range", given=self.momentum, allowed="0 to 1")

    def infer(
        self, x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[TensorType, ...]:
        check_channels(x, scale=scale, bias=bias, mean=mean, variance=variance)
        return x, mean, variance, mean, variance

    def of_one_rank(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, scale, bias, mean, variance = operands
        if not self.is_training:
            inverse = 1 / np.sqrt(variance + self.epsilon)
            centred = channel_rows(x) - mean[:, None]
            return from_channel_rows(scaled(centred, scale * inverse, bias), x), mean, variance, mean, inverse
        rows = channel_rows(x)
        y, batch_mean, biased, count = np.empty_like(rows), np.empty_like(mean), np.empty_like(mean), rows.shape[1]

        def normalize(part: slice) -> None:
            batch_mean[part] = row_sums(rows[part]) / count
            centred = np.subtract(rows[part], batch_mean[part, None], out=y[part])
            biased[part] = row_dots(centred, centred) / count
            scaled(centred, scale[part] / np.sqrt(biased[part] + self.epsilon), bias[part])

        compute_parts(normalize, cache_blocks(rows), ELEMENT_FLOPS * rows.size)
        unbiased = biased * (count / max(count - 1, 1))
        moving = self._moving_average(mean, batch_mean), self._moving_average(variance, unbiased)
        return from_channel_rows(y, x), *moving, batch_mean, 1 / np.sqrt(biased + self.epsilon)

    def _moving_average(self, moving: np.ndarray, batch: np.ndarray) -> np.ndarray:
        return moving * (1.0 - self.momentum) + batch * self.momentum

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, scale = inputs[:2]
        dx, dscale, dbias = BatchNormGrad(self.is_training, self.epsilon)(douts[0], x, scale, *outputs[3:])
        return dx, dscale, dbias, None, None

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        if self.is_training or axes[0] != 0:
            return None
        return PartRule(self, (0, *[None] * 4), (0, *[None] * 4), same=(1, 2, 3, 4))

    def divided(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> Replacement | None:
        """Each part is normalised by itself; scaled and shifted again it has the statistics of the batch."""
        if not self.is_training or axes[0] != 0:
            return None
        steps, parts = Steps(types), self.together(parts)
        x, scale, bias, *moving = in_single_precision(steps)
        normal, *rows = moments_of_parts(steps, x, self.epsilon, parts)
        of_batch = steps.add(CombinedMoments(self.momentum, self.epsilon), *rows, scale, bias, *moving)
        factors, shifts = own_rows(steps, of_batch[4:], parts)
        y = steps.add(ScaledChannels(), normal, factors, shifts)[0]
        return steps.end(*as_given(steps, (y, *of_batch[:4]), self.infer(*types)))

    def fold_into(
        self, before: Primitive, weight: np.ndarray, known: Sequence[np.ndarray | None]
    ) -> tuple[np.ndarray, Primitive, np.ndarray] | None:
        """Fold into a convolution by scaling its filters; computed in float64 and rounded once."""
        values = [np.float64(array) for array in known if array is not None]
        if self.is_training or not isinstance(before, Conv2D) or len(values) < len(known):
            return None
        scale, bias, mean, variance = values
        factor = scale / np.sqrt(variance + self.epsilon)
        scaled, shift = weight * factor[:, None, None, None], bias - mean * factor
        return scaled.astype(weight.dtype), BiasAdd(), shift.astype(weight.dtype)

    def lower(self, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str) -> tuple[str, ...]:
        """Training uses elementary operators: CUDA has no BatchNormalization with `training_mode`."""
        if not self.is_training:
            inverse = inverse_deviation(b, x, variance, self.epsilon)
            if b.type(x).dtype is not dt.float64:
                y = b.node("BatchNormalization", (x, scale, bias, mean, variance), epsilon=self.epsilon)
                return y, mean, variance, mean, inverse
            centred = b.node("Sub", (x, per_channel(b, mean, x)))  # the attribute epsilon is a Float32
            y = b.node("Mul", (centred, per_channel(b, b.node("Mul", (scale, inverse)), x)))
            return b.node("Add", (y, per_channel(b, bias, x))), mean, variance, mean, inverse
        axes, count = b.const(reduced_axes(b.type(x))), channel_size(b.type(x))
        batch_mean = b.node("ReduceMean", (x, axes), keepdims=0)
        centred = b.node("Sub", (x, per_channel(b, batch_mean, x)))
        spread = b.node("ReduceMean", (b.node("Mul", (centred, centred)), axes), keepdims=0)
        inverse = inverse_deviation(b, x, spread, self.epsilon)
        y = b.node("Mul", (centred, per_channel(b, b.node("Mul", (scale, inverse)), x)))
        unbiased = b.node("Mul", (spread, b.const(count / max(count - 1, 1), like=x)))
        new_mean = lower_moving_average(b, mean, batch_mean, self.momentum)
        new_variance = lower_moving_average(b, variance, unbiased, self.momentum)
        return b.node("Add", (y, per_channel(b, bias, x))), new_mean, new_variance, batch_mean, inverse

    def lowerings(self, x: TensorType, *channels: TensorType) -> Sequence[Lowering]:
        lower = self._lower_training_rows if self.is_training else self._lower_inference_rows
        fits = suits_batch_last(x) and x.dtype is not dt.float64
        rows = (Lowering("rows", lower, (LAST,), (LAST,)),) if fits else ()
        return *rows, Lowering("plain", self.lower, penalty=x.size)

    def _lower_training_rows(
        self, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str
    ) -> tuple[str, ...]:
        """BatchNorm in training."""
        channels, count = _extent(b, x)
        normalized, batch_mean, inverse = _normalized(b, x, self.epsilon)
        batch_mean, inverse = b.reshape(batch_mean, (channels,)), b.reshape(inverse, (channels,))
        square = b.node("Reciprocal", (b.node("Mul", (inverse, inverse)),))
        spread = b.node("Sub", (square, b.const(self.epsilon, like=x)))
        unbiased = b.node("Mul", (spread, b.const(count / max(count - 1, 1), like=x)))
        new_mean = lower_moving_average(b, mean, batch_mean, self.momentum)
        new_variance = lower_moving_average(b, variance, unbiased, self.momentum)
        y = _scale_and_shift(b, normalized, scale, bias, (channels, count))
        return _shape_like(b, y, x), new_mean, new_variance, batch_mean, inverse

    def _lower_inference_rows(
        self, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str
    ) -> tuple[str, ...]:
        """BatchNorm with given statistics."""
        inverse = inverse_deviation(b, x, variance, self.epsilon)
        rows = b.reshape(as_rows(b, x, _extent(b, x)[0]), (1, *_extent(b, x)))
        result = b.node("BatchNormalization", (rows, scale, bias, mean, variance), epsilon=self.epsilon)
        return _shape_like(b, result, x), mean, variance, mean, inverse


@primitive
class BatchNormGrad(BatchNormalization):
    """Gradients of BatchNorm with respect to x, scale and bias: (dout, x, scale, reserve_space_1, reserve_space_2).

    The reserve spaces are the last two outputs of BatchNorm: mean and 1 / sqrt(variance + epsilon).
    """

    flops_each: ClassVar = 11
    masters: ClassVar = (2, 3, 4)

    def infer(
        self,
        dout: TensorType,
        x: TensorType,
        scale: TensorType,
        reserve_space_1: TensorType,
        reserve_space_2: TensorType,
    ) -> tuple[TensorType, TensorType, TensorType]:
        check_channels(x, scale=scale, reserve_space_1=reserve_space_1, reserve_space_2=reserve_space_2)
        require(dout == x, "dout must have the type of x", dout=dout, x=x)
        return x, scale, scale

    def of_one_rank(self, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dout, x, scale, mean, inverse = operands
        douts, rows = channel_rows(dout), channel_rows(x)
        dx, along, dbias = np.empty_like(rows), np.empty_like(scale), np.empty_like(scale)

        def differentiate(part: slice) -> None:
            centred = np.subtract(rows[part], mean[part, None], out=dx[part])
            dbias[part], along[part] = row_sums(douts[part]), row_dots(douts[part], centred)
            if self.is_training:
                share = inverse[part] ** 2 / -rows.shape[1]
                scaled(centred, along[part] * share, dbias[part] / -rows.shape[1])
                centred += douts[part]
            np.multiply(centred if self.is_training else douts[part], (scale * inverse)[part, None], out=dx[part])

        compute_parts(differentiate, cache_blocks(rows), ELEMENT_FLOPS * rows.size)
        return from_channel_rows(dx, x), along * inverse, dbias

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return None if self.is_training else each_sample(self, axes, (0, 0, *[None] * 3), (0, None, None))

    def divided(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> Replacement | None:
        """As the operator, from each part as `BatchNorm` has normalised it."""
        if not self.is_training or not {*axes[:2]} <= {0, None}:
            return None
        steps, parts = Steps(types), self.together(parts)
        dout, x, *channels = in_single_precision(steps)
        normal, *rows = moments_of_parts(steps, x, self.epsilon, parts)
        sums = gathered(steps, steps.add(PartSums(parts.count), dout, normal), parts)
        of_batch = steps.add(CombinedSums(parts.ranks), *sums, *rows, *channels)
        factors, shifts = own_rows(steps, of_batch[3:], parts)
        dx = steps.add(ScaledDifference(), dout, of_batch[2], normal, factors, shifts)[0]
        return steps.end(*as_given(steps, (dx, *of_batch[:2]), self.infer(*types)))

    def lower(
        self, b: Builder, dout: str, x: str, scale: str, reserve_space_1: str, reserve_space_2: str
    ) -> tuple[str, str, str]:
        axes, inverse = b.const(reduced_axes(b.type(x))), reserve_space_2
        centred = b.node("Sub", (x, per_channel(b, reserve_space_1, x)))
        dbias = b.node("ReduceSum", (dout, axes), keepdims=0)
        along = b.node("ReduceSum", (b.node("Mul", (dout, centred)), axes), keepdims=0)
        dscale = b.node("Mul", (along, inverse))
        dx = dout
        if self.is_training:
            share = b.const(1.0 / channel_size(b.type(x)), like=x)
            slope = b.node("Mul", (b.node("Mul", (dscale, inverse)), share))
            dx = b.node("Sub", (dx, per_channel(b, b.node("Mul", (dbias, share)), x)))
            dx = b.node("Sub", (dx, b.node("Mul", (centred, per_channel(b, slope, x)))))
        return b.node("Mul", (dx, per_channel(b, b.node("Mul", (scale, inverse)), x))), dscale, dbias

    def lowerings(self, dout: TensorType, x: TensorType, *channels: TensorType) -> Sequence[Lowering]:
        suits = self.is_training and suits_batch_last(x)
        rows = (Lowering("rows", self._lower_rows, (LAST, LAST), (LAST,)),) if suits else ()
        return *rows, Lowering("plain", self.lower, penalty=x.size)

    def _lower_rows(self, b: Builder, dout: str, x: str, scale: str, mean: str, inverse: str) -> tuple[str, str, str]:
        """BatchNormGrad: dx = scale * inverse * (dout - mean of dout - normalized * mean of (dout * normalized))."""
        channels, count = _extent(b, x)
        rows, normalized = as_rows(b, dout, channels), _normalized(b, x, self.epsilon)[0]
        dscale, dbias = row_products(b, rows, normalized, (channels, count))
        slope = b.node("Mul", (scale, inverse))
        share = b.node("Mul", (slope, b.const(-1.0 / count, like=x)))
        rest = _scale_and_shift(
            b, normalized, b.node("Mul", (share, dscale)), b.node("Mul", (share, dbias)), (channels, count)
        )
        operands = b.reshape(rows, (1, channels, 1, count)), b.reshape(slope, (channels, 1, 1, 1)), "", rest
        return _shape_like(b, b.node("FusedConv", operands, FUSED, group=channels), x), dscale, dbias


# Batch normalisation of a batch in parts.
#
# A part is normalised by itself in one pass, and then scaled and shifted by what the statistics of all parts make of
# it: (x - mean) * inverse = normal * (inverse / its inverse) + (its mean - mean) * inverse. Nothing cancels, whatever
# the mean. So it takes no more passes than the whole batch does. Statistics have a row for each part.


@family
class OfParts(Primitive):
    """Base of what is computed of x (N, C) or (N, C, H, W) for each of `count` parts, one row for each.

    Only that of one part is lowered.
    """

    needs_elements: ClassVar = True

    count: int = 1

    def rows_of(self, x: TensorType) -> TensorType:
        """The type of the rows."""
        return x.with_shape(self.count, x.shape[1])

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        op = replace(self, count=self.count // parts.count)
        return each_sample(op, axes, (0,) * len(types), (0,) * self.results)

    results: ClassVar[int]


@graph_operator
class PartMoments(OfParts):
    """Each part of x normalised, and for each part and channel the mean and 1 / sqrt(variance + epsilon)."""

    flops_each: ClassVar = 5
    results: ClassVar = 3

    epsilon: float = 1e-5

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        return x, self.rows_of(x), self.rows_of(x)

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = Parts(self.count, len(x))
        made = [self._of_part(channel_rows(part), part) for part in parts.split(x, 0)]
        normal, mean, inverse = zip(*made, strict=True)
        return parts.join(normal, 0), np.stack(mean), np.stack(inverse)

    def _of_part(self, rows: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean = row_sums(rows) / rows.shape[1]
        centred = rows - mean[:, None]
        inverse = 1 / np.sqrt(row_dots(centred, centred) / rows.shape[1] + x.dtype.type(self.epsilon))
        return from_channel_rows(centred * inverse[:, None], x), mean, inverse

    def lower(self, b: Builder, x: str) -> tuple[str, str, str]:
        axes, row = b.const(reduced_axes(b.type(x))), self.rows_of(b.type(x)).shape
        mean = b.node("ReduceMean", (x, axes), keepdims=1)
        centred = b.node("Sub", (x, mean))
        spread = b.node("ReduceMean", (b.node("Mul", (centred, centred)), axes), keepdims=1)
        inverse = inverse_deviation(b, x, spread, self.epsilon)
        return b.node("Mul", (centred, inverse)), b.reshape(mean, row), b.reshape(inverse, row)

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        rows = (Lowering("rows", self._lower_rows, (LAST,), (LAST,)),) if suits_batch_last(x) else ()
        return *rows, Lowering("plain", self.lower, penalty=x.size)

    def _lower_rows(self, b: Builder, x: str) -> tuple[str, str, str]:
        normal, mean, inverse = _normalized(b, x, self.epsilon)
        row = self.rows_of(b.type(x)).shape
        return _shape_like(b, normal, x), b.reshape(mean, row), b.reshape(inverse, row)


@graph_operator
class PartSizes(Primitive):
    """The number of elements of a channel in each of `count` parts, a row for each: no operands."""

    on_host: ClassVar = True
    computes: ClassVar = False

    count: int = 1
    size: int = 1
    dtype: dt.DType = dt.float32

    def infer(self) -> TensorType:
        return TensorType(self.dtype, (self.count, 1))

    def kernel(self) -> np.ndarray:
        return np.full((self.count, 1), self.size, self.dtype.numpy)


@graph_operator
class CombinedMoments(Primitive):
    """Statistics of the batch from the rows of its parts: (means, inverses, sizes, scale, bias, moving mean, moving
    variance).

    Outputs: those of `BatchNorm` without y, and by what each normalised part is scaled and shifted to be its part of y.
    """

    on_host: ClassVar = True

    momentum: float = 0.1
    epsilon: float = 1e-5

    def infer(self, means: TensorType, inverses: TensorType, sizes: TensorType, *channels: TensorType) -> Types:
        return *(channels[0],) * 4, means, means

    def kernel(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        means, inverses, sizes, scale, bias, *moving = operands
        total = float(sizes.sum(dtype=np.float64))
        weights = (sizes / total).astype(means.dtype)
        mean = sum_of_rows(means * weights)
        variance = sum_of_rows((1 / inverses**2 - self.epsilon + (means - mean) ** 2) * weights)
        inverse = 1 / np.sqrt(variance + self.epsilon)
        batch = mean, variance * (total / max(total - 1, 1))
        kept, taken = 1.0 - self.momentum, self.momentum
        moved = [kept * old + taken * new for old, new in zip(moving, batch, strict=True)]
        slope = scale * inverse
        results = *moved, mean, inverse, slope / inverses, (means - mean) * slope + bias
        return tuple([np.asarray(x, means.dtype) for x in results])


def sum_of_rows(rows: np.ndarray) -> np.ndarray:
    """The sum of rows, in the order in which the terms of parts are added."""
    return np.asarray(added(list(rows), np.add))


@graph_operator
class ScaledChannels(Primitive):
    """x times the scale plus the shift of each channel of its part: (x, scales, shifts), one row for each part."""

    flops_each: ClassVar = 2

    def infer(self, x: TensorType, scales: TensorType, shifts: TensorType) -> TensorType:
        return x

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, 0, 0), (0,))

    def kernel(self, x: np.ndarray, scales: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        return np.asarray(x * for_each_sample(scales, x) + for_each_sample(shifts, x))

    def lower(self, b: Builder, x: str, scales: str, shifts: str) -> str:
        return b.node("Add", (b.node("Mul", (x, per_channel(b, scales, x))), per_channel(b, shifts, x)))

    def lowerings(self, x: TensorType, *rows: TensorType) -> Sequence[Lowering]:
        last = (Lowering("rows", self._lower_rows, (LAST,), (LAST,)),) if suits_batch_last(x) else ()
        return *last, Lowering("plain", self.lower, penalty=x.size)

    def _lower_rows(self, b: Builder, x: str, scales: str, shifts: str) -> str:
        channels, count = _extent(b, x)
        shift = b.reshape(shifts, (channels,))
        return _shape_like(b, _scale_and_shift(b, as_rows(b, x, channels), scales, shift, (channels, count)), x)


@graph_operator
class PartSums(OfParts):
    """Of each part and channel the sums of dout * normal, and of dout: (dout, normal)."""

    flops_each: ClassVar = 3
    results: ClassVar = 2

    def infer(self, dout: TensorType, normal: TensorType) -> tuple[TensorType, TensorType]:
        return self.rows_of(dout), self.rows_of(dout)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return self.flops_each * inputs[0].size

    def kernel(self, dout: np.ndarray, normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = zip(*(Parts(self.count, len(x)).split(x, 0) for x in (dout, normal)), strict=True)
        rows = [(channel_rows(x), channel_rows(y)) for x, y in pairs]
        return np.stack([row_dots(x, y) for x, y in rows]), np.stack([row_sums(x) for x, _ in rows])

    def lower(self, b: Builder, dout: str, normal: str) -> tuple[str, str]:
        axes, row = b.const(reduced_axes(b.type(dout))), self.rows_of(b.type(dout)).shape
        along, total = (b.node("ReduceSum", (x, axes), keepdims=0) for x in (b.node("Mul", (dout, normal)), dout))
        return b.reshape(along, row), b.reshape(total, row)

    def lowerings(self, dout: TensorType, normal: TensorType) -> Sequence[Lowering]:
        rows = (Lowering("rows", self._lower_rows, (LAST, LAST)),) if suits_batch_last(dout) else ()
        return *rows, Lowering("plain", self.lower, penalty=dout.size)

    def _lower_rows(self, b: Builder, dout: str, normal: str) -> tuple[str, str]:
        channels, count = _extent(b, dout)
        along, total = row_products(b, as_rows(b, dout, channels), as_rows(b, normal, channels), (channels, count))
        row = self.rows_of(b.type(dout)).shape
        return b.reshape(along, row), b.reshape(total, row)


@graph_operator
class CombinedSums(Primitive):
    """The gradients of scale and bias from the rows of the parts: (along, sums, means, inverses, sizes, scale, mean,
    inverse).

    Outputs: both, of the parts of this rank; and for `ScaledDifference` the slope of each channel, and by what each
    normalised part is scaled and shifted. The rows are those of the parts of all `ranks`.
    """

    on_host: ClassVar = True

    ranks: int = 1

    def infer(self, along: TensorType, *operands: TensorType) -> Types:
        return *(operands[4],) * 3, along, along

    def kernel(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        along, sums, means, inverses, sizes, scale, mean, inverse = operands
        ratio, away = inverse / inverses, (means - mean) * inverse
        terms, own = along * ratio + sums * away, slice(world().rank if self.ranks > 1 else 0, None, self.ranks)
        dscale, dbias = sum_of_rows(terms), sum_of_rows(sums)
        slope = scale * inverse
        share = slope / -float(sizes.sum(dtype=np.float64))
        factors, shifts = share * dscale * ratio, share * (dbias + dscale * away)
        results = sum_of_rows(terms[own]), sum_of_rows(sums[own]), slope, factors, shifts
        return tuple([np.asarray(x, along.dtype) for x in results])


@graph_operator
class ScaledDifference(Primitive):
    """dout * slope + normal * factor + shift: (dout, slope, normal, factors, shifts), the last two with a row for each
    part."""

    flops_each: ClassVar = 4

    def infer(self, dout: TensorType, slope: TensorType, normal: TensorType, *rows: TensorType) -> TensorType:
        return dout

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, None, 0, 0, 0), (0,))

    def kernel(self, dout: np.ndarray, slope: np.ndarray, normal: np.ndarray, *rows: np.ndarray) -> np.ndarray:
        factors, shifts = (for_each_sample(x, dout) for x in rows)
        return np.asarray(dout * for_each_sample(slope[None], dout) + normal * factors + shifts)

    def lower(self, b: Builder, dout: str, slope: str, normal: str, factors: str, shifts: str) -> str:
        first, factor, shift = (per_channel(b, x, dout) for x in (slope, factors, shifts))
        rest = b.node("Add", (b.node("Mul", (normal, factor)), shift))
        return b.node("Add", (b.node("Mul", (dout, first)), rest))

    def lowerings(self, dout: TensorType, *others: TensorType) -> Sequence[Lowering]:
        last = (Lowering("rows", self._lower_rows, (LAST, PLAIN, LAST), (LAST,)),) if suits_batch_last(dout) else ()
        return *last, Lowering("plain", self.lower, penalty=dout.size)

    def _lower_rows(self, b: Builder, dout: str, slope: str, normal: str, factors: str, shifts: str) -> str:
        channels, count = _extent(b, dout)
        shift = b.reshape(shifts, (channels,))
        rest = _scale_and_shift(b, as_rows(b, normal, channels), factors, shift, (channels, count))
        operands = (
            b.reshape(as_rows(b, dout, channels), (1, channels, 1, count)),
            b.reshape(slope, (channels, 1, 1, 1)),
            "",
            rest,
        )
        return _shape_like(b, b.node("FusedConv", operands, FUSED, group=channels), dout)


def moments_of_parts(steps: Steps, x: int, epsilon: float, parts: Parts) -> tuple[int, ...]:
    """Each part of x normalised; then means, inverses and sizes, a row for each part of all ranks."""
    kind = steps.types[x]
    normal, *rows = steps.add(PartMoments(parts.count, epsilon), x)
    sizes = steps.add(PartSizes(parts.count, channel_size(kind) // parts.count, kind.dtype))
    return normal, *gathered(steps, (*rows, *sizes), parts)


def gathered(steps: Steps, rows: Sequence[int], parts: Parts) -> tuple[int, ...]:
    """The rows of the parts of all ranks."""
    return steps.add(GatheredRows(parts.ranks), *rows) if parts.ranks > 1 else tuple(rows)


def own_rows(steps: Steps, rows: Sequence[int], parts: Parts) -> tuple[int, ...]:
    """Of rows of the parts of all ranks those of this one."""
    return steps.add(OwnRows(parts.ranks), *rows) if parts.ranks > 1 else tuple(rows)


def in_single_precision(steps: Steps) -> list[int]:
    """The operands, those of Float16 as Float32."""
    given = list(range(len(steps.types)))
    return [steps.add(Cast(dt.float32), k)[0] if steps.types[k].dtype is dt.float16 else k for k in given]


def as_given(steps: Steps, values: Sequence[int], types: Sequence[TensorType]) -> list[int]:
    """Values in these types."""
    pairs = zip(values, types, strict=True)
    return [k if steps.types[k].dtype is kind.dtype else steps.add(Cast(kind.dtype), k)[0] for k, kind in pairs]


def for_each_sample(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The row of its part for each sample of x, in a shape that broadcasts: sample i belongs to part i mod P."""
    shape = len(x), rows.shape[1], *(1,) * (x.ndim - 2)
    return np.tile(rows, (len(x) // len(rows), 1)).reshape(shape)


@primitive
class SyncBatchNorm(BatchNorm):
    """BatchNorm with the statistics of the batches of all ranks of a data-parallel run."""

    communicates: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, scale = inputs[:2]
        dx, dscale, dbias = SyncBatchNormGrad(self.is_training, self.epsilon)(douts[0], x, scale, *outputs[3:])
        return dx, dscale, dbias, None, None


@primitive
class SyncBatchNormGrad(BatchNormGrad):
    """BatchNormGrad of SyncBatchNorm. The gradients of scale and bias are those of this rank's part."""

    communicates: ClassVar = True


def check_channels(x: TensorType, **channels: TensorType) -> None:
    """Raise ShapeError unless x is (N, C) or (N, C, H, W) of floats, and the others are (C,) of the same element type,
    or of Float32 if x is Float16.
    """
    require(x.ndim in (2, 4) and x.dtype.is_float, "needs floats (N, C) or (N, C, H, W)", x=x)
    for name, given in channels.items():
        expected = x.with_shape(x.shape[1])
        is_master = x.dtype is dt.float16 and given == expected.with_dtype(dt.float32)
        fits, what = given == expected or is_master, f"{name} needs one element per channel of x"
        require(fits, what, x=x, given=given, expected=expected)


def channel_rows(x: np.ndarray) -> np.ndarray:
    """(N, C, ...) as rows (C, elements of the channel); no copy in batch-last order (`convolution/windows.py`)."""
    batch_last = x.transpose(*range(1, x.ndim), 0)
    return np.ascontiguousarray(batch_last).reshape(x.shape[1], -1)


def from_channel_rows(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A view of channel rows in the shape of x."""
    return rows.reshape(*x.shape[1:], len(x)).transpose(-1, *range(x.ndim - 1))


def cache_blocks(rows: np.ndarray) -> list[slice]:
    """Blocks of rows that are small enough to stay in the cache between passes."""
    return slices(len(rows), max(1, block_length(BLOCK) // rows[0].nbytes))


@cache
def sum_parts(count: int) -> tuple[int, int]:
    """Into how many parts a sum of `count` terms is divided, and their length: equal terms, such as the gradient of a
    mean, round to one side in one long sum.

    >>> sum_parts(32 * 900)
    (30, 960)
    """
    length = next(length for length in range(min(count, PART), 0, -1) if count % length == 0)
    return (count // length, length) if length * length >= count else (1, count)


def row_sums(rows: np.ndarray) -> np.ndarray:
    """Sum of each row, by a scalar product, which is five times faster than numpy's sum."""
    return row_dots(rows, np.broadcast_to(np.ones(rows.shape[1], rows.dtype), rows.shape))


def row_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Scalar product of each pair of rows, in parts: the bits of one do not depend on the others."""
    shape = len(a), *sum_parts(a.shape[1])
    products = a.reshape(shape)[:, :, None, :] @ b.reshape(shape)[..., None]
    result: np.ndarray = products[:, :, 0, 0].sum(1)
    return result


def scaled(rows: np.ndarray, factor: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Each row times its factor plus its shift, in place."""
    rows *= factor[:, None]
    rows += shift[:, None]
    return rows


def reduced_axes(x: TensorType) -> list[int]:
    """All axes except the channels."""
    return [axis for axis in range(x.ndim) if axis != 1]


def channel_size(x: TensorType) -> int:
    """Number of elements of each channel."""
    return x.size // x.shape[1]


def per_channel(b: Builder, channels: str, x: str) -> str:
    """(C,) reshaped to broadcast against x."""
    type = b.type(x)
    return channels if type.ndim == 2 else b.reshape(channels, (1, type.shape[1], 1, 1))


def inverse_deviation(b: Builder, x: str, variance: str, epsilon: float) -> str:
    """1 / sqrt(variance + epsilon), (C,) in the element type of x."""
    deviation = b.node("Sqrt", (b.node("Add", (variance, b.const(epsilon, like=x))),))
    return b.node("Div", (b.const(1.0, like=x), deviation))


def lower_moving_average(b: Builder, moving: str, batch: str, momentum: float) -> str:
    """The moving mean or variance (C,) after a batch, whose weight is `momentum`."""
    kept = b.node("Mul", (moving, b.const(1.0 - momentum, like=moving)))
    return b.node("Add", (kept, b.node("Mul", (batch, b.const(momentum, like=moving)))))


def _extent(b: Builder, x: str) -> tuple[int, int]:
    """Number of channels, and of elements per channel."""
    channels = b.type(x).shape[1]
    return channels, b.type(x).size // channels


def _normalized(b: Builder, x: str, epsilon: float) -> tuple[str, ...]:
    """(x - mean) / sqrt(variance + epsilon) as rows, the mean, and 1 / sqrt(variance + epsilon)."""
    channels, count = _extent(b, x)
    ones = b.const(np.ones(count, np.float32))
    return b.nodes("LayerNormalization", (as_rows(b, x, channels), ones), 3, axis=1, epsilon=epsilon)


def _scale_and_shift(b: Builder, rows: str, scale: str, shift: str, extent: tuple[int, int]) -> str:
    """Each row times its scale plus its shift, as an image (1, C, 1, elements)."""
    channels, count = extent
    image = b.reshape(rows, (1, channels, 1, count))
    return b.node("Conv", (image, b.reshape(scale, (channels, 1, 1, 1)), shift), group=channels)


def row_products(b: Builder, rows: str, others: str, extent: tuple[int, int]) -> tuple[str, str]:
    """For each channel the sum of the products of two rows, and the sum of the first one."""
    channels, (parts, length) = extent[0], sum_parts(extent[1])
    sums = b.node("ReduceSum", (b.reshape(rows, (channels, parts, length)), b.const([2])), keepdims=0)
    pair = b.reshape(rows, (channels * parts, 1, length)), b.reshape(others, (channels * parts, 1, length))
    dots = b.reshape(b.node("FusedMatMul", pair, FUSED, transB=1), (channels, parts))
    along, total = (b.node("ReduceSum", (x, b.const([1])), keepdims=0) for x in (dots, sums))
    return along, total


def _shape_like(b: Builder, rows: str, x: str) -> str:
    """Rows in the batch-last shape of x."""
    shape = b.type(x).shape
    return b.reshape(rows, (*shape[1:], shape[0]))


# Layer normalisation (Ba, Kiros and Hinton, 2016), and its gradient.


@family
class LayerNormalization(Primitive):
    """Base: axes from `begin_norm_axis` are normalised; gamma and beta have the axes from `begin_params_axis`."""

    needs_elements: ClassVar = True

    precision: ClassVar = OperandPrecision.SINGLE

    begin_norm_axis: int = 1
    begin_params_axis: int = 1
    epsilon: float = 1e-7

    def axes(self, ndim: int) -> tuple[int, ...]:
        """The axes of mean and variance."""
        return tuple(range(resolve_axes(self.begin_norm_axis, ndim)[0], ndim))

    def params_at(self, ndim: int) -> int:
        """The first axis of gamma and beta."""
        return resolve_axes(self.begin_params_axis, ndim)[0]

    def keepdims_shape(self, shape: Shape) -> Shape:
        """Shape of mean and variance: normalised axes have length 1."""
        axes = self.axes(len(shape))
        return tuple(1 if k in axes else n for k, n in enumerate(shape))

    def mean(self, b: Builder, value: str, ndim: int) -> str:
        """Lower the mean of a value over the normalised axes."""
        return b.node("ReduceMean", (value, b.const(list(self.axes(ndim)))), keepdims=1)

    def centre_and_deviation(self, b: Builder, x: str, mean: str, variance: str) -> tuple[str, str]:
        """Lower x - mean and the deviation sqrt(variance + epsilon)."""
        inside = b.node("Add", (variance, b.const(float(self.epsilon), like=x)))
        return b.node("Sub", (x, mean)), b.node("Sqrt", (inside,))


@primitive
class LayerNorm(LayerNormalization):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta; outputs: y, mean and variance (biased).

    x of floats; gamma and beta have the shape of x from `begin_params_axis`. In mean and variance the normalised axes
    have length 1. As in MindSpore, the second and third output have no gradient.
    """

    flops_each: ClassVar = 7  # as BatchNorm
    without_gradient: ClassVar = (1, 2)
    result_names: ClassVar = ("y", "mean", "variance")

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        require(x.ndim >= 1 and x.dtype.is_float, "needs floats with at least one axis", x=x)
        expected = x.with_shape(*x.shape[self.params_at(x.ndim) :])
        fits = gamma == beta == expected
        require(fits, "gamma and beta do not match x", x=x, gamma=gamma, beta=beta, expected=expected)
        few = x.with_shape(*self.keepdims_shape(x.shape))
        return x, few, few

    def kernel(self, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        axes = self.axes(x.ndim)
        mean = x.mean(axes, dtype=x.dtype, keepdims=True)
        centred = x - mean
        variance = np.square(centred).mean(axes, dtype=x.dtype, keepdims=True)
        centred /= np.sqrt(variance + x.dtype.type(self.epsilon))
        centred *= gamma
        centred += beta
        return centred, mean, variance

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        axis = axes[0]
        first = min(self.axes(types[0].ndim)[0], self.params_at(types[0].ndim))
        if axis is None or axis >= first:
            return None
        return each_sample(self, axes, (axis, None, None), (axis,) * 3)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, gamma, _), (_, mean, variance) = inputs, outputs
        return tuple(LayerNormGrad(**self.attributes())(x, douts[0], variance, mean, gamma))

    def lower(self, b: Builder, x: str, gamma: str, beta: str) -> tuple[str, str, str]:
        # Not the LayerNormalization of ONNX, whose third output is 1 / deviation instead of the variance.
        ndim = b.type(x).ndim
        mean = self.mean(b, x, ndim)
        centred = b.node("Sub", (x, mean))
        variance = self.mean(b, b.node("Mul", (centred, centred)), ndim)
        normal = b.node("Div", self.centre_and_deviation(b, x, mean, variance))
        return b.node("Add", (b.node("Mul", (normal, gamma)), beta)), mean, variance


@primitive
class LayerNormGrad(LayerNormalization):
    """Gradients of LayerNorm with respect to x, gamma and beta: (x, dout, variance, mean, gamma)."""

    flops_each: ClassVar = 11

    def infer(
        self, x: TensorType, dout: TensorType, variance: TensorType, mean: TensorType, gamma: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        expected = LayerNorm(**self.attributes()).infer(x, gamma, gamma)
        fits = (dout, mean, variance) == expected
        require(fits, "dout, mean and variance must have LayerNorm's types", dout=dout, mean=mean, variance=variance)
        return x, gamma, gamma

    def kernel(
        self, x: np.ndarray, dout: np.ndarray, variance: np.ndarray, mean: np.ndarray, gamma: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        axes, lead = self.axes(x.ndim), tuple(range(self.params_at(x.ndim)))
        deviation = np.sqrt(variance + x.dtype.type(self.epsilon))
        normal, weighed = (x - mean) / deviation, dout * gamma
        along = (weighed * normal).mean(axes, dtype=x.dtype, keepdims=True)
        dx = (weighed - weighed.mean(axes, dtype=x.dtype, keepdims=True) - normal * along) / deviation
        return dx, (dout * normal).sum(lead, dtype=x.dtype), dout.sum(lead, dtype=x.dtype)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        """Gradients of gamma and beta are sums over the samples."""
        axis = next(axis for axis in axes if axis is not None)
        first = min(self.axes(types[0].ndim)[0], self.params_at(types[0].ndim))
        return each_sample(self, axes, (axis,) * 4 + (None,), (axis, None, None)) if axis < first else None

    def lower(self, b: Builder, x: str, dout: str, variance: str, mean: str, gamma: str) -> tuple[str, str, str]:
        ndim = b.type(x).ndim
        centred, deviation = self.centre_and_deviation(b, x, mean, variance)
        normal, weighed = b.node("Div", (centred, deviation)), b.node("Mul", (dout, gamma))
        along = b.node("Mul", (normal, self.mean(b, b.node("Mul", (weighed, normal)), ndim)))
        across = b.node("Sub", (weighed, self.mean(b, weighed, ndim)))
        dx = b.node("Div", (b.node("Sub", (across, along)), deviation))
        lead = b.const(list(range(self.params_at(ndim))))
        parts = b.node("Mul", (dout, normal)), dout
        # Without leading axes there is nothing to sum; an empty list means all axes without noop_with_empty_axes.
        dgamma, dbeta = (b.node("ReduceSum", (part, lead), keepdims=0, noop_with_empty_axes=1) for part in parts)
        return dx, dgamma, dbeta

"""Operators over the ranks of a data-parallel run: sums of values, and batch normalisation of the whole batch."""

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.communication.management import WORLD, get_rank
from runner.communication.world import world
from runner.core.interpreter import current
from runner.core.lowering import LAST, PLAIN, Builder, Layout, Lowering, Names
from runner.core.operators import Arrays, Collective, Gradient, Primitive, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import Value
from runner.errors import ConfigError, ShapeError
from runner.ops.array import Reshape, require
from runner.ops.normalization import (
    BatchNorm,
    BatchNormGrad,
    cache_blocks,
    channel_rows,
    check_channels,
    inverse_deviation,
    row_dots,
    row_sums,
)
from runner.types import TensorType

# Sums and means of values.

KINDS = "sum", "mean"


class ReduceOp:
    """The reductions of AllReduce by MindSpore's names; MAX, MIN and PROD are errors."""

    SUM, MAX, MIN, PROD = "sum", "max", "min", "prod"


@primitive
class AllReduce(Collective):
    """Each operand summed over all ranks (`op="mean"`: divided by their number), the same on every rank.

    The operands, of one float type, are exchanged in one message. Sums are added in the order of ranks, so that two
    runs give the same bits. With a single process, and in exported models, it is the identity. Raises ConfigError for
    another `op` or `group`. Source: `mindspore.ops.AllReduce` r1.2, which has no "mean".
    """

    precision: ClassVar = OperandPrecision.MASTER  # it sums the gradients that update parameters
    op: str = "sum"
    group: str = field(default=WORLD, compare=False)

    def __post_init__(self) -> None:
        get_rank(self.group)  # raises for another group
        if self.op not in KINDS:
            raise ConfigError("unknown reduction of AllReduce", op=repr(self.op), allowed=", ".join(KINDS))

    def infer(self, *types: TensorType) -> TensorType | tuple[TensorType, ...]:
        """The types of the operands. Raises ShapeError unless they are floats of one type."""
        kinds = {x.dtype for x in types}
        if len(kinds) != 1 or not types[0].dtype.is_float:
            raise ShapeError("operands must be floats of one type", given=", ".join(map(str, types)) or "none")
        return types if len(types) > 1 else types[0]

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return sum(x.size for x in inputs)

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        """Exchange with the other ranks. Raises TrainingError when they have ended."""
        with world().exchanging():
            result = world().summed(arrays)
        if self.op == "mean":
            result = [array / array.dtype.type(world().size) for array in result]
        return tuple(result) if len(result) > 1 else result[0]

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """The result depends on the operand of every rank, so gradients are reduced in the same way."""
        return [partial(self, dout) for dout in douts]

    def lower(self, b: Builder, *names: str) -> Names:
        """The identity of a single process; runner itself splits graphs here."""
        result = tuple([b.node("Identity", (name,)) for name in names])
        return result if len(result) > 1 else result[0]


# Batch normalisation with the statistics of the batches of all ranks, as three operators.
#
# `ChannelMoments` computes the statistics of this rank's part, `AllReduceMoments` those of all parts in one exchange,
# and `NormalizeChannels` the result; its gradient needs one exchange, too. Statistics of parts are combined as centred
# sums (Chan, Golub and LeVeque, 1979), so that a mean far from 0 costs no precision.


@primitive
class ChannelMoments(Primitive):
    """Mean and biased variance of each channel of x (N, C) or (N, C, H, W): both (C,), of a Float16 x in Float32."""

    precision: ClassVar = OperandPrecision.NOTHING
    needs_elements: ClassVar = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.ndim in (2, 4) and x.dtype.is_float, "needs floats (N, C) or (N, C, H, W)", x=x)
        moments = x.with_shape(x.shape[1]).with_dtype(dt.float32 if x.dtype is dt.float16 else x.dtype)
        return moments, moments

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 4 * inputs[0].size

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = channel_rows(x)
        mean, variance = np.empty(len(rows), x.dtype), np.empty(len(rows), x.dtype)
        for part in cache_blocks(rows):
            mean[part] = row_sums(rows[part]) / rows.shape[1]
            centred = rows[part] - mean[part, None]
            variance[part] = row_dots(centred, centred) / rows.shape[1]
        return mean, variance

    def lower(self, b: Builder, x: str, layout: Layout = PLAIN) -> tuple[str, str]:
        axis = _channel_axis(layout)
        axes = b.const([k for k in range(b.type(x).ndim) if k != axis])
        mean = b.node("ReduceMean", (x, axes), keepdims=0)
        centred = b.node("Sub", (x, _per_channel(b, mean, x, layout)))
        return mean, b.node("ReduceMean", (b.node("Mul", (centred, centred)), axes), keepdims=0)

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        last = Lowering("rows", partial(self.lower, layout=LAST), (LAST,))
        return last, Lowering("plain", self.lower, penalty=x.size)


@primitive
class AllReduceMoments(Collective):
    """Statistics of the parts of all ranks, from (mean, biased variance) of a part with `count` elements per channel.

    Outputs: mean, biased variance and unbiased variance of all elements, each (C,), and 1 / their number, a scalar.
    They are computed in Float64, in the order of ranks: the same bits on all ranks. With a single process the
    statistics are those of its part.
    """

    precision: ClassVar = OperandPrecision.MASTER  # the moving statistics are updated with the results
    count: int = 1

    def __post_init__(self) -> None:
        require(self.count > 0, "count out of range", given=self.count, allowed="1 and more")

    def infer(self, mean: TensorType, variance: TensorType) -> tuple[TensorType, ...]:
        require(mean.ndim == 1 and mean.dtype.is_float, "mean needs floats (C,)", mean=mean)
        require(mean == variance, "variance must have the type of mean", mean=mean, variance=variance)
        return mean, mean, mean, mean.with_shape()

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 8 * world().size * inputs[0].size

    def kernel(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, ...]:
        """Exchange with the other ranks. Raises TrainingError when they have ended."""
        ranks, channels = world(), len(mean)
        parts = np.zeros((ranks.size, 1 + 2 * channels))  # a sum in which each rank has its own row: exact
        parts[ranks.rank] = self.count, *mean, *variance
        with ranks.exchanging():
            [parts] = ranks.summed([parts])
        counts, means, variances = parts[:, :1], parts[:, 1 : 1 + channels], parts[:, 1 + channels :]
        with np.errstate(all="ignore"):  # the step detects numbers that are not finite
            total = counts.sum()
            # Not by matrix products, which round differently on different processors.
            all_mean = (counts * means).sum(axis=0) / total
            biased = (counts * (variances + (means - all_mean) ** 2)).sum(axis=0) / total
            statistics = all_mean, biased, biased * (total / max(total - 1, 1)), 1 / total
            return tuple([np.asarray(values, mean.dtype) for values in statistics])

    def lower(self, b: Builder, mean: str, variance: str) -> tuple[str, ...]:
        """The statistics of a single process; runner itself splits graphs here."""
        unbiased = b.node("Mul", (variance, b.const(self.count / max(self.count - 1, 1), like=mean)))
        outputs = [b.node("Identity", (name,)) for name in (mean, variance)]
        return *outputs, unbiased, b.node("Identity", (b.const(1 / self.count, like=mean),))


@primitive
class NormalizeChannels(Primitive):
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias: (x, scale, bias, mean, variance, share).

    x is (N, C) or (N, C, H, W), the next four are (C,); mean and variance are those of the channels over all ranks, and
    share is 1 / their number of elements per channel. Outputs: y and 1 / sqrt(variance + epsilon). Only y has a
    gradient. That with respect to x includes its share in the statistics of all ranks, which therefore have none of
    their own; those of scale and bias are this rank's, to be summed with those of the others.
    """

    flops_each: ClassVar = 4
    masters: ClassVar = (1, 2, 3, 4, 5)
    without_gradient: ClassVar = (1,)
    needs_elements: ClassVar = True

    epsilon: float = 1e-5

    def infer(
        self,
        x: TensorType,
        scale: TensorType,
        bias: TensorType,
        mean: TensorType,
        variance: TensorType,
        share: TensorType,
    ) -> tuple[TensorType, TensorType]:
        check_channels(x, scale=scale, bias=bias, mean=mean, variance=variance)
        require(share.ndim == 0 and share.dtype is mean.dtype, "share must be a scalar of mean's type", share=share)
        return x, variance

    def kernel(self, x: np.ndarray, *channels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y, *_, inverse = BatchNorm(False, self.epsilon).kernel(x, *channels[:4])
        return y, inverse

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, scale, _, mean, *_ = inputs
        direct, dscale, dbias = BatchNormGrad(False, self.epsilon)(douts[0], x, scale, mean, outputs[1])
        dx = partial(self._input_gradient, inputs, outputs[1], direct, (dscale, dbias))
        return dx, dscale, dbias, None, None, None

    def _input_gradient(
        self, inputs: Sequence[Value], inverse: Value, direct: Value, sums: tuple[Value, Value]
    ) -> Value:
        """`direct` is the gradient with fixed statistics, `sums` are this rank's gradients of scale and bias."""
        x, scale, _, mean, _, share = inputs
        step, shape = current(), (1, -1, 1, 1) if x.ndim == 4 else (1, -1)
        with step.use_precision(None):
            dscale, dbias = AllReduce()(*sums)
            slope = scale * inverse * share
            along, shift = (Reshape()(values, shape) for values in (slope * inverse * dscale, slope * dbias))
            centred = step.with_dtype(x, mean.dtype) - Reshape()(mean, shape)
            return step.with_dtype(step.with_dtype(direct, mean.dtype) - centred * along - shift, x.dtype)

    def lower(
        self,
        b: Builder,
        x: str,
        scale: str,
        bias: str,
        mean: str,
        variance: str,
        share: str,
        layout: Layout = PLAIN,
    ) -> tuple[str, str]:
        """Not the BatchNormalization of ONNX, which cancels digits of a mean far from 0."""
        inverse = inverse_deviation(b, x, variance, self.epsilon)
        centred = b.node("Sub", (x, _per_channel(b, mean, x, layout)))
        y = b.node("Mul", (centred, _per_channel(b, b.node("Mul", (scale, inverse)), x, layout)))
        return b.node("Add", (y, _per_channel(b, bias, x, layout))), inverse

    def lowerings(self, x: TensorType, *channels: TensorType) -> Sequence[Lowering]:
        last = Lowering("rows", partial(self.lower, layout=LAST), (LAST,), (LAST,))
        return last, Lowering("plain", self.lower, penalty=x.size)


def _channel_axis(layout: Layout) -> int:
    return 0 if layout is LAST else 1


def _per_channel(b: Builder, channels: str, x: str, layout: Layout) -> str:
    """(C,) reshaped to broadcast against x in a layout."""
    shape = [1] * b.type(x).ndim
    shape[_channel_axis(layout)] = b.type(x).shape[1]
    return b.reshape(channels, shape)

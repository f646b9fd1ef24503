"""Layers of r1.2 that only its scripts use, with its signatures and defaults.

Convolutions over three axes; normalization of each sample, and layers combined with batch normalization; embeddings;
LSTM and any layer at every step of a sequence; cells that return gradients, for training loops of a script.
"""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from runner import dtype as dt, ops
from runner.common.initializer import Initial, Uniform, initializer
from runner.core.operators import Primitive
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.mindspore.nn.math import ClipByNorm
from runner.nn.basic import Dense, Dropout, LeakyReLU, activation_of
from runner.nn.cell import Cell
from runner.nn.convolution import Conv2d
from runner.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNormalization
from runner.ops.array import require
from runner.ops.composite import assign
from runner.ops.convolution.conv import convolve, convolve_back
from runner.ops.convolution.windows import Pair, Quad, Windows
from runner.types import Shape, resolve_axes
from runner.validation.arguments import above, at_least, at_most, flag, one_of, whole

Triple = tuple[int, int, int]
Sides = tuple[int, int, int, int, int, int]  # head, tail, top, bottom, left, right
MODES = "same", "valid", "pad"


class _Convolution3d(Cell):
    """Base of both layers."""

    # The printed form of MindSpore, with its commas and spaces.
    shown: ClassVar = (
        "input_channels={in_channels}, output_channels={out_channels}, kernel_size={kernel_size},"
        "stride={stride},  pad_mode={pad_mode}, padding={padding}, dilation={dilation}, group={group}, "
        "has_bias={has_bias},weight_init={weight_init}, bias_init={bias_init}"
    )

    def _create(self, has_bias: bool, weight_init: Initial, bias_init: Initial, **geometry: Any) -> None:
        """Set the geometry and create the parameters. Raises ConfigError for invalid numbers."""
        where = {"layer": type(self).__name__}
        names = "in_channels", "out_channels", "group"
        whole(where, 1, **{name: geometry[name] for name in names})
        one_of(where, MODES, pad_mode=geometry["pad_mode"])
        one_of(where, ("NCDHW",), data_format=geometry["data_format"])
        for name in ("in_channels", "out_channels"):
            if geometry[name] % geometry["group"]:
                rows = {**where, name: geometry[name], "group": geometry["group"]}
                raise ConfigError(f"group must divide {name}", **rows)
        if geometry["pad_mode"] != "pad" and geometry["padding"] not in (0, (0,) * 6):
            raise ConfigError("padding needs pad_mode='pad'", **where, padding=repr(geometry["padding"]))
        self.in_channels, self.out_channels, self.group = (int(geometry[name]) for name in names)
        window = [self._numbers(name, geometry[name], 3, 1) for name in ("kernel_size", "stride", "dilation")]
        self.kernel_size, self.stride, self.dilation = window
        self.pad_mode, self.padding, self.format = (geometry[k] for k in ("pad_mode", "padding", "data_format"))
        self._sides = self._numbers("padding", self.padding, 6, 0)
        self.weight_init, self.bias_init = (
            Tensor(init) if isinstance(init, Parameter) else init for init in (weight_init, bias_init)
        )
        self.has_bias = has_bias
        self.weight = Parameter(initializer(weight_init, (*self._channels(), *self.kernel_size)), "weight")
        self.bias = Parameter(initializer(bias_init, (self.out_channels,)), "bias") if has_bias else None

    def _numbers(self, name: str, given: Any, count: int, least: int) -> tuple[int, ...]:
        """One int for all axes, or one for each."""
        numbers = (given,) * count if isinstance(given, int) else tuple(given)
        if len(numbers) != count or any(type(n) is not int or n < least for n in numbers):
            allowed = f"an int of at least {least}, or {count} of them"
            raise ConfigError(f"{name} does not fit", layer=type(self).__name__, given=repr(given), allowed=allowed)
        return numbers

    def _channels(self) -> Shape:
        """The first two axes of the weight."""
        raise NotImplementedError

    def _planes(self) -> dict[str, Any]:
        """The attributes of the convolution of images, with numpy's axes height and width."""
        return {
            "kernel_size": self.kernel_size[1:],
            "pad_mode": self.pad_mode,
            "pad": self._sides[2:],
            "stride": self.stride[1:],
            "dilation": self.dilation[1:],
            "group": self.group,
        }

    def _along_depth(self, depth: int) -> Windows:
        """The windows along the depth, of an image of this height and width 1."""
        pad = (self._sides[0], self._sides[1], 0, 0)
        one = [(numbers[0], 1) for numbers in (self.kernel_size, self.stride, self.dilation)]
        return Windows.resolve((depth, 1), one[0], one[1], self.pad_mode, pad, one[2])

    def _biased(self, output: Value) -> Value:
        return output if self.bias is None else output + ops.Reshape()(self.bias, (self.out_channels, 1, 1, 1))

    def _require_five_axes(self, x: Value) -> None:
        fits = x.ndim == 5 and x.shape[1] == self.in_channels
        require(fits, f"{type(self).__name__} needs floats (N, {self.in_channels}, D, H, W)", x=x.type)

    def extend_repr(self) -> str:
        return self.shown.format(**self.__dict__)


class Conv3d(_Convolution3d):
    """Convolution of (N, in_channels, D, H, W), with the padding modes of Conv2d.

    `padding` is an int, or head, tail, top, bottom, left, right. weight: (out_channels, in_channels/group, KD, KH, KW).
    """

    shown: ClassVar = _Convolution3d.shown.replace("},weight", "}weight") + ", format={format}"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple,
        stride: int | Triple = 1,
        pad_mode: str = "same",
        padding: int | Sides = 0,
        dilation: int | Triple = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        data_format: str = "NCDHW",
    ) -> None:
        super().__init__()
        channels = {"in_channels": in_channels, "out_channels": out_channels, "group": group}
        window = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
        edge = {"pad_mode": pad_mode, "padding": padding, "data_format": data_format}
        self._create(has_bias, weight_init, bias_init, **channels, **window, **edge)
        self.conv2d = ops.Conv2D(out_channels, **self._planes())

    def _channels(self) -> Shape:
        return self.out_channels, self.in_channels // self.group

    def construct(self, x: Value) -> Value:
        self._require_five_axes(x)
        return self._biased(convolve(x, self.weight, self.conv2d, self._along_depth(x.shape[2])))


class Conv3dTranspose(_Convolution3d):
    """Transposed convolution of (N, in_channels, D, H, W): the gradient of Conv3d with respect to its input.

    Sizes as of Conv2dTranspose; `output_padding`, with `pad_mode='pad'`, adds rows at the end, fewer than the stride.
    weight: (in_channels, out_channels/group, KD, KH, KW).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple,
        stride: int | Triple = 1,
        pad_mode: str = "same",
        padding: int | Sides = 0,
        dilation: int | Triple = 1,
        group: int = 1,
        output_padding: int | Triple = 0,
        has_bias: bool = False,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        data_format: str = "NCDHW",
    ) -> None:
        super().__init__()
        channels = {"in_channels": in_channels, "out_channels": out_channels, "group": group}
        window = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
        edge = {"pad_mode": pad_mode, "padding": padding, "data_format": data_format}
        self._create(has_bias, weight_init, bias_init, **channels, **window, **edge)
        self.output_padding = self._numbers("output_padding", output_padding, 3, 0)
        if any(self.output_padding) and pad_mode != "pad":
            raise ConfigError("output_padding needs pad_mode='pad'", layer="Conv3dTranspose", given=output_padding)

    def _channels(self) -> Shape:
        return self.in_channels, self.out_channels // self.group

    def construct(self, x: Value) -> Value:
        self._require_five_axes(x)
        batch, depth = x.shape[0], x.shape[2]
        out, *size = (self._length(x.shape[2 + axis], axis) for axis in range(3))
        require(min(out, *size) >= 1, "Conv3dTranspose: the padding leaves no result", x=x.type, result=(out, *size))
        planes = ops.Conv2DBackpropInput(
            self.in_channels, **self._planes(), input_size=(batch * depth, self.out_channels, *size)
        )
        return self._biased(convolve_back(x, self.weight, planes, self._along_depth(out)))

    def _length(self, length: int, axis: int) -> int:
        """Length of an axis of the result: the smallest whose convolution has the length of x, and what is added."""
        stride, extent = self.stride[axis], self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
        if self.pad_mode == "same":
            return length * stride
        if self.pad_mode == "valid":
            return length * stride + max(extent - stride, 0)
        return length * stride + extent - stride - sum(self._sides[2 * axis : 2 * axis + 2]) + self.output_padding[axis]


# Normalisation of each sample by itself, and convolution or Dense layers combined with batch normalisation.

# Each sample by itself: over groups of channels, and over single channels.


class _PerSample(Cell):
    """Base: x (N, C, H, W) normalised by mean and biased variance of groups of channels, for each sample.

    gamma and beta: one number for each channel, trained if `affine`.
    """

    def _create(
        self, groups: int, channels: int, eps: float, affine: bool, gamma_init: Initial, beta_init: Initial
    ) -> None:
        where = {"layer": type(self).__name__}
        above(where, 0.0, eps=eps)
        flag(where, affine=affine)
        self._groups, self._channels, self.eps = groups, channels, eps
        self.gamma = Parameter(initializer(gamma_init, (channels,)), "gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, (channels,)), "beta", requires_grad=affine)
        self.reshape, self.mean = ops.Reshape(), ops.ReduceMean(True, 2)
        self.square, self.sqrt = ops.Square(), ops.Sqrt()

    def _centred(self, grouped: Value) -> tuple[Value, Value]:
        """The elements less their mean, and their variance."""
        centred = grouped - self.mean(grouped)
        return centred, self.mean(self.square(centred))

    def construct(self, x: Value) -> Value:
        fits = x.ndim == 4 and x.shape[1] == self._channels
        require(fits, f"{type(self).__name__} takes (N, {self._channels}, H, W)", x=x.type)
        grouped = self.reshape(x, (x.shape[0], self._groups, -1))
        centred, variance = self._centred(grouped)
        normal = centred / self.sqrt(variance + self.eps)
        each: Shape = (self._channels, 1, 1)
        return self.reshape(normal, x.shape) * self.reshape(self.gamma, each) + self.reshape(self.beta, each)


class GroupNorm(_PerSample):
    """Group normalisation (Wu and He, 2018) of (N, num_channels, H, W) in `num_groups` groups of channels."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        gamma_init: Initial = "ones",
        beta_init: Initial = "zeros",
    ) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            where = {"layer": "GroupNorm", "num_groups": num_groups, "num_channels": num_channels}
            raise ConfigError("num_groups must divide num_channels", **where)
        self.num_groups, self.num_channels = num_groups, num_channels
        self._create(num_groups, num_channels, eps, affine, gamma_init, beta_init)

    def extend_repr(self) -> str:
        return f"num_groups={self.num_groups}, num_channels={self.num_channels}"


class InstanceNorm2d(_PerSample):
    """Instance normalisation (Ulyanov and others, 2016) of (N, num_features, H, W), in training and inference.

    The parameters `mean` and `variance` are those of MindSpore's checkpoints. They are read without
    `use_batch_statistics` only, and keep their values: `momentum` has no effect.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        gamma_init: Initial = "ones",
        beta_init: Initial = "zeros",
        moving_mean_init: Initial = "zeros",
        moving_var_init: Initial = "ones",
        use_batch_statistics: bool = True,
    ) -> None:
        super().__init__()
        where = {"layer": type(self).__name__}
        whole(where, 1, num_features=num_features)
        flag(where, use_batch_statistics=use_batch_statistics)
        at_least(where, 0.0, momentum=momentum)
        at_most(where, 1.0, momentum=momentum)
        self.num_features, self.momentum, self.use_batch_statistics = num_features, momentum, use_batch_statistics
        self.moving_mean = Parameter(initializer(moving_mean_init, (num_features,)), "mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(moving_var_init, (num_features,)), "variance", requires_grad=False)
        self._create(num_features, num_features, eps, affine, gamma_init, beta_init)

    def _centred(self, grouped: Value) -> tuple[Value, Value]:
        if self.use_batch_statistics:
            return super()._centred(grouped)
        each: Shape = (self.num_features, 1)
        return grouped - self.reshape(self.moving_mean, each), self.reshape(self.moving_variance, each)

    def extend_repr(self) -> str:
        names = "num_features", "eps", "momentum", "gamma", "beta", "moving_mean", "moving_variance"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


# A layer with batch normalisation and an activation, as MindSpore combines them.


class _Combined(Cell):
    """Base: what follows the layer; `normalization` is None without `has_bn`."""

    def _follow(
        self,
        normalization: BatchNormalization | None,
        activation: str | Cell | Primitive | None,
        alpha: float,
        after_fake: bool,
    ) -> None:
        flag({"layer": type(self).__name__}, after_fake=after_fake)
        self.has_bn, self.has_act = normalization is not None, activation is not None
        self.after_fake = after_fake  # of quantization-aware training, which does not exist here
        if normalization is not None:
            self.batchnorm = normalization
        self.activation = LeakyReLU(alpha) if activation == "leakyrelu" else activation_of(self, activation)

    def _followed(self, x: Value) -> Value:
        if self.has_bn:
            x = self.batchnorm(x)
        return self.activation(x) if self.activation is not None else x


class Conv2dBnAct(_Combined):
    """`Conv2d`, then with `has_bn` a `BatchNorm2d`, then `activation`: a name, a layer, an operator or None.

    `alpha` is the slope of `leakyrelu`; `after_fake` has no effect.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        pad_mode: str = "same",
        padding: int | Quad = 0,
        dilation: int | Pair = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        has_bn: bool = False,
        momentum: float = 0.997,
        eps: float = 1e-5,
        activation: str | Cell | Primitive | None = None,
        alpha: float = 0.2,
        after_fake: bool = True,
    ) -> None:
        super().__init__()
        flag({"layer": type(self).__name__}, has_bn=has_bn)
        window = kernel_size, stride, pad_mode, padding, dilation, group
        self.conv = Conv2d(in_channels, out_channels, *window, has_bias, weight_init, bias_init)
        self._follow(BatchNorm2d(out_channels, eps, momentum) if has_bn else None, activation, alpha, after_fake)

    def construct(self, x: Value) -> Value:
        return self._followed(self.conv(x))


class DenseBnAct(_Combined):
    """`Dense`, then with `has_bn` a `BatchNorm1d`, then `activation`, as in `Conv2dBnAct`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        has_bias: bool = True,
        has_bn: bool = False,
        momentum: float = 0.9,
        eps: float = 1e-5,
        activation: str | Cell | Primitive | None = None,
        alpha: float = 0.2,
        after_fake: bool = True,
    ) -> None:
        super().__init__()
        flag({"layer": type(self).__name__}, has_bn=has_bn)
        self.dense = Dense(in_channels, out_channels, weight_init, bias_init, has_bias)
        self._follow(BatchNorm1d(out_channels, eps, momentum) if has_bn else None, activation, alpha, after_fake)

    def construct(self, x: Value) -> Value:
        return self._followed(self.dense(x))


# Embeddings: rows of a trained table, with the signatures and defaults of r1.2.


class Embedding(Cell):
    """Rows of a table: ids of any shape (Int32 or Int64, 0 to vocab_size - 1) to (*ids.shape, embedding_size).

    embedding_table: (vocab_size, embedding_size), given by values or an initializer; the row `padding_idx` starts as
    zeros. `use_one_hot` multiplies one-hot vectors by the table instead of gathering rows.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        use_one_hot: bool = False,
        embedding_table: Initial = "normal",
        dtype: dt.DType = dt.float32,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, vocab_size=vocab_size, embedding_size=embedding_size)
        flag({"layer": "Embedding"}, use_one_hot=use_one_hot)
        self.vocab_size, self.embedding_size, self.use_one_hot = vocab_size, embedding_size, use_one_hot
        self.dtype, self.padding_idx = dtype, padding_idx
        table = initializer(embedding_table, (vocab_size, embedding_size), dtype)
        if padding_idx is not None:
            table = self._with_zero_row(table, padding_idx)
        self.embedding_table = Parameter(table, "embedding_table")
        self.gather, self.reshape = ops.Gather(), ops.Reshape()
        self.one_hot, self.matmul = ops.OneHot(depth=vocab_size, dtype=dtype), ops.MatMul()

    def construct(self, ids: Value) -> Value:
        if not self.use_one_hot:
            return self.gather(self.embedding_table, ids)
        hot = self.reshape(self.one_hot(ids), (-1, self.vocab_size))
        output = self.reshape(self.matmul(hot, self.embedding_table), (*ids.shape, self.embedding_size))
        return output

    def _with_zero_row(self, table: Tensor, row: int) -> Tensor:
        if type(row) is not int or not 0 <= row < self.vocab_size:
            raise ConfigError(
                "padding_idx must be a row of the table", layer="Embedding", given=repr(row), rows=self.vocab_size
            )
        values = table.asnumpy().copy()
        values[row] = 0
        return Tensor(values)

    def extend_repr(self) -> str:
        names = "vocab_size", "embedding_size", "use_one_hot", "embedding_table", "dtype", "padding_idx"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class EmbeddingLookup(Cell):
    """Rows of a table, without the options of `Embedding`; rows longer than `max_norm` are shortened to it.

    `target` (CPU or DEVICE), `slice_mode`, `manual_shapes`, `sparse` and `vocab_cache_size` say where MindSpore
    keeps the table and how it is distributed; they are checked, and the table is one parameter here.
    """

    BATCH_SLICE = "batch_slice"
    FIELD_SLICE = "field_slice"
    TABLE_ROW_SLICE = "table_row_slice"
    TABLE_COLUMN_SLICE = "table_column_slice"

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        param_init: Initial = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        manual_shapes: tuple[int, ...] | None = None,
        max_norm: float | None = None,
        sparse: bool = True,
        vocab_cache_size: int = 0,
    ) -> None:
        super().__init__()
        where = {"layer": type(self).__name__}
        whole(where, 1, vocab_size=vocab_size, embedding_size=embedding_size)
        whole(where, 0, vocab_cache_size=vocab_cache_size)
        one_of(where, ("CPU", "DEVICE"), target=target)
        slices = self.BATCH_SLICE, self.FIELD_SLICE, self.TABLE_ROW_SLICE, self.TABLE_COLUMN_SLICE
        one_of(where, slices, slice_mode=slice_mode)
        flag(where, sparse=sparse)
        if max_norm is not None:
            above(where, 0.0, max_norm=max_norm)
        self.vocab_size, self.embedding_size, self.max_norm = vocab_size, embedding_size, max_norm
        self.target, self.manual_shapes = target, manual_shapes
        self.embedding_table = Parameter(initializer(param_init, (vocab_size, embedding_size)), "embedding_table")
        self.gather = ops.Gather()

    def construct(self, indices: Value) -> Value:
        rows: Value = self.gather(self.embedding_table, indices)
        if self.max_norm is None:
            return rows
        result: Value = ClipByNorm(rows.ndim - 1)(rows, Tensor(self.max_norm, dt.float32))
        return result


class MultiFieldEmbeddingLookup(EmbeddingLookup):
    """Rows times weights, combined by field: indices, weights and field numbers (N, L) to (N, field_size, E).

    `operator` is SUM, MEAN (weighted by the absolute weights) or MAX. Elements of weight 0 do not count; a field
    without others is 0. `feature_num_list` is checked as little as in MindSpore.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        field_size: int,
        param_init: Initial = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        feature_num_list: tuple[int, ...] | None = None,
        max_norm: float | None = None,
        sparse: bool = True,
        operator: str = "SUM",
    ) -> None:
        where = slice_mode, feature_num_list, max_norm, sparse
        super().__init__(vocab_size, embedding_size, param_init, target, *where)
        whole({"layer": type(self).__name__}, 1, field_size=field_size)
        one_of({"layer": type(self).__name__}, ("SUM", "MEAN", "MAX"), operator=operator)
        self.field_size, self.operator = field_size, operator
        self.hot = ops.OneHot(depth=field_size)
        self.product, self.select, self.largest = ops.BatchMatMul(transpose_a=True), ops.Select(), ops.ReduceMax(axis=1)

    def construct(self, input_indices: Value, input_values: Value, field_ids: Value) -> Value:  # type: ignore[override]
        shapes = {"input_indices": input_indices, "input_values": input_values, "field_ids": field_ids}
        fits = input_indices.ndim == 2 and len({x.shape for x in shapes.values()}) == 1
        require(fits, f"{type(self).__name__} needs three (N, L)", **{name: x.type for name, x in shapes.items()})
        rows = super().construct(input_indices) * input_values[:, :, None]
        field = self.hot(field_ids)  # (N, L, F)
        weight = self.product(field, ops.Abs()(input_values)[:, :, None])  # (N, F, 1)
        if self.operator == "MAX":
            lowest, counts = Tensor(np.float32(-np.inf)), (field * input_values[:, :, None])[:, :, :, None] != 0.0
            total = self.largest(self.select(counts, rows[:, :, None, :], lowest))
        else:
            total = self.product(field, rows)
        if self.operator == "MEAN":
            total = total / self.select(weight > 0.0, weight, Tensor(1.0, dt.float32))
        return self.select(weight > 0.0, total, Tensor(0.0, dt.float32))


# Layers of sequences: LSTM (Hochreiter and Schmidhuber, 1997), unrolled over the steps, and any layer at every step.
#
# All weights of an LSTM are one parameter, as on GPUs in MindSpore: for each layer and direction the matrices of
# the input (4 H, I) and of the state (4 H, H), then for each of them again both biases (4 H). The gates are in the
# order input, forget, candidate, output.


class Sizes(NamedTuple):
    """The numbers that determine the weights; `directions` is 2 for a bidirectional layer."""

    inputs: int
    hidden: int
    layers: int
    directions: int
    has_bias: bool

    def matrices(self) -> list[tuple[Shape, Shape]]:
        """The shapes of both matrices, for each layer and direction."""
        wide = [self.inputs] + [self.hidden * self.directions] * (self.layers - 1)
        rows = 4 * self.hidden
        return [((rows, columns), (rows, self.hidden)) for columns in wide for _ in range(self.directions)]

    def weights(self) -> int:
        """The number of all weights."""
        biases = 8 * self.hidden * self.layers * self.directions if self.has_bias else 0
        return sum(math.prod(shape) for both in self.matrices() for shape in both) + biases


def run_layers(x: Value, h: Value, c: Value, weight: Value, sizes: Sizes, between: Cell | None) -> tuple[Value, ...]:
    """Outputs (T, N, directions * H), and the last states (layers * directions, N, H) of all layers.

    `between` is applied to the outputs of every layer but the last one.
    """
    state = (sizes.layers * sizes.directions, x.shape[1], sizes.hidden)
    fits = x.ndim == 3 and x.shape[2] == sizes.inputs and h.shape == c.shape == state
    expected = f"x (T, N, {sizes.inputs}), h and c {state}"
    require(fits, "the operands of the LSTM do not match", x=x.type, h=h.type, c=c.type, expected=expected)
    require(weight.size == sizes.weights(), "another number of weights", weight=weight.type, expected=sizes.weights())
    parts, lasts = _parts(weight, sizes), list[tuple[Value, Value]]()
    for layer in range(sizes.layers):
        sides = []
        for direction in range(sizes.directions):
            k = layer * sizes.directions + direction
            steps, last = _run_direction(x, h[k], c[k], parts[k], backwards=direction == 1)
            sides.append(ops.Stack(0)(steps))
            lasts.append(last)
        x = sides[0] if len(sides) == 1 else ops.Concat(2)(sides)
        if between is not None and layer < sizes.layers - 1:
            x = between(x)
    hidden, cells = zip(*lasts, strict=True)
    return x, ops.Stack(0)(hidden), ops.Stack(0)(cells)


def _parts(weight: Value, sizes: Sizes) -> list[list[Value]]:
    """For each layer and direction both matrices and, with biases, the sum of both biases."""
    flat, start, shapes = ops.Reshape()(weight, (-1,)), 0, sizes.matrices()
    parts = []
    for both in shapes:
        ends = start + math.prod(both[0]), start + math.prod(both[0]) + math.prod(both[1])
        pieces = flat[start : ends[0]], flat[ends[0] : ends[1]]
        parts.append([ops.Reshape()(piece, shape) for piece, shape in zip(pieces, both, strict=True)])
        start = ends[1]
    if sizes.has_bias:
        rows = 4 * sizes.hidden
        for k, part in enumerate(parts):
            first = start + 2 * k * rows
            part.append(flat[first : first + rows] + flat[first + rows : first + 2 * rows])
    return parts


def _run_direction(
    x: Value, h: Value, c: Value, parts: list[Value], backwards: bool
) -> tuple[list[Value], tuple[Value, Value]]:
    """The output of every step, in the order of the sequence, and the last state."""
    steps, batch, columns = x.shape
    product, rows = ops.MatMul(transpose_b=True), parts[0].shape[0]
    given = product(ops.Reshape()(x, (steps * batch, columns)), parts[0])  # of all steps at once
    given = given + parts[2] if len(parts) > 2 else given
    of_steps = ops.Unstack(0)(ops.Reshape()(given, (steps, batch, rows)))
    split, sigmoid, tanh = ops.Split(1, 4), ops.Sigmoid(), ops.Tanh()
    outputs = []
    for step in reversed(range(steps)) if backwards else range(steps):
        enter, forget, candidate, leave = split(of_steps[step] + product(h, parts[1]))
        c = sigmoid(forget) * c + sigmoid(enter) * tanh(candidate)
        h = sigmoid(leave) * tanh(c)
        outputs.append(h)
    return outputs[::-1] if backwards else outputs, (h, c)


class _Recurrent(Cell):
    """Base of LSTM and LSTMCell."""

    def __init__(
        self,
        sizes: Sizes,
        batch_first: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        where = {"layer": type(self).__name__}
        whole(where, 1, input_size=sizes.inputs, hidden_size=sizes.hidden, num_layers=sizes.layers)
        flag(where, has_bias=sizes.has_bias, batch_first=batch_first)
        at_least(where, 0.0, dropout=dropout)
        at_most(where, 1.0, dropout=dropout)
        self.sizes, self.batch_first, self.dropout = sizes, batch_first, dropout
        self.transpose = ops.Transpose()

    def _turned(self, x: Value) -> Value:
        return self.transpose(x, (1, 0, 2)) if self.batch_first and x.ndim == 3 else x


class LSTM(_Recurrent):
    """Stacked LSTM layers: x (T, N, input_size) and the states (h, c) to (outputs, (h, c)).

    With `batch_first` x and the outputs are (N, T, ...). The states are (num_layers * directions, N, hidden_size), and
    outputs have directions * hidden_size columns. `dropout` is the share of elements that is dropped between layers in
    training. The parameter `weight` (n, 1, 1) has all weights in the order that the head of this file shows.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        has_bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
    ) -> None:
        flag({"layer": type(self).__name__}, bidirectional=bidirectional)
        sizes = Sizes(input_size, hidden_size, num_layers, 2 if bidirectional else 1, has_bias)
        super().__init__(sizes, batch_first, dropout)
        self.num_layers, self.bidirectional = num_layers, bidirectional
        uniform = Uniform(1.0 / math.sqrt(hidden_size))
        self.weight = Parameter(initializer(uniform, (sizes.weights(), 1, 1)), "weight")
        self.between: Cell | None = None
        if dropout and num_layers > 1:
            self.between = Dropout(1.0 - dropout) if dropout < 1 else _Zeros()

    def construct(self, x: Value, hx: tuple[Value, Value]) -> tuple[Value, tuple[Value, Value]]:
        output, h, c = run_layers(self._turned(x), *hx, self.weight, self.sizes, self.between)
        return self._turned(output), (h, c)


class LSTMCell(_Recurrent):
    """One LSTM layer whose weights are an operand: (x, h, c, w) to (outputs, h, c, reserve, state).

    The last two results are zeros of shape (1,), which MindSpore's kernels use between their passes. As there,
    `dropout` has no effect on a single layer.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        has_bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
    ) -> None:
        flag({"layer": type(self).__name__}, bidirectional=bidirectional)
        super().__init__(Sizes(input_size, hidden_size, 1, 2 if bidirectional else 1, has_bias), batch_first, dropout)
        self.zeros_like = ops.ZerosLike()

    def construct(self, x: Value, h: Value, c: Value, w: Value) -> tuple[Value, ...]:
        output, h, c = run_layers(self._turned(x), h, c, w, self.sizes, None)
        reserved = self.zeros_like(w[0, 0, :1])
        return self._turned(output), h, c, reserved, reserved


class _Zeros(Cell):
    """Drops everything in training."""

    def construct(self, x: Value) -> Value:
        return ops.ZerosLike()(x) if self.training else x


# A layer applied to every step of a sequence.


class TimeDistributed(Cell):
    """`layer` applied to every slice of x along `time_axis`; x has at least three axes.

    With `reshape_with_axis`, usually the axis of samples, both axes become one, and the layer is applied once; in
    the result the axis of time stays beside the other one. A layer that looks at whole batches, such as BatchNorm,
    needs the slices. Raises ConfigError for a layer that is none.
    """

    def __init__(self, layer: Cell | Primitive, time_axis: int, reshape_with_axis: int | None = None) -> None:
        super().__init__()
        if not isinstance(layer, Cell | Primitive):
            raise ConfigError("TimeDistributed takes a layer or an operator", given=repr(layer))
        whole({"layer": "TimeDistributed"}, -(2**31), time_axis=time_axis)
        self.layer, self.time_axis, self.reshape_with_axis = layer, time_axis, reshape_with_axis
        self.transpose, self.reshape = ops.Transpose(), ops.Reshape()

    def construct(self, inputs: Value) -> Value:
        require(inputs.ndim >= 3, "TimeDistributed needs at least three axes", inputs=inputs.type)
        (time,) = resolve_axes(self.time_axis, inputs.ndim)
        if self.reshape_with_axis is None:
            steps = ops.Unstack(time)(inputs)
            steps = steps if isinstance(steps, tuple) else (steps,)
            return ops.Stack(time)([self.layer(step) for step in steps])
        (other,) = resolve_axes(self.reshape_with_axis, inputs.ndim)
        require(other != time, "reshape_with_axis is the axis of time", inputs=inputs.type, time_axis=time)
        # The axis of time moves beside the other one, and both become one axis, at `place`.
        rest = [axis for axis in range(inputs.ndim) if axis != time]
        place = rest.index(other)
        rest.insert(place + (time > other), time)
        moved = self.transpose(inputs, tuple(rest))
        lead, both, tail = moved.shape[:place], moved.shape[place : place + 2], moved.shape[place + 2 :]
        made = self.layer(self.reshape(moved, (*lead, both[0] * both[1], *tail)))
        fits = made.ndim > place and made.shape[place] == both[0] * both[1]
        require(fits, "the layer changes the axis of time and samples", output=made.type, axis=place)
        output = self.reshape(made, (*made.shape[:place], *both, *made.shape[place + 1 :]))
        return output


# Cells that return gradients, for training loops that are not `Model.train`.


class ForwardValueAndGrad(Cell):
    """Inputs of a network to its result and gradients, which `ops.GradOperation` describes.

    `weights` are the parameters of `get_by_list` (default: the trainable ones of the network). With `sens_param` the
    last input is the factor of the result, of its shape. Source: the cell of this name in r1.2.
    """

    def __init__(
        self,
        network: Cell,
        weights: Any = None,
        get_all: bool = False,
        get_by_list: bool = False,
        sens_param: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if not callable(network):
            raise ConfigError("ForwardValueAndGrad needs a network", given=type(network).__name__)
        flag({"cell": "ForwardValueAndGrad"}, get_all=get_all, get_by_list=get_by_list, sens_param=sens_param)
        self.network, self.weights = network, weights
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param
        self.grad = ops.GradOperation(get_all=get_all, get_by_list=get_by_list, sens_param=sens_param)

    def construct(self, *inputs: Any) -> tuple[Any, Any]:
        loss = self.network(*(inputs[:-1] if self.sens_param else inputs))
        return loss, self.grad(self.network, self.weights)(*inputs)


class WithGradCell(Cell):
    """Inputs, and with a `loss_fn` the label as the last one, to the gradients of the trainable parameters.

    `sens` is the factor of the result: a tensor of its shape, or a number. Source: the cell of this name in r1.2.
    """

    def __init__(self, network: Cell, loss_fn: Cell | None = None, sens: Any = None) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss_fn, self.sens = network, loss_fn, sens
        self.weights = tuple(network.trainable_params())
        self.grad = ops.GradOperation(get_by_list=True, sens_param=sens is not None)

    def construct(self, *inputs: Any) -> Any:
        differentiated = self.network if self.loss_fn is None else self._loss
        sens = () if self.sens is None else (self.sens,)
        return self.grad(differentiated, self.weights)(*inputs, *sens)

    def _loss(self, *inputs: Any) -> Value:
        assert self.loss_fn is not None
        *data, label = inputs
        result: Value = self.loss_fn(self.network(*data), label)
        return result


class ParameterUpdate(Cell):
    """Assigns a parameter the operand, a tensor of its shape and type, and returns it. Source: r1.2."""

    def __init__(self, param: Parameter) -> None:
        super().__init__(auto_prefix=False)
        if not isinstance(param, Parameter):
            raise ConfigError("ParameterUpdate needs a Parameter", given=type(param).__name__)
        self._param = param

    def construct(self, x: Any) -> Value:
        return assign(self._param, x)

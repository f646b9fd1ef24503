"""Layers, with the signatures and defaults of r1.2 (spec section 8.2)."""

from typing import Any

from runner import dtype as dt
from runner import ops
from runner.common.initializer import Initializer, initializer
from runner.core.value import Parameter, Tensor, Value
from runner.errors import ConfigError, nearest
from runner.nn.cell import Cell
from runner.ops.window import Pair, Quad, pair, quad
from runner.seed import get_seed, next_number

Init = Initializer | Tensor | str | float


class Conv2d(Cell):
    """Convolution of (N, in_channels, H, W).

    `pad_mode` `same` keeps ceil(size / stride), with the odd row and column at bottom and right, `valid` pads nothing,
    `pad` pads by `padding` (an int, or top, bottom, left, right). weight: (out_channels, in_channels/group, KH, KW).
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
        weight_init: Init = "normal",
        bias_init: Init = "zeros",
    ) -> None:
        super().__init__()
        positive(self, in_channels=in_channels, out_channels=out_channels, group=group)
        if in_channels % group:
            raise ConfigError("group must divide in_channels", layer="Conv2d", in_channels=in_channels, group=group)
        self.conv2d = ops.Conv2D(
            out_channels,
            pair(kernel_size, "kernel_size"),
            1,
            pad_mode,
            quad(padding, "padding"),
            pair(stride, "stride"),
            pair(dilation, "dilation"),
            group,
        )
        shape = (out_channels, in_channels // group, *pair(kernel_size, "kernel_size"))
        self.weight = Parameter(initializer(weight_init, shape), "weight")
        self.has_bias = has_bias
        if has_bias:
            self.bias = Parameter(initializer(bias_init, (out_channels,)), "bias")
            self.bias_add = ops.BiasAdd()

    def construct(self, x: Value) -> Value:
        output: Value = self.conv2d(x, self.weight)
        if self.has_bias:
            output = self.bias_add(output, self.bias)
        return output


class Dense(Cell):
    """x W^T + b over the last axis; weight: (out_channels, in_channels)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Init = "normal",
        bias_init: Init = "zeros",
        has_bias: bool = True,
        activation: str | Cell | None = None,
    ) -> None:
        super().__init__()
        positive(self, in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        self.weight = Parameter(initializer(weight_init, (out_channels, in_channels)), "weight")
        self.matmul, self.reshape = ops.MatMul(transpose_b=True), ops.Reshape()
        if has_bias:
            self.bias = Parameter(initializer(bias_init, (out_channels,)), "bias")
            self.bias_add = ops.BiasAdd()
        self.activation = get_activation(activation) if isinstance(activation, str) else activation

    def construct(self, x: Value) -> Value:
        lead = x.shape[:-1]
        flat = x if x.ndim == 2 else self.reshape(x, (-1, x.shape[-1]))
        output: Value = self.matmul(flat, self.weight)
        if self.has_bias:
            output = self.bias_add(output, self.bias)
        if self.activation is not None:
            output = self.activation(output)
        return output if x.ndim == 2 else self.reshape(output, (*lead, self.out_channels))


class ReLU(Cell):
    """max(x, 0)."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = ops.ReLU()

    def construct(self, x: Value) -> Value:
        output: Value = self.relu(x)
        return output


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = ops.Sigmoid()

    def construct(self, x: Value) -> Value:
        output: Value = self.sigmoid(x)
        return output


class Tanh(Cell):
    """Hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__()
        self.tanh = ops.Tanh()

    def construct(self, x: Value) -> Value:
        output: Value = self.tanh(x)
        return output


class Softmax(Cell):
    """exp(x) / sum(exp(x)) along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.softmax = ops.Softmax(axis)

    def construct(self, x: Value) -> Value:
        output: Value = self.softmax(x)
        return output


class MaxPool2d(Cell):
    """Largest element of each window; `pad_mode` `valid` drops incomplete windows, `same` keeps ceil(size / stride)."""

    def __init__(self, kernel_size: int | Pair = 1, stride: int | Pair = 1, pad_mode: str = "valid") -> None:
        super().__init__()
        self.max_pool = ops.MaxPool(pair(kernel_size, "kernel_size"), pair(stride, "stride"), pad_mode)

    def construct(self, x: Value) -> Value:
        output: Value = self.max_pool(x)
        return output


class AvgPool2d(Cell):
    """Mean of each window, over what is not padding; `pad_mode` as in MaxPool2d."""

    def __init__(self, kernel_size: int | Pair = 1, stride: int | Pair = 1, pad_mode: str = "valid") -> None:
        super().__init__()
        self.avg_pool = ops.AvgPool(pair(kernel_size, "kernel_size"), pair(stride, "stride"), pad_mode)

    def construct(self, x: Value) -> Value:
        output: Value = self.avg_pool(x)
        return output


class Flatten(Cell):
    """(N, ...) to (N, everything else)."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = ops.Flatten()

    def construct(self, x: Value) -> Value:
        output: Value = self.flatten(x)
        return output


class Dropout(Cell):
    """While training, keeps each element with probability `keep_prob` and divides it by that; otherwise gives x.

    Both modes drop the same elements. The count of steps is the parameter `counter`: a resumed run goes on alike.
    """

    def __init__(self, keep_prob: float = 0.5) -> None:
        super().__init__()
        self.dropout = ops.Dropout(float(keep_prob), seed=(get_seed() * 1_000_003 + next_number()) % 2**31)
        self.counter = Parameter(Tensor(0, dt.int64), "counter", requires_grad=False)

    def construct(self, x: Value) -> Value:
        if not self.training or self.dropout.keep_prob == 1.0:
            return x
        output: Value = self.dropout(x, self.counter)[0]
        self.assign(self.counter, self.counter + 1)
        return output


class SequentialCell(Cell):
    """Cells one after the other; their attribute names are `0`, `1`, ..."""

    def __init__(self, *cells: Cell | list[Cell]) -> None:
        super().__init__()
        flat: list[Any] = list(cells[0]) if len(cells) == 1 and isinstance(cells[0], list | tuple) else list(cells)
        for number, cell in enumerate(flat):
            if not isinstance(cell, Cell):
                raise ConfigError("SequentialCell takes cells", given=repr(cell), at=number)
            setattr(self, str(number), cell)

    def construct(self, x: Value) -> Value:
        for cell in self.cells():
            x = cell(x)
        return x

    def __getitem__(self, number: int) -> Cell:
        return list(self.cells())[number]

    def __len__(self) -> int:
        return len(self.name_cells())


ACTIVATIONS: dict[str, type[Cell]] = {"relu": ReLU, "sigmoid": Sigmoid, "tanh": Tanh, "softmax": Softmax}


def get_activation(name: str) -> Cell:
    """An activation layer by name. Raises ConfigError for an unknown one."""
    if name.lower() not in ACTIVATIONS:
        close = nearest(name.lower(), ACTIVATIONS)
        raise ConfigError("unknown activation", given=name, allowed=", ".join(ACTIVATIONS), nearest=close)
    return ACTIVATIONS[name.lower()]()


def positive(cell: Cell, **arguments: int) -> None:
    """Raise ConfigError unless every argument is a positive int."""
    for name, value in arguments.items():
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} must be a positive int", layer=type(cell).__name__, given=repr(value))

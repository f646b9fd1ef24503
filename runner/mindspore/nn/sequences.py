"""Layers of sequences: LSTM (Hochreiter and Schmidhuber, 1997), unrolled over the steps, and any layer at every step.

All weights of an LSTM are one parameter, as on GPUs in the reference: for each layer and direction the matrices of the
input (4 H, I) and of the state (4 H, H), then for each of them again both biases (4 H). The gates are in the order
input, forget, candidate, output.
"""

import math
from typing import NamedTuple

from runner import ops
from runner.common.initializer import Uniform, initializer
from runner.core.operators import Primitive
from runner.core.values import Parameter, Value
from runner.errors import ConfigError
from runner.nn.basic import Dropout
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.types import Shape, resolve_axes
from runner.validation.arguments import at_least, at_most, flag, whole


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

    The last two results are zeros of shape (1,), which the reference's kernels use between their passes. As there,
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

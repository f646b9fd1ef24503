"""A layer applied to every step of a sequence."""

from runner import ops
from runner.core.primitive import Primitive
from runner.core.value import Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.types import resolve_axes
from runner.validation.arguments import whole

__all__ = ["TimeDistributed"]


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
            output: Value = ops.Stack(time)([self.layer(step) for step in steps])
            return output
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

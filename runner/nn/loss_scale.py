"""Loss scaling: gradients of Float16 vanish when they are small, so the loss is made larger, and they are put right.

A step whose gradients overflow is skipped inside the step itself, so in sinks too: everything that it would have
assigned keeps its value. Scale and counters are parameters: checkpoints and resumed runs carry them.

Ranks sum the scaled gradients and look at the sums, which have the same bits everywhere. What is not finite on one rank
makes the sum not finite, so all of them skip the step, and have the same scale and counters.
"""

from typing import Any

import numpy as np

from runner import ops
from runner.core.primitive import current
from runner.core.value import Parameter, Value
from runner.errors import TrainingError
from runner.nn.cell import Cell
from runner.nn.optim import Optimizer
from runner.nn.wrap import StepCell
from runner.validation.arguments import above, at_least, whole

LARGEST = 2.0**100  # a scale that grew on for ever would become infinite
MOST_BAD_STEPS = 1000  # in a row, as in the reference


class FixedLossScaleUpdateCell(Cell):
    """A loss scale that stays as it is. `loss_scale_value` is at least 1."""

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        at_least(self.where, 1.0, loss_scale_value=loss_scale_value)
        self.loss_scale_value = float(loss_scale_value)

    @property
    def where(self) -> dict[str, str]:
        """The row that names the cell in an error."""
        return {"cell": type(self).__name__}

    def construct(self, loss_scale: Value, finite: Value) -> Value:
        return loss_scale


class DynamicLossScaleUpdateCell(FixedLossScaleUpdateCell):
    """Divides the scale by `scale_factor` at an overflow (1 is the least), and multiplies it after `scale_window` good
    steps in a row."""

    def __init__(self, loss_scale_value: float, scale_factor: float, scale_window: int) -> None:
        super().__init__(loss_scale_value)
        above(self.where, 1.0, scale_factor=scale_factor)
        whole(self.where, 1, scale_window=scale_window)
        self.scale_factor, self.scale_window = float(scale_factor), scale_window
        self.good_steps = Parameter(np.zeros((), np.int32), "good_steps", requires_grad=False)
        self.select = ops.Select()

    def construct(self, loss_scale: Value, finite: Value) -> Value:
        good = self.select(finite, self.good_steps + 1, 0)
        grows = ops.GreaterEqual()(good, self.scale_window)
        self.assign(self.good_steps, self.select(grows, 0, good))
        larger = ops.Minimum()(loss_scale * self.scale_factor, LARGEST)
        smaller = ops.Maximum()(loss_scale * (1.0 / self.scale_factor), 1.0)
        chosen: Value = self.select(finite, self.select(grows, larger, loss_scale), smaller)
        return chosen


class TrainOneStepWithLossScaleCell(StepCell):
    """Forward, gradients of the scaled loss, update; gives the loss as it is. An overflow changes only the scale.

    `scale_sense` is a number, for a scale that stays, or a cell that makes the next scale (a scalar) of the scale and
    of a Bool that says whether all gradients were finite. Parameters: `scale_sense`, `overflow_steps` (how many steps
    were skipped), `bad_steps` (how many of them without a good one since).
    """

    def __init__(self, network: Cell, optimizer: Optimizer, scale_sense: FixedLossScaleUpdateCell | float) -> None:
        super().__init__(network, optimizer)
        if not isinstance(scale_sense, FixedLossScaleUpdateCell):
            scale_sense = FixedLossScaleUpdateCell(scale_sense)
        self.scale_update = scale_sense
        start = np.asarray(self.scale_update.loss_scale_value, np.float32)
        self.scale_sense = Parameter(start, "scale_sense", requires_grad=False)
        self.overflow_steps = Parameter(np.zeros((), np.int32), "overflow_steps", requires_grad=False)
        self.bad_steps = Parameter(np.zeros((), np.int32), "bad_steps", requires_grad=False)

    def construct(self, *inputs: Any) -> Value:
        loss: Value = self.network(*inputs)
        scaled = self.gradients(loss, self.scale_sense)
        with current().under(None):
            inverse = 1.0 / self.scale_sense
            gradients = [gradient * current().with_dtype(inverse, gradient.dtype) for gradient in scaled]
            self.optimizer(gradients)
            self.finish(self.all_finite(scaled))
            self.observe(gradients)
        return self.shared(loss)

    def all_finite(self, values: list[Value]) -> Value:
        """Whether all elements of all of them are finite numbers: a Bool scalar."""
        status = [current().with_dtype(ops.FloatStatus()(value), self.scale_sense.dtype) for value in values]
        finite: Value = ops.Equal()(ops.ReduceSum()(ops.Concat()(*status)), 0.0)
        return finite

    def finish(self, finite: Value) -> None:
        """Let everything that the step assigned so far hold only if it is finite; count, and set the next scale."""
        select, step = ops.Select(), current()
        for parameter, value in list(step.updates.items()):
            step.assign(parameter, select(finite, value, parameter))
        self.assign(self.overflow_steps, select(finite, self.overflow_steps, self.overflow_steps + 1))
        self.assign(self.bad_steps, select(finite, 0, self.bad_steps + 1))
        self.assign(self.scale_sense, self.scale_update(self.scale_sense, finite))

    def check(self) -> None:
        """Raise TrainingError when more than 1000 steps in a row overflew: no scale helps."""
        bad = int(self.bad_steps.data)
        if bad > MOST_BAD_STEPS:
            raise TrainingError(
                "gradients overflow in every step, whatever the loss scale",
                steps_in_a_row=bad,
                allowed=MOST_BAD_STEPS,
                loss_scale=float(self.scale_sense.data),
                repair="a smaller learning rate, or precision_mode=allow_fp32_to_fp16",
            )

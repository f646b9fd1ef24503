"""Loss scaling: small Float16 gradients underflow, so the loss is multiplied by a scale that gradients are divided by.

A step whose gradients overflow is skipped inside of the step itself, so also in sinks: everything that it would assign
keeps its value. Scale and counters are parameters, so checkpoints and resumed runs contain them.

Ranks test the sums of the scaled gradients, which have the same bits on all ranks. A value that is not finite on one
rank makes the sum not finite, so all ranks skip the step and have the same scale and counters.
"""

from typing import Any

import numpy as np

from runner import ops
from runner.core.operators import current
from runner.core.structure import map_values, values_of
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError, TrainingError
from runner.nn.cell import Cell
from runner.nn.optim.optimizer import Optimizer
from runner.nn.wrap import StepCell
from runner.validation.arguments import above, at_least, whole

__all__ = ["DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell", "TrainOneStepWithLossScaleCell"]

LARGEST = 2.0**100  # a scale without a limit would become infinite
MOST_BAD_STEPS = 1000  # consecutive ones, as in the reference


class FixedLossScaleUpdateCell(Cell):
    """A constant loss scale. `loss_scale_value` is at least 1."""

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        at_least(self.where, 1.0, loss_scale_value=loss_scale_value)
        self.loss_scale_value = float(loss_scale_value)

    @property
    def where(self) -> dict[str, str]:
        """The row that names the cell in an error."""
        return {"cell": type(self).__name__}

    def get_loss_scale(self) -> float:
        """The scale of the first step."""
        return self.loss_scale_value

    def construct(self, loss_scale: Value, finite: Value) -> Value:
        return loss_scale


class DynamicLossScaleUpdateCell(FixedLossScaleUpdateCell):
    """Divides the scale by `scale_factor` at an overflow (to at least 1), and multiplies it by `scale_factor` after
    `scale_window` consecutive steps without one."""

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
        updated: Value = self.select(finite, self.select(grows, larger, loss_scale), smaller)
        return updated


class TrainOneStepWithLossScaleCell(StepCell):
    """Forward, gradients of the scaled loss, update; returns the unscaled loss, whether the gradients overflowed, and
    the scale of this step. An overflow changes only the scale.

    `scale_sense` is a number, for a constant scale, or a cell that computes the next scale (a scalar) from the scale
    and a Bool: whether all gradients were finite. Parameters: `scale_sense`, `overflow_steps` (the number of skipped
    steps), `bad_steps` (the number of consecutive skipped steps up to now).

    A subclass with its own `construct` calls `start_overflow_check`, `get_overflow_status` and `process_loss_scale` in
    this order, then the optimizer, as in r1.2.
    """

    def __init__(
        self, network: Cell, optimizer: Optimizer, scale_sense: FixedLossScaleUpdateCell | Tensor | float
    ) -> None:
        super().__init__(network, optimizer)
        if not isinstance(scale_sense, FixedLossScaleUpdateCell):
            scale_sense = FixedLossScaleUpdateCell(_number(scale_sense))
        self.scale_update = scale_sense
        start = np.asarray(self.scale_update.loss_scale_value, np.float32)
        self.scale_sense = Parameter(start, "scale_sense", requires_grad=False)
        self.overflow_steps = Parameter(np.zeros((), np.int32), "overflow_steps", requires_grad=False)
        self.bad_steps = Parameter(np.zeros((), np.int32), "bad_steps", requires_grad=False)
        self.hyper_map = ops.HyperMap()

    def construct(self, *inputs: Any) -> Any:
        begin, scale = current().mark(), ops.Identity()(self.scale_sense)
        loss, scaled = self.differentiate(inputs, scale)
        with current().use_precision(None), current().unrecorded():
            inverse = 1.0 / scale
            gradients = [gradient * current().with_dtype(inverse, gradient.dtype) for gradient in scaled]
            self.optimizer(gradients)
            finite = self.all_finite(scaled)
            current().restore_unless(finite, begin)
            self.count(finite)
            self.observe(gradients)
            return self.mean_over_ranks(loss), ops.LogicalNot()(finite), scale

    def set_sense_scale(self, sens: Tensor) -> None:
        """Set the scale, a scalar or one element. Raises ConfigError for what is no tensor with one element."""
        if not isinstance(sens, Tensor) or sens.size != 1:
            given = getattr(sens, "type", type(sens).__name__)
            raise ConfigError("the scale is a tensor with one element", cell=type(self).__name__, given=given)
        self.scale_sense.set_data(sens.reshape(()))

    def start_overflow_check(self, pre_cond: Any, compute_input: Any) -> tuple[bool, Any]:
        """A status, and `compute_input` as it is before `process_loss_scale` changes a scale among it.

        Nothing has to be prepared here: gradients themselves are tested.
        """
        return False, map_values(ops.Identity(), compute_input)

    def get_overflow_status(self, status: Any, compute_output: Any) -> Value:
        """Whether an element is not finite: a Bool scalar, which all ranks have in common for reduced gradients."""
        values = list(values_of(compute_output))
        with current().use_precision(None):
            return ops.LogicalNot()(self.all_finite(values))  # type: ignore[no-any-return]

    def process_loss_scale(self, overflow: Value) -> bool:
        """Count an overflow and update the scale; False.

        The result is for `if not overflow: self.optimizer(grads)`. A graph cannot skip the optimizer: it is always
        called, and after an overflow its next call assigns nothing.
        """
        finite = ops.LogicalNot()(overflow)
        with current().use_precision(None), current().unrecorded():
            self.count(finite)
        self.optimizer.only_if(finite)
        return False

    def all_finite(self, values: list[Value]) -> Value:
        """Whether all elements of all values are finite: a Bool scalar."""
        status = [current().with_dtype(ops.FloatStatus()(value), self.scale_sense.dtype) for value in values]
        finite: Value = ops.Equal()(ops.ReduceSum()(ops.Concat()(*status)), 0.0)
        return finite

    def count(self, finite: Value) -> None:
        """Update counters and scale."""
        select = ops.Select()
        self.assign(self.overflow_steps, select(finite, self.overflow_steps, self.overflow_steps + 1))
        self.assign(self.bad_steps, select(finite, 0, self.bad_steps + 1))
        self.assign(self.scale_sense, self.scale_update(self.scale_sense, finite))

    def check(self) -> None:
        """Raise TrainingError after more than 1000 consecutive overflows: no scale avoids them."""
        bad = int(self.bad_steps.array)
        if bad > MOST_BAD_STEPS:
            rows = {"steps_in_a_row": bad, "allowed": MOST_BAD_STEPS, "loss_scale": float(self.scale_sense.array)}
            repair = "a smaller learning rate, or precision_mode=allow_fp32_to_fp16"
            raise TrainingError("gradients overflow in every step, whatever the loss scale", **rows, repair=repair)


def _number(scale: Tensor | float) -> float:
    """A scale as a number. Raises ConfigError for a tensor of another shape than () and (1,)."""
    if isinstance(scale, Tensor) and scale.shape not in ((), (1,)):
        raise ConfigError("a loss scale is a tensor of one element", shape=scale.shape, allowed="() or (1,)")
    return float(scale.asnumpy().item() if isinstance(scale, Tensor) else scale)

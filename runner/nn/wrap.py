"""`nn.wrap`, with MindSpore's name: the cells around a network that make a step of training or evaluation of it.

PyNative mode executes them, graph mode traces them as one graph. `WithLossCell` and `WithEvalCell` add the loss,
`TrainOneStepCell` gradients and optimizer, `TrainOneStepWithLossScaleCell` also a loss scale. With several ranks
`DistributedGradReducer` sums the gradients before the optimizer.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt, ops
from runner.communication import settings
from runner.communication.world import join, world
from runner.core.gradients import gradients
from runner.core.interpreter import current
from runner.core.values import Parameter, ParameterTuple, Tensor, Value, map_values, values_of
from runner.errors import ConfigError, TrainingError
from runner.host.lazy import reference_attribute
from runner.nn.cell import Cell
from runner.nn.loss.losses import LossBase
from runner.nn.optim.optimizer import Optimizer
from runner.validation.arguments import above, at_least, flag, whole

__getattr__ = partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has modules below it: runner/mindspore/addresses.py


class WithLossCell(Cell):
    """(data, label) to the loss; with more operands, the last one is the label and the network takes the others."""

    def __init__(self, backbone: Cell, loss_fn: Cell) -> None:
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn
        backbone.attach_loss(loss_fn)

    @property
    def backbone_network(self) -> Cell:
        """The network without the loss."""
        return self._backbone

    def construct(self, *columns: Value) -> Value:
        *data, label = columns
        result: Value = returned(self._loss_fn, self._loss_fn(returned(self._backbone, self._backbone(*data)), label))
        return result


class WithEvalCell(Cell):
    """(data, label) to loss, output of the network, and label; more operands as for `WithLossCell`.

    With `add_cast_fp32`, output and label are cast to Float32 before the loss; labels that are no floats stay.
    """

    outputs: ClassVar = ("loss", "output", "label_out")  # names in graph files

    def __init__(self, network: Cell, loss_fn: Cell, add_cast_fp32: bool = False) -> None:
        super().__init__(auto_prefix=False)
        flag({"cell": type(self).__name__}, add_cast_fp32=add_cast_fp32)
        self._network, self._loss_fn, self.add_cast_fp32 = network, loss_fn, add_cast_fp32
        network.attach_loss(loss_fn)

    def construct(self, *columns: Value) -> tuple[Value, Value, Value]:
        *data, label = columns
        output = returned(self._network, self._network(*data))
        if self.add_cast_fp32:
            output = output.astype(dt.float32, copy=False)
            label = label.astype(dt.float32, copy=False) if label.dtype.is_float else label
        return returned(self._loss_fn, self._loss_fn(output, label)), output, label


def attach_losses(cell: Cell) -> None:
    """Tell each network its loss, where a cell of a script consists of these two as `WithLossCell` does."""
    for _, one in cell.cells_and_names():
        losses = [child for child in one.cells() if isinstance(child, LossBase)]
        others = [child for child in one.cells() if not isinstance(child, LossBase)]
        if len(losses) == len(others) == 1:
            others[0].attach_loss(losses[0])


def returned(cell: Cell, value: Any) -> Any:
    """What a cell has returned. Raises ConfigError for None: a `return` is missing."""
    if value is None:
        rows = {"cell": type(cell).__name__, "line": cell.__dict__["_built"], "hint": "its last line is return ..."}
        raise ConfigError("construct returns nothing", **rows)
    return value


# One training step: loss, gradients, update.


class StepCell(Cell):
    """Base of training step cells: gradients and loss over all ranks.

    In data-parallel mode (`context.set_auto_parallel_context`) gradients are reduced over all ranks, and the loss is
    their mean. With `weighs_ranks` (set before the first step) both are weighted by the numbers of rows of the ranks,
    for batches that they cannot divide into equal parts, and losses that are means over rows.
    """

    weights: ParameterTuple

    def __init__(self, network: Cell, optimizer: Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = network, optimizer
        attach_losses(network)
        self.__dict__["weights"] = optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
        self.reducer_flag = settings.reduces_gradients(self)
        self.parallel_mode = settings.settings()["parallel_mode"]
        self.grad_reducer: Any = reducer_from_context(optimizer.parameters) if self.reducer_flag else _identity
        self.weighs_ranks = False
        self.step_values: ops.ObserveStep | None = None  # set by `Model.train` while a callback observes gradients

    def weighted(self, loss: Value, inputs: Sequence[Value]) -> Value:
        """The loss, times the share of this rank in the rows of the batch relative to an equal share."""
        if not self.reducer_flag or not self.weighs_ranks:
            return loss
        rows = float(inputs[0].shape[0])
        with current().use_precision(None):
            every = ops.AllReduce("mean")(Tensor(np.asarray(rows, np.float32)))
            return loss * current().with_dtype(rows / every, loss.dtype)

    def differentiate(self, inputs: Sequence[Any], sens: float | Value) -> tuple[Value, list[Value]]:
        """The loss, and the gradients of `sens` times the loss, with the same bits on all ranks."""
        with current().differentiation() as begin:
            loss = self.weighted(self.network(*inputs), inputs)
        on_gradient = self.grad_reducer.on_gradient if self.reducer_flag else None
        own = gradients(loss, self.optimizer.parameters, sens, last=True, on_gradient=on_gradient, since=begin)
        return loss, list(self.grad_reducer(own))

    def observe(self, gradients: Sequence[Value]) -> None:
        """Pass gradients, parameters and their newly assigned values to the callbacks that observe them.

        Called after the last assignment of the step, with the gradients that the optimizer received.
        """
        if self.step_values is not None:
            parameters, updates = self.optimizer.parameters, current().assignments.latest
            with current().values_before():
                self.step_values(*gradients, *parameters, *[updates.get(p, p) for p in parameters])

    def mean_over_ranks(self, loss: Value) -> Value:
        """The loss that the step returns."""
        if not self.reducer_flag:
            return loss
        return ops.AllReduce("mean")(loss)


def _identity(gradients: Any) -> Any:
    return gradients


class TrainOneStepCell(StepCell):
    """Forward, gradients, update; returns the loss. `sens` scales the gradients.

    A subclass with its own `construct` has the attributes of r1.2: `network`, `optimizer`, `weights` (its parameters),
    `grad` (a `GradOperation` with get_by_list and sens_param), `sens`, `reducer_flag`, `grad_reducer` (the identity in
    a single process), `parallel_mode`:

        loss = self.network(*inputs)
        sens = ops.Fill()(ops.DType()(loss), ops.Shape()(loss), self.sens)
        grads = self.grad_reducer(self.grad(self.network, self.weights)(*inputs, sens))
        return ops.depend(loss, self.optimizer(grads))
    """

    def __init__(self, network: Cell, optimizer: Optimizer, sens: float = 1.0) -> None:
        super().__init__(network, optimizer)
        self.sens = sens

    def construct(self, *inputs: Any) -> Value:
        loss, gradients = self.differentiate(inputs, self.sens)
        self.optimizer(gradients)
        self.observe(gradients)
        return self.mean_over_ranks(loss)


# Loss scaling: small Float16 gradients underflow, so the loss is multiplied by a scale that gradients are divided by.
#
# A step whose gradients overflow is skipped inside of the step itself, so also in sinks: everything that it would
# assign keeps its value. Scale and counters are parameters, so checkpoints and resumed runs contain them.
#
# Ranks test the sums of the scaled gradients, which have the same bits on all ranks. A value that is not finite on one
# rank makes the sum not finite, so all ranks skip the step and have the same scale and counters.

LARGEST = 2.0**100  # a scale without a limit would become infinite
MOST_BAD_STEPS = 1000  # consecutive ones, as in MindSpore


class LossScaleUpdateCell(Cell):
    """Base of cells that compute the loss scale of the next step; `loss_scale_value`, at least 1, is the first one."""

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
        """The next scale, from that of this step and whether all gradients were finite (Bool)."""
        raise NotImplementedError


class FixedLossScaleUpdateCell(LossScaleUpdateCell):
    """A constant loss scale. `loss_scale_value` is at least 1."""

    def construct(self, loss_scale: Value, finite: Value) -> Value:
        return loss_scale


class DynamicLossScaleUpdateCell(LossScaleUpdateCell):
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
        return self.select(finite, self.select(grows, larger, loss_scale), smaller)


class TrainOneStepWithLossScaleCell(StepCell):
    """Forward, gradients of the scaled loss, update; returns the unscaled loss, whether the gradients overflowed, and
    the scale of this step. An overflow changes only the scale.

    `scale_sense` is a number, for a constant scale, or a cell that computes the next scale (a scalar) from the scale
    and a Bool: whether all gradients were finite. Parameters: `scale_sense`, `overflow_steps` (the number of skipped
    steps), `bad_steps` (the number of consecutive skipped steps up to now).

    A subclass with its own `construct` calls `start_overflow_check`, `get_overflow_status` and `process_loss_scale` in
    this order, then the optimizer, as in r1.2.
    """

    def __init__(self, network: Cell, optimizer: Optimizer, scale_sense: LossScaleUpdateCell | Tensor | float) -> None:
        super().__init__(network, optimizer)
        if not isinstance(scale_sense, LossScaleUpdateCell):
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
        with current().use_precision(None), current().tape.unrecorded():
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
            return ops.LogicalNot()(self.all_finite(values))

    def process_loss_scale(self, overflow: Value) -> bool:
        """Count an overflow and update the scale; False.

        The result is for `if not overflow: self.optimizer(grads)`. A graph cannot skip the optimizer: it is always
        called, and after an overflow its next call assigns nothing.
        """
        finite = ops.LogicalNot()(overflow)
        with current().use_precision(None), current().tape.unrecorded():
            self.count(finite)
        self.optimizer.only_if(finite)
        return False

    def all_finite(self, values: list[Value]) -> Value:
        """Whether all elements of all values are finite: a Bool scalar."""
        status = [current().with_dtype(ops.FloatStatus()(value), self.scale_sense.dtype) for value in values]
        return ops.Equal()(ops.ReduceSum()(ops.Concat()(*status)), 0.0)

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


# Several ranks: gradients are reduced in buckets before the optimizer, parameters broadcast before the first step.


class DistributedGradReducer(Cell):
    """(gradients) to their sums over all ranks, computed in Float32; with `mean` to their means.

    `indices` are the parameters that start another bucket (None: one bucket for all). Source: the cell of this name in
    r1.2, whose default is one bucket too. `degree`, the number of ranks that a mean divides by, must be theirs;
    `fusion_type` has no effect.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        mean: bool = True,
        degree: int | None = None,
        fusion_type: int = 1,
        *,
        indices: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        parameters = tuple(parameters)
        if degree not in (None, world().size):
            rows = {"degree": degree, "ranks": world().size, "repair": "leave it out, or mpirun -n N"}
            raise ConfigError("degree is not the number of ranks", **rows)
        # Backwards: the gradients of the last layers are ready first.
        self.buckets = settings.buckets(len(parameters), indices)[::-1]
        self.all_reduce = ops.AllReduce("mean" if mean else "sum")
        self._ready: dict[int, Value] = {}

    def construct(self, gradients: Sequence[Value]) -> list[Value]:
        self._ready.clear()
        reduced = list(gradients)
        for bucket in self.buckets:
            sums = self.all_reduce(*[_in_float32(gradients[k]) for k in bucket])
            for k, value in zip(bucket, sums if len(bucket) > 1 else (sums,), strict=True):
                reduced[k] = value if value.dtype is gradients[k].dtype else value.astype(gradients[k].dtype)
        return reduced

    def on_gradient(self, index: int, gradient: Value) -> None:
        """A gradient is complete. PyNative mode starts to reduce a bucket with its last gradient, while it computes the
        others."""
        if not isinstance(gradient, Tensor) or gradient.dtype is not dt.float32:
            return
        self._ready[index] = gradient
        bucket = next(bucket for bucket in self.buckets if index in bucket)
        if all(k in self._ready for k in bucket):
            world().begin([self._ready[k].array for k in bucket])  # type: ignore[attr-defined]


def _in_float32(gradient: Value) -> Value:
    return gradient if gradient.dtype is dt.float32 else gradient.astype(dt.float32)


def reducer_from_context(parameters: Sequence[Parameter]) -> DistributedGradReducer:
    """The reducer for the settings of `context.set_auto_parallel_context`; connects to the other processes of mpirun.

    Raises ConfigError when device_num or global_rank differ from those of mpirun.
    """
    chosen, joined = settings.settings(), join()
    for name, actual in (("device_num", joined.size), ("global_rank", joined.rank)):
        if chosen[name] not in (None, actual):
            rows = {name: chosen[name], "found": actual, "repair": "leave it out, or mpirun -n N"}
            raise ConfigError(f"{name} is not that of mpirun", **rows)
    return DistributedGradReducer(parameters, chosen["gradients_mean"], indices=chosen["all_reduce_fusion_config"])


def broadcast(parameters: Sequence[Parameter]) -> None:
    """Set the parameters of all ranks to the values of the first rank."""
    for parameter, array in zip(parameters, world().shared_arrays([p.array for p in parameters]), strict=True):
        parameter.set_data(array)

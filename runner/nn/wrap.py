"""Cells for the training and evaluation step of a network, which PyNative mode executes and graph mode traces."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt, ops
from runner.communication import settings
from runner.core.gradients import gradients
from runner.core.operators import current
from runner.core.values import ParameterTuple, Tensor, Value
from runner.errors import ConfigError
from runner.host.lazy import reference_attribute
from runner.nn import gradient_reducer
from runner.nn.cell import Cell
from runner.nn.optim.optimizer import Optimizer
from runner.validation.arguments import flag

__all__ = ["TrainOneStepCell", "WithEvalCell", "WithLossCell"]
__getattr__ = partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has modules below it: runner/mindspore/addresses.py


class WithLossCell(Cell):
    """(data, label) to the loss; with more operands, the last one is the label and the network takes the others."""

    def __init__(self, backbone: Cell, loss_fn: Cell) -> None:
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    @property
    def backbone_network(self) -> Cell:
        """The network without the loss."""
        return self._backbone

    def construct(self, *columns: Value) -> Value:
        *data, label = columns
        loss: Value = returned(self._loss_fn, self._loss_fn(returned(self._backbone, self._backbone(*data)), label))
        return loss


class WithEvalCell(Cell):
    """(data, label) to loss, output of the network, and label; more operands as for `WithLossCell`.

    With `add_cast_fp32`, output and label are cast to Float32 before the loss; labels that are no floats stay.
    """

    outputs: ClassVar = ("loss", "output", "label_out")  # names in graph files

    def __init__(self, network: Cell, loss_fn: Cell, add_cast_fp32: bool = False) -> None:
        super().__init__(auto_prefix=False)
        flag({"cell": type(self).__name__}, add_cast_fp32=add_cast_fp32)
        self._network, self._loss_fn, self.add_cast_fp32 = network, loss_fn, add_cast_fp32

    def construct(self, *columns: Value) -> tuple[Value, Value, Value]:
        *data, label = columns
        output = returned(self._network, self._network(*data))
        if self.add_cast_fp32:
            output = output.astype(dt.float32, copy=False)
            label = label.astype(dt.float32, copy=False) if label.dtype.is_float else label
        return returned(self._loss_fn, self._loss_fn(output, label)), output, label


def returned(cell: Cell, value: Any) -> Any:
    """What a cell has returned. Raises ConfigError for None: a `return` is missing."""
    if value is None:
        rows = {"cell": type(cell).__name__, "line": cell.__dict__["_built"], "hint": "its last line is return ..."}
        raise ConfigError("construct returns nothing", **rows)
    return value


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
        self.__dict__["weights"] = optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
        self.reducer_flag = settings.reduces_gradients(self)
        self.parallel_mode = settings.settings()["parallel_mode"]
        self.grad_reducer: Any = (
            gradient_reducer.reducer_from_context(optimizer.parameters) if self.reducer_flag else _identity
        )
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
            parameters, updates = self.optimizer.parameters, current().updates
            with current().values_before():
                self.step_values(*gradients, *parameters, *[updates.get(p, p) for p in parameters])

    def mean_over_ranks(self, loss: Value) -> Value:
        """The loss that the step returns."""
        if not self.reducer_flag:
            return loss
        mean: Value = ops.AllReduce("mean")(loss)
        return mean


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

"""Optimizers: cells that update parameters from gradients, with the rules of r1.2 (spec section 8.3)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from runner import dtype as dt, ops
from runner.core.parameter_tuple import ParameterTuple
from runner.core.primitive import current
from runner.core.value import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.schedule import LearningRateSchedule, schedule_of
from runner.validation.arguments import above, at_least

__all__ = ["SGD", "Adam", "Momentum", "Optimizer"]

LearningRate: TypeAlias = float | Tensor | Iterable[float] | LearningRateSchedule


class Optimizer(Cell):
    """Base: weight decay, loss scale, and the learning rate as a parameter that is not trained.

    `learning_rate` is a number, a schedule, or a rate per step, the last of which stays in effect. With a schedule,
    `global_step` is a parameter too: the number of the next step, from 0. The caller of a step sets the rate before it
    (`next_rates`) and counts it afterwards (`advance`), so a resumed training continues its schedule.
    Weight decay adds `weight_decay * loss_scale * w` to the gradients of parameters whose names contain neither `beta`
    nor `gamma`; then every gradient is divided by `loss_scale`.
    """

    parameters: ParameterTuple

    def __init__(
        self,
        parameters: Sequence[Parameter],
        learning_rate: LearningRate,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.__dict__["parameters"] = ParameterTuple(parameters)  # of the network, not of this cell
        if not self.parameters:
            raise ConfigError("an optimizer needs parameters", optimizer=type(self).__name__)
        first, self.schedule = schedule_of(learning_rate, self.where)
        at_least(self.where, 0.0, weight_decay=weight_decay)
        above(self.where, 0.0, loss_scale=loss_scale)
        self.learning_rate = Parameter(Tensor(first, dt.float32), "learning_rate", requires_grad=False)
        if self.schedule is not None:
            self.global_step = Parameter(np.zeros(1, np.int32), "global_step", requires_grad=False)
        self.weight_decay, self.loss_scale = weight_decay, loss_scale

    def __call__(self, *inputs: Any) -> Any:
        """Assign new values; True, or what `construct` returns, as a value for `ops.depend`.

        Parameters and state, the master copy, keep their types under every `precision_mode`.
        """
        step, condition = current(), self.__dict__.pop("_condition", None)
        with step.use_precision(None), step.unrecorded():
            begin = step.mark()
            result = super().__call__(*inputs)
            if condition is not None:
                step.restore_unless(condition, begin)
        return True if result is None else result

    def only_if(self, condition: Value) -> None:
        """The next call of a step assigns nothing unless a Bool scalar, which may be known only then, is true."""
        self.__dict__["_condition"] = condition

    @property
    def where(self) -> dict[str, str]:
        """The row that names the optimizer in an error."""
        return {"optimizer": type(self).__name__}

    def construct(self, gradients: Sequence[Value]) -> None:
        """Assign new values to the parameters and to the optimizer's state."""
        raise NotImplementedError

    def prepare(self, parameter: Parameter, gradient: Value) -> Value:
        """The gradient with weight decay, divided by the loss scale."""
        if self.weight_decay and not ("beta" in parameter.name or "gamma" in parameter.name):
            gradient = gradient + parameter * (self.weight_decay * self.loss_scale)
        return gradient if self.loss_scale == 1.0 else gradient * (1.0 / self.loss_scale)

    def assign_all(self, targets: Sequence[Parameter], values: Sequence[Value]) -> None:
        """Assign several values."""
        for target, value in zip(targets, values, strict=True):
            self.assign(target, value)

    def next_rates(self, count: int) -> np.ndarray:
        """The scheduled learning rates of the next `count` steps, float32 [count]."""
        assert self.schedule is not None
        return self.schedule.rates(int(self.global_step.data[0]), count)

    def advance(self, rates: np.ndarray) -> None:
        """Count steps with these rates; `learning_rate` becomes the last of them."""
        self.learning_rate.set_data(rates[-1])
        self.global_step.set_data(self.global_step.data + np.int32(len(rates)))

    def state(self, prefix: str, fill: float = 0.0, scalar: bool = False) -> tuple[Parameter, ...]:
        """One state per parameter, named `{prefix}.{parameter}`."""
        states = []
        for parameter in self.parameters:
            start = np.full(() if scalar else parameter.shape, fill, parameter.dtype.numpy)
            states.append(Parameter(start, f"{prefix}.{parameter.name}", requires_grad=False))
            self.insert_param_to_cell(states[-1].name, states[-1])
        return tuple(states)


class Momentum(Optimizer):
    """v = momentum v + g; w -= learning_rate v, or with `use_nesterov` w -= learning_rate (g + momentum v)."""

    def __init__(
        self,
        params: Sequence[Parameter],
        learning_rate: LearningRate,
        momentum: float,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, loss_scale)
        at_least(self.where, 0.0, momentum=momentum)
        self.momentum = Tensor(momentum, dt.float32)
        self.moments = self.state("moments")
        self.opt = ops.ApplyMomentum(use_nesterov)

    def construct(self, gradients: Sequence[Value]) -> None:
        for parameter, moment, gradient in zip(self.parameters, self.moments, gradients, strict=True):
            prepared = self.prepare(parameter, gradient)
            updated = self.opt(parameter, moment, self.learning_rate, prepared, self.momentum)
            self.assign_all((parameter, moment), updated)


class SGD(Optimizer):
    """Stochastic gradient descent, with optional momentum, dampening and Nesterov momentum."""

    def __init__(
        self,
        params: Sequence[Parameter],
        learning_rate: LearningRate = 0.1,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, loss_scale)
        at_least(self.where, 0.0, momentum=momentum, dampening=dampening)
        if nesterov and (momentum <= 0.0 or dampening != 0.0):
            raise ConfigError("Nesterov needs momentum above 0 and dampening 0", momentum=momentum, dampening=dampening)
        self.momentum = Tensor(momentum, dt.float32)
        self.accum, self.stat = self.state("accum"), self.state("stat", scalar=True)
        self.opt = ops.SGD(dampening, 0.0, nesterov)

    def construct(self, gradients: Sequence[Value]) -> None:
        for parameter, accum, stat, gradient in zip(self.parameters, self.accum, self.stat, gradients, strict=True):
            prepared = self.prepare(parameter, gradient)
            updated = self.opt(parameter, prepared, self.learning_rate, accum, self.momentum, stat)
            self.assign_all((parameter, accum, stat), updated)


class Adam(Optimizer):
    """Adaptive moments (Kingma and Ba, 2014)."""

    def __init__(
        self,
        params: Sequence[Parameter],
        learning_rate: LearningRate = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, loss_scale)
        above(self.where, 0.0, beta1=beta1, beta2=beta2, eps=eps)
        if beta1 >= 1.0 or beta2 >= 1.0:
            raise ConfigError("beta1 and beta2 must be below 1", beta1=beta1, beta2=beta2)
        self.betas = Tensor(beta1, dt.float32), Tensor(beta2, dt.float32)
        self.eps = Tensor(eps, dt.float32)
        self.beta1_power = Parameter(Tensor(1.0, dt.float32), "beta1_power", requires_grad=False)
        self.beta2_power = Parameter(Tensor(1.0, dt.float32), "beta2_power", requires_grad=False)
        self.moment1, self.moment2 = self.state("moment1"), self.state("moment2")
        self.opt = ops.Adam()

    def construct(self, gradients: Sequence[Value]) -> None:
        powers = self.beta1_power * self.betas[0], self.beta2_power * self.betas[1]
        self.assign_all((self.beta1_power, self.beta2_power), powers)
        for parameter, m, v, gradient in zip(self.parameters, self.moment1, self.moment2, gradients, strict=True):
            prepared = self.prepare(parameter, gradient)
            updated = self.opt(parameter, m, v, *powers, self.learning_rate, *self.betas, self.eps, prepared)
            self.assign_all((parameter, m, v), updated)


def scheduled_optimizers(cell: Cell) -> list[Optimizer]:
    """The optimizers in a cell whose learning rate has a schedule."""
    inner = dict.fromkeys(cell for _, cell in cell.cells_and_names())
    return [cell for cell in inner if isinstance(cell, Optimizer) and cell.schedule is not None]


@contextmanager
def scheduled_step(optimizers: Sequence[Optimizer]) -> Iterator[None]:
    """Context of one step with the scheduled learning rates; a step that raises does not count."""
    rates = [optimizer.next_rates(1) for optimizer in optimizers]
    for optimizer, rate in zip(optimizers, rates, strict=True):
        optimizer.learning_rate.set_data(rate[0])
    yield
    for optimizer, rate in zip(optimizers, rates, strict=True):
        optimizer.advance(rate)

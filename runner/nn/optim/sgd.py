"""Stochastic gradient descent."""

from collections.abc import Sequence

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.errors import ConfigError
from runner.nn.optim.optimizer import LearningRate, Optimizer
from runner.nn.optim.parameter_groups import Parameters
from runner.validation.arguments import at_least

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent, with optional momentum, dampening and Nesterov momentum.

    State: `accum.{parameter}`, the momentum, and `stat.{parameter}`, the number of steps.
    """

    def __init__(
        self,
        params: Parameters,
        learning_rate: LearningRate = 0.1,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        at_least(self.where, 0.0, momentum=momentum, dampening=dampening)
        if nesterov and (momentum <= 0.0 or dampening != 0.0):
            raise ConfigError("Nesterov needs momentum above 0 and dampening 0", momentum=momentum, dampening=dampening)
        self.momentum = Tensor(momentum, dt.float32)
        self.accum, self.stat = self.state("accum"), self.state("stat", scalar=True)
        self.opt = ops.SGD(dampening, 0.0, nesterov)

    def construct(self, gradients: Sequence[Value]) -> None:
        rows = zip(self.parameters, self.accum, self.stat, self.each_lr(), gradients, strict=True)
        for parameter, accum, stat, rate, gradient in rows:
            self.opt(parameter, self.prepare(parameter, gradient), rate, accum, self.momentum, stat)

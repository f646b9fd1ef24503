"""Gradient descent with momentum."""

from collections.abc import Sequence

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.nn.optim.optimizer import LearningRate, Optimizer
from runner.nn.optim.parameter_groups import Parameters
from runner.validation.arguments import at_least

__all__ = ["Momentum"]


class Momentum(Optimizer):
    """v = momentum v + g; w -= learning_rate v, or with `use_nesterov` w -= learning_rate (g + momentum v).

    State: `moments.{parameter}`, v.
    """

    def __init__(
        self,
        params: Parameters,
        learning_rate: LearningRate,
        momentum: float,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        at_least(self.where, 0.0, momentum=momentum)
        self.momentum = Tensor(momentum, dt.float32)
        self.use_nesterov = use_nesterov
        self.moments = self.state("moments")
        self.opt = ops.ApplyMomentum(use_nesterov)

    def construct(self, gradients: Sequence[Value]) -> None:
        rows = zip(self.parameters, self.moments, self.each_lr(), gradients, strict=True)
        for parameter, moment, rate, gradient in rows:
            self.opt(parameter, moment, rate, self.prepare(parameter, gradient), self.momentum)

"""Optimizers with adaptive moments: Adam (Kingma and Ba, 2014) and Adam with decoupled weight decay."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.nn.optim.optimizer import LearningRate, Optimizer
from runner.nn.optim.parameter_groups import Parameters
from runner.validation.arguments import above, flag

__all__ = ["Adam", "AdamOffload", "AdamWeightDecay", "LazyAdam"]


class Adam(Optimizer):
    """Adaptive moments (Kingma and Ba, 2014), with `use_nesterov` of the next step.

    `use_locking` has no effect: nothing else writes parameters during a step. State: `moment1.{parameter}`,
    `moment2.{parameter}`, `beta1_power` and `beta2_power`.
    """

    def __init__(
        self,
        params: Parameters,
        learning_rate: LearningRate = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        use_locking: bool = False,
        use_nesterov: bool = False,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_decays(self.where, beta1, beta2, eps)
        flag(self.where, use_locking=use_locking, use_nesterov=use_nesterov)
        self.use_locking, self.use_nesterov = use_locking, use_nesterov
        self.beta1, self.beta2 = Tensor(beta1, dt.float32), Tensor(beta2, dt.float32)
        self.eps = Tensor(eps, dt.float32)
        self.beta1_power = Parameter(Tensor(1.0, dt.float32), "beta1_power", requires_grad=False)
        self.beta2_power = Parameter(Tensor(1.0, dt.float32), "beta2_power", requires_grad=False)
        self.moment1, self.moment2 = self.state("moment1"), self.state("moment2")
        self.opt = ops.Adam(use_locking, use_nesterov)

    def construct(self, gradients: Sequence[Value]) -> None:
        betas = self.beta1, self.beta2
        powers = self.beta1_power * self.beta1, self.beta2_power * self.beta2
        self.assign_all((self.beta1_power, self.beta2_power), powers)
        rows = zip(self.parameters, self.moment1, self.moment2, self.each_lr(), gradients, strict=True)
        for parameter, m, v, rate, gradient in rows:
            self.opt(parameter, m, v, *powers, rate, *betas, self.eps, self.prepare(parameter, gradient))


class LazyAdam(Adam):
    """Adam. The reference differs from it only for sparse gradients, which do not exist here."""


class AdamOffload(Adam):
    """Adam. In the reference the host computes the update; here it is part of the step."""


class AdamWeightDecay(Optimizer):
    """Adam without correction of the bias, and with a weight decay that the moments do not contain.

    m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= learning_rate (m / (sqrt(v) + eps) + decay w).
    State: `adam_m.{parameter}` and `adam_v.{parameter}`.
    """

    def __init__(
        self,
        params: Parameters,
        learning_rate: LearningRate = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay)
        check_decays(self.where, beta1, beta2, eps)
        self.betas, self.eps = [with_complement(beta) for beta in (beta1, beta2)], float(eps)
        self.moments1, self.moments2 = self.state("adam_m"), self.state("adam_v")
        self.sqrt, self.square = ops.Sqrt(), ops.Square()

    def construct(self, gradients: Sequence[Value]) -> None:
        rows = zip(self.parameters, self.moments1, self.moments2, self.each_lr(), gradients, strict=True)
        for k, (parameter, m, v, rate, gradient) in enumerate(rows):
            gradient = self._centralized(k, gradient)
            (beta1, rest1), (beta2, rest2) = self.betas
            first = m * beta1 + gradient * rest1
            second = v * beta2 + self.square(gradient) * rest2
            # Weight decay is a gradient's in all other optimizers, and here the update's.
            step = self._decayed(k, first / (self.sqrt(second) + self.eps))
            self.assign_all((parameter, m, v), (parameter - step * rate, first, second))


def with_complement(beta: float) -> tuple[float, float]:
    """A decay rate and 1 less it, both as the reference has them, in Float32: 1 - 0.999 is 2e-5 off."""
    rate = np.float32(beta)
    return float(rate), float(np.float32(1.0) - rate)


def check_decays(where: dict[str, str], beta1: Any, beta2: Any, eps: Any) -> None:
    """Raise ConfigError unless the decay rates are between 0 and 1, and `eps` is above 0."""
    above(where, 0.0, beta1=beta1, beta2=beta2, eps=eps)
    if beta1 >= 1.0 or beta2 >= 1.0:
        raise ConfigError("beta1 and beta2 must be below 1", beta1=beta1, beta2=beta2)

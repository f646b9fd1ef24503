"""RMSProp: steps divided by the root of the mean square of the gradients (Hinton, 2012)."""

from collections.abc import Sequence

from runner import ops
from runner.core.values import Value
from runner.nn.optim.optimizer import LearningRate, Optimizer
from runner.nn.optim.parameter_groups import Parameters
from runner.validation.arguments import above, at_least, flag

__all__ = ["RMSProp"]


class RMSProp(Optimizer):
    """s = decay s + (1 - decay) g^2; v = momentum v + learning_rate g / sqrt(s + epsilon); w -= v.

    With `centered`, s is the variance: the mean square less the square of a mean gradient. `use_locking` has no effect.
    State: `mean_square.{parameter}`, 1 at first, `moment.{parameter}`, v, and `mean_grad.{parameter}` with `centered`.
    """

    def __init__(
        self,
        params: Parameters,
        learning_rate: LearningRate = 0.1,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        loss_scale: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        at_least(self.where, 0.0, decay=decay, momentum=momentum)
        above(self.where, 0.0, epsilon=epsilon)
        flag(self.where, use_locking=use_locking, centered=centered)
        self.decay, self.momentum, self.epsilon = float(decay), float(momentum), float(epsilon)
        self.centered, self.sqrt, self.square = centered, ops.Sqrt(), ops.Square()
        if centered:
            self.mg = self.state("mean_grad")
        self.ms, self.moment = self.state("mean_square", 1.0), self.state("moment")

    def construct(self, gradients: Sequence[Value]) -> None:
        rows = zip(self.parameters, self.ms, self.moment, self.each_lr(), gradients, strict=True)
        for k, (parameter, mean_square, moment, rate, gradient) in enumerate(rows):
            gradient = self.prepare(parameter, gradient)
            spread = new_square = self._mean(mean_square, self.square(gradient))
            if self.centered:
                new_mean = self._mean(self.mg[k], gradient)
                self.assign(self.mg[k], new_mean)
                spread = new_square - self.square(new_mean)
            step = gradient * rate / self.sqrt(spread + self.epsilon)
            if self.momentum:
                step = moment * self.momentum + step
            self.assign_all((parameter, mean_square, moment), (parameter - step, new_square, step))

    def _mean(self, mean: Value, value: Value) -> Value:
        return mean * self.decay + value * (1.0 - self.decay)

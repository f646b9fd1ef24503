"""FTRL: follow the regularized leader, per coordinate (McMahan et al., 2013)."""

from collections.abc import Sequence

from runner import ops
from runner.core.values import Value
from runner.errors import ConfigError
from runner.nn.optim.optimizer import LearningRate, Optimizer
from runner.nn.optim.parameter_groups import Parameters
from runner.validation.arguments import above, at_least, finite_number, flag

__all__ = ["FTRL"]


class FTRL(Optimizer):
    """n' = n + g^2; z = z + g - (n'^-lr_power - n^-lr_power) / learning_rate w;
    w = (sign(z) l1 - z) / (n'^-lr_power / learning_rate + 2 l2) where |z| > l1, otherwise 0.

    As in the reference, the learning rate is constant (and above 0), and without groups, weight decay applies to all
    parameters. `use_locking` has no effect.
    State: `moments.{parameter}`, n, which starts at `initial_accum`, and `linear.{parameter}`, z.
    """

    def __init__(
        self,
        params: Parameters,
        initial_accum: float = 0.1,
        learning_rate: LearningRate = 0.001,
        lr_power: float = -0.5,
        l1: float = 0.0,
        l2: float = 0.0,
        use_locking: bool = False,
        loss_scale: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if self.schedules:
            raise ConfigError("FTRL needs a constant learning rate", schedule=repr(self.schedule))
        above(self.where, 0.0, learning_rate=min(float(rate.asnumpy()) for rate in self.rates))
        at_least(self.where, 0.0, initial_accum=initial_accum, l1=l1, l2=l2)
        if finite_number("lr_power", lr_power) > 0:
            raise ConfigError("lr_power must be a number of at most 0", **self.where, given=lr_power)
        flag(self.where, use_locking=use_locking)
        self.l1, self.l2, self.lr_power = float(l1), float(l2), float(lr_power)
        self.moments, self.linear = self.state("moments", initial_accum), self.state("linear")
        if not self.is_group:
            self.decay_flags = (True,) * self.param_length
        self.sqrt, self.square, self.sign, self.abs = ops.Sqrt(), ops.Square(), ops.Sign(), ops.Abs()
        self.select = ops.Select()

    def construct(self, gradients: Sequence[Value]) -> None:
        rows = zip(self.parameters, self.moments, self.linear, self.each_lr(), gradients, strict=True)
        for parameter, moment, linear, rate, gradient in rows:
            gradient = self.prepare(parameter, gradient)
            total = moment + self.square(gradient)
            power = self._power(total)
            z = linear + gradient - (power - self._power(moment)) / rate * parameter
            size = power / rate + 2.0 * self.l2
            w = self.select(self.abs(z) > self.l1, (self.sign(z) * self.l1 - z) / size, 0.0)
            self.assign_all((parameter, moment, linear), (w, total, z))

    def _power(self, value: Value) -> Value:
        root: Value = self.sqrt(value) if self.lr_power == -0.5 else value**-self.lr_power
        return root

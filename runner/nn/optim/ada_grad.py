"""Adagrad: steps divided by the root of the sum of the squares of all gradients (Duchi et al., 2011)."""

from collections.abc import Sequence

from runner import ops
from runner.core.values import Value
from runner.nn.optim.optimizer import LearningRate, Optimizer
from runner.nn.optim.parameter_groups import Parameters
from runner.validation.arguments import at_least, flag

__all__ = ["Adagrad", "ProximalAdagrad"]


class Adagrad(Optimizer):
    """a = a + g^2; w -= learning_rate g / sqrt(a). With `update_slots=False`, a stays `accum`.

    State: `accum.{parameter}`, a, which starts at `accum`.
    """

    def __init__(
        self,
        params: Parameters,
        accum: float = 0.1,
        learning_rate: LearningRate = 0.001,
        update_slots: bool = True,
        loss_scale: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        at_least(self.where, 0.0, accum=accum)
        flag(self.where, update_slots=update_slots)
        self.update_slots = update_slots
        self.accum = self.state("accum", accum)
        self.sqrt, self.square = ops.Sqrt(), ops.Square()

    def construct(self, gradients: Sequence[Value]) -> None:
        rows = zip(self.parameters, self.accum, self.each_lr(), gradients, strict=True)
        for parameter, accum, rate, gradient in rows:
            gradient = self.prepare(parameter, gradient)
            total: Value = accum
            if self.update_slots:
                total = accum + self.square(gradient)
                self.assign(accum, total)
            self.assign(parameter, parameter - gradient * rate / self.sqrt(total))


class ProximalAdagrad(Optimizer):
    """Adagrad with penalties `l1` and `l2` that are applied to the result of a step (Duchi and Singer, 2009).

    a = a + g^2; r = learning_rate / sqrt(a); p = w - r g; w = sign(p) max(|p| - r l1, 0) / (1 + r l2).
    So does the reference compute it; its documentation has the learning rate in place of the second and third r.
    `use_locking` has no effect. State: `accum.{parameter}`, a, which starts at `accum`.
    """

    def __init__(
        self,
        params: Parameters,
        accum: float = 0.1,
        learning_rate: LearningRate = 0.001,
        l1: float = 0.0,
        l2: float = 0.0,
        use_locking: bool = False,
        loss_scale: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        at_least(self.where, 0.0, accum=accum, l1=l1, l2=l2)
        flag(self.where, use_locking=use_locking)
        self.l1, self.l2 = float(l1), float(l2)
        self.accum = self.state("accum", accum)
        self.sqrt, self.square = ops.Sqrt(), ops.Square()
        self.sign, self.abs, self.maximum = ops.Sign(), ops.Abs(), ops.Maximum()

    def construct(self, gradients: Sequence[Value]) -> None:
        rows = zip(self.parameters, self.accum, self.each_lr(), gradients, strict=True)
        for parameter, accum, rate, gradient in rows:
            gradient = self.prepare(parameter, gradient)
            total = accum + self.square(gradient)
            own_rate = rate / self.sqrt(total)
            near = parameter - gradient * own_rate
            if self.l1:
                near = self.sign(near) * self.maximum(self.abs(near) - own_rate * self.l1, 0.0)
            if self.l2:
                near = near / (own_rate * self.l2 + 1.0)
            self.assign_all((parameter, accum), (near, total))

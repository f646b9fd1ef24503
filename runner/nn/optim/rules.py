"""The optimizers of r1.2, each an update rule over gradients, in operators; what they share is in `optimizer.py`.

`prepare` gives a rule its gradient (weight decay, centralized, unscaled), `each_lr` the rates, `state` parameters of
its own. Adam, SGD, Momentum and others are one operator of `runner/ops/optimizer.py`, the rest several.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.optim.optimizer import LearningRate, Optimizer, Parameters
from runner.nn.schedule import LearningRateSchedule
from runner.validation.arguments import above, at_least, finite_number, flag

# Adam (Kingma and Ba, 2014), and Adam with decoupled weight decay.


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
    """Adam. MindSpore differs from it only for sparse gradients, which do not exist here."""


class AdamOffload(Adam):
    """Adam. In MindSpore the host computes the update; here it is part of the step."""


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
    """A decay rate and 1 less it, both as MindSpore has them, in Float32: 1 - 0.999 is 2e-5 off."""
    rate = np.float32(beta)
    return float(rate), float(np.float32(1.0) - rate)


def check_decays(where: dict[str, str], beta1: Any, beta2: Any, eps: Any) -> None:
    """Raise ConfigError unless the decay rates are between 0 and 1, and `eps` is above 0."""
    above(where, 0.0, beta1=beta1, beta2=beta2, eps=eps)
    if beta1 >= 1.0 or beta2 >= 1.0:
        raise ConfigError("beta1 and beta2 must be below 1", beta1=beta1, beta2=beta2)


# Adagrad: steps divided by the root of the sum of the squares of all gradients (Duchi et al., 2011).


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
    So does MindSpore compute it; its documentation has the learning rate in place of the second and third r.
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


# Lamb: adaptive moments with a rate for each layer, for large batches (You et al., 2019).

LARGEST_RATIO = 10.0


class Lamb(Optimizer):
    """w -= learning_rate r (m' / (sqrt(v') + eps) + decay w), with m' and v' the moments of Adam, corrected.

    r = |w| / |m' / sqrt(v' + eps) + decay w|, Euclidean norms over the parameter, is at most 10, and 1 where a norm is
    0. As in r1.2, the norm contains the weight decay of parameters too that are not decayed (`beta`, `gamma`).
    State: `lamb_m.{parameter}`, `lamb_v.{parameter}`, `beta1_power` and `beta2_power`.
    """

    def __init__(
        self,
        params: Parameters,
        learning_rate: LearningRate,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay)
        check_decays(self.where, beta1, beta2, eps)
        self.betas, self.eps = [with_complement(beta) for beta in (beta1, beta2)], float(eps)
        # Powers and no number of the step: they also count inside of a sink, and not the steps that overflow.
        self.beta1_power = Parameter(Tensor(1.0, dt.float32), "beta1_power", requires_grad=False)
        self.beta2_power = Parameter(Tensor(1.0, dt.float32), "beta2_power", requires_grad=False)
        self.moments1, self.moments2 = self.state("lamb_m"), self.state("lamb_v")
        self.sqrt, self.square, self.sum = ops.Sqrt(), ops.Square(), ops.ReduceSum()
        self.select, self.minimum = ops.Select(), ops.Minimum()

    def construct(self, gradients: Sequence[Value]) -> None:
        (beta1, rest1), (beta2, rest2) = self.betas
        powers = self.beta1_power * beta1, self.beta2_power * beta2
        self.assign_all((self.beta1_power, self.beta2_power), powers)
        rows = zip(self.parameters, self.moments1, self.moments2, self.each_lr(), gradients, strict=True)
        for k, (parameter, m, v, rate, gradient) in enumerate(rows):
            gradient = self._centralized(k, gradient)
            first = m * beta1 + gradient * rest1
            second = v * beta2 + self.square(gradient) * rest2
            mean, square = first / (1.0 - powers[0]), second / (1.0 - powers[1])
            ratio = self._ratio(k, gradient, mean / self.sqrt(square + self.eps))
            step = self._decayed(k, mean / (self.sqrt(square) + self.eps))
            self.assign_all((parameter, m, v), (parameter - step * (ratio * rate), first, second))

    def _ratio(self, k: int, gradient: Value, step: Value) -> Value:
        """The trust ratio of parameter `k`, a scalar."""
        parameter, decay = self.parameters[k], self.get_weight_decay(k)
        size, length = self._norm(parameter), self._norm(step + parameter * decay if decay else step)
        is_one = ops.LogicalOr()(size <= 0.0, self._norm(gradient) <= 0.0)
        # Both are chosen before the division: one by 0 would be reported as the first value that is not finite.
        return self.minimum(self.select(is_one, 1.0, size) / self.select(is_one, 1.0, length), LARGEST_RATIO)

    def _norm(self, value: Value) -> Value:
        return self.sqrt(self.sum(self.square(value)))


# LARS: gradients of each layer in proportion to its weights, for large batches (You et al., 2017).


def _is_large(parameter: Parameter) -> bool:
    return "LayerNorm" not in parameter.name and "bias" not in parameter.name


class LARS(Optimizer):
    """Passes another optimizer the gradients r (g + decay w), r = coefficient |w| / (|g| + decay |w| + epsilon).

    The norms are Euclidean, over one parameter; `decay` is the other's weight decay, which the other then leaves out,
    as it leaves out the division by the loss scale. With `use_clip`, r is at most the learning rate, and divided by it.
    Parameters that `lars_filter` refuses keep their gradients, without weight decay. Learning rates, schedules and
    state are those of the other optimizer. Raises ConfigError for one with adaptive moments, whose steps do not depend
    on the length of gradients.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        epsilon: float = 1e-05,
        coefficient: float = 0.001,
        use_clip: bool = False,
        lars_filter: Callable[[Parameter], bool] = _is_large,
    ) -> None:
        Cell.__init__(self, auto_prefix=False)
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, Adam | AdamWeightDecay | Lamb | LARS):
            rows = {"given": type(optimizer).__name__, "allowed": "an optimizer without adaptive moments"}
            raise ConfigError("LARS cannot wrap it", **self.where, **rows)
        above(self.where, 0.0, epsilon=epsilon)
        at_least(self.where, 0.0, coefficient=coefficient)
        flag(self.where, use_clip=use_clip)
        self.epsilon, self.coefficient, self.use_clip = float(epsilon), float(coefficient), use_clip
        self.opt = optimizer
        self.set_parameters(optimizer.parameters)
        for name in TAKEN_OVER:
            self.__dict__[name] = getattr(optimizer, name)  # parameters stay those of the wrapped cell
        self.schedules = {}  # what sets the rates of a step finds the wrapped cell
        self.lars_flag = tuple([bool(lars_filter(parameter)) for parameter in self.parameters])
        self.sqrt, self.square, self.sum, self.minimum = ops.Sqrt(), ops.Square(), ops.ReduceSum(), ops.Minimum()
        optimizer.exec_weight_decay = optimizer.need_scale = False

    @property
    def schedule(self) -> LearningRateSchedule | None:
        return self.opt.schedule

    def get_lr_parameter(self, param: Parameter | Sequence[Parameter]) -> Any:
        return self.opt.get_lr_parameter(param)

    def construct(self, gradients: Sequence[Value]) -> Any:
        rows = zip(self.parameters, self.each_lr(), self.scale_grad(gradients), strict=True)
        return self.opt([self._adapted(k, *row) if self.lars_flag[k] else row[-1] for k, row in enumerate(rows)])

    def _adapted(self, k: int, parameter: Parameter, rate: Value, gradient: Value) -> Value:
        decays = self.exec_weight_decay and self.decay_flags[k]
        decay = self.get_weight_decay(k) / self.loss_scale if decays else 0.0
        size = self._norm(parameter)
        others = self._norm(gradient) + self.epsilon
        ratio = size * self.coefficient / (others + size * decay if decay else others)
        if self.use_clip:
            ratio = self.minimum(ratio / rate, 1.0)
        return (gradient + parameter * decay if decay else gradient) * ratio

    def _norm(self, value: Value) -> Value:
        return self.sqrt(self.sum(self.square(value)))


TAKEN_OVER = (
    *("learning_rate", "global_step", "dynamic_lr", "is_group", "is_group_lr", "is_group_params_ordered"),
    *("weight_decay", "decay_flags", "exec_weight_decay", "grad_centralization_flags"),
    *("loss_scale", "need_scale", "reciprocal_scale", "use_parallel", "optim_filter", "_unique", "_target"),
)


# FTRL: follow the regularized leader, per coordinate (McMahan et al., 2013).


class FTRL(Optimizer):
    """n' = n + g^2; z = z + g - (n'^-lr_power - n^-lr_power) / learning_rate w;
    w = (sign(z) l1 - z) / (n'^-lr_power / learning_rate + 2 l2) where |z| > l1, otherwise 0.

    As in MindSpore, the learning rate is constant (and above 0), and without groups, weight decay applies to all
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
        return self.sqrt(value) if self.lr_power == -0.5 else value**-self.lr_power


# RMSProp: steps divided by the root of the mean square of the gradients (Hinton, 2012).


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


# Gradient descent: stochastic, and with momentum.


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

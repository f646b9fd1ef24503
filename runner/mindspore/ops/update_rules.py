"""Update rules of optimizers, composed of other operators, that assign the parameters they are given; rules of r1.2.

State and variable are parameters, the others tensors or numbers. `use_locking` has no effect: updates are never lost.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.interpreter import current, is_nested
from runner.core.operators import ComposedOperator
from runner.core.values import Tensor, Value, syntax
from runner.ops.array import require_parameter
from runner.ops.elementwise.arithmetic import Abs, Exp, Pow, Sign, Sqrt, Square
from runner.ops.elementwise.compare import Greater, Maximum, Select


@dataclass(frozen=True)
class ComposedUpdateRule(ComposedOperator):
    """Base: `rule` gives the new values of the first operands, which are assigned."""

    returns_state: ClassVar[bool] = True  # whether all new values are the result, or only that of the variable
    takes_tensors: ClassVar[bool] = False  # variable and state may be tensors, outside of networks

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        """The new values of the variable and its state."""
        raise NotImplementedError

    def compose(self, *operands: Any) -> Value | tuple[Value, ...]:
        new = self.rule(*operands)
        for parameter, value in zip(operands, new, strict=False):
            if self.takes_tensors and not is_nested() and type(parameter) is Tensor:
                syntax.assign(parameter, ..., value)
            else:
                current().assign(require_parameter(parameter), value)
        return new if self.returns_state else new[0]


@dataclass(frozen=True)
class ApplyGradientDescent(ComposedUpdateRule):
    """var -= alpha * delta; the result is var. Operands: var, alpha, delta."""

    returns_state: ClassVar = False

    def rule(self, var: Value, alpha: Any, delta: Value) -> tuple[Value, ...]:
        return (var - delta * alpha,)


def shrunk(value: Value, rate: Any, l1: Any, l2: Any) -> Value:
    """The proximal step for the penalties l1 and l2."""
    result: Value = Sign()(value) * Maximum()(Abs()(value) - rate * l1, 0.0) / (rate * l2 + 1.0)
    return result


@dataclass(frozen=True)
class ApplyProximalGradientDescent(ComposedUpdateRule):
    """p = var - alpha * delta; var = sign(p) * max(|p| - alpha * l1, 0) / (1 + alpha * l2); the result is var.

    Operands: var, alpha, l1, l2, delta.
    """

    returns_state: ClassVar = False

    def rule(self, var: Value, alpha: Any, l1: Any, l2: Any, delta: Value) -> tuple[Value, ...]:
        return (shrunk(var - delta * alpha, alpha, l1, l2),)


@dataclass(frozen=True)
class ApplyAdagrad(ComposedUpdateRule):
    """accum += grad ** 2 (unless `update_slots` is false); var -= lr * grad / sqrt(accum).

    Operands: var, accum, lr, grad. Results: var, accum.
    """

    update_slots: bool = True

    def rule(self, var: Value, accum: Value, lr: Any, grad: Value) -> tuple[Value, ...]:
        new = accum + Square()(grad) if self.update_slots else accum * 1.0
        return var - grad * lr / Sqrt()(new), new


@dataclass(frozen=True)
class ApplyAdagradV2(ComposedUpdateRule):
    """As ApplyAdagrad, with `epsilon` added to the root."""

    epsilon: float
    update_slots: bool = True

    def rule(self, var: Value, accum: Value, lr: Any, grad: Value) -> tuple[Value, ...]:
        new = accum + Square()(grad) if self.update_slots else accum * 1.0
        return var - grad * lr / (Sqrt()(new) + self.epsilon), new


@dataclass(frozen=True)
class ApplyProximalAdagrad(ComposedUpdateRule):
    """accum += grad ** 2, then ApplyProximalGradientDescent with the rates lr / sqrt(accum).

    Operands: var, accum, lr, l1, l2, grad. Results: var, accum.
    """

    use_locking: bool = False

    def rule(self, var: Value, accum: Value, lr: Any, l1: Any, l2: Any, grad: Value) -> tuple[Value, ...]:
        new = accum + Square()(grad)
        rate = lr / Sqrt()(new)
        return shrunk(var - grad * rate, rate, l1, l2), new


@dataclass(frozen=True)
class ApplyRMSProp(ComposedUpdateRule):
    """m is the moving mean of grad ** 2; moment = momentum * moment + rate * grad / sqrt(m + epsilon); var -= moment.

    Operands: var, mean_square, moment, learning_rate, grad, decay, momentum, epsilon. The result is var.
    """

    takes_tensors: ClassVar = True
    returns_state: ClassVar = False
    use_locking: bool = False

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        var, mean_square, moment, rate, grad, decay, momentum, epsilon = operands
        square = mean_square * decay + Square()(grad) * (1.0 - decay)
        step = moment * momentum + grad * rate / Sqrt()(square + epsilon)
        return var - step, square, step


@dataclass(frozen=True)
class ApplyCenteredRMSProp(ComposedUpdateRule):
    """As ApplyRMSProp, with the square of the moving mean of grad subtracted from mean_square.

    Operands: var, mean_gradient, mean_square, moment, grad, learning_rate, decay, momentum, epsilon. The result is var.
    """

    takes_tensors: ClassVar = True
    returns_state: ClassVar = False
    use_locking: bool = False

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        var, mean_gradient, mean_square, moment, grad, rate, decay, momentum, epsilon = operands
        mean = mean_gradient * decay + grad * (1.0 - decay)
        square = mean_square * decay + Square()(grad) * (1.0 - decay)
        step = moment * momentum + grad * rate / Sqrt()(square - Square()(mean) + epsilon)
        return var - step, mean, square, step


@dataclass(frozen=True)
class ApplyFtrl(ComposedUpdateRule):
    """Follow the regularized leader with the penalties l1 and l2; the result is var.

    Operands: var, accum, linear, grad, lr, l1, l2, lr_power.
    """

    returns_state: ClassVar = False
    use_locking: bool = False

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        var, accum, linear, grad, lr, l1, l2, lr_power = operands
        new = accum + Square()(grad)
        before, after = (Pow()(value, -lr_power) for value in (accum, new))
        pull = linear + grad - (after - before) / lr * var
        kept = (Sign()(pull) * l1 - pull) / (after / lr + 2.0 * l2)
        return Select()(Greater()(Abs()(pull), l1), kept, Tensor(0.0, kept.dtype)), new, pull


@dataclass(frozen=True)
class ApplyAdaMax(ComposedUpdateRule):
    """m is the moving mean of grad, v = max(beta2 * v, |grad|); var -= lr / (1 - beta1_power) * m / (v + epsilon).

    Operands: var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad. Results: var, m, v.
    """

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad = operands
        mean = m * beta1 + grad * (1.0 - beta1)
        largest = Maximum()(v * beta2, Abs()(grad))
        return var - mean / (largest + epsilon) * (lr / (1.0 - beta1_power)), mean, largest


@dataclass(frozen=True)
class ApplyAdadelta(ComposedUpdateRule):
    """u = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * grad; var -= lr * u; accum and accum_update are moving
    means of grad ** 2 and u ** 2.

    Operands: var, accum, accum_update, lr, rho, epsilon, grad. Results: var, accum, accum_update.
    """

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        var, accum, accum_update, lr, rho, epsilon, grad = operands
        square = accum * rho + Square()(grad) * (1.0 - rho)
        step = Sqrt()(accum_update + epsilon) / Sqrt()(square + epsilon) * grad
        return var - step * lr, square, accum_update * rho + Square()(step) * (1.0 - rho)


@dataclass(frozen=True)
class ApplyAddSign(ComposedUpdateRule):
    """m is the moving mean of grad; var -= lr * (alpha + sign_decay * sign(grad) * sign(m)) * grad.

    Operands: var, m, lr, alpha, sign_decay, beta, grad. Results: var, m.
    """

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        var, m, lr, alpha, sign_decay, beta, grad = operands
        mean = m * beta + grad * (1.0 - beta)
        return var - (Sign()(grad) * Sign()(mean) * sign_decay + alpha) * grad * lr, mean


@dataclass(frozen=True)
class ApplyPowerSign(ComposedUpdateRule):
    """m is the moving mean of grad; var -= lr * exp(logbase * sign_decay * sign(grad) * sign(m)) * grad.

    Operands: var, m, lr, logbase, sign_decay, beta, grad. Results: var, m.
    """

    def rule(self, *operands: Any) -> tuple[Value, ...]:
        var, m, lr, logbase, sign_decay, beta, grad = operands
        mean = m * beta + grad * (1.0 - beta)
        return var - Exp()(Sign()(grad) * Sign()(mean) * sign_decay * logbase) * grad * lr, mean

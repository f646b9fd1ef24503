"""Update rules of optimizers as operators, which return new values; parameters among their operands take them.

Rules of r1.2, with the operand order of MindSpore.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner.core.interpreter import current
from runner.core.lowering import Builder
from runner.core.operators import Primitive, family, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import Parameter, Value
from runner.ops.array import require
from runner.ops.elementwise.arithmetic import in_blocks, with_rank_of
from runner.types import TensorType


def check_operands(variable: TensorType, state: Sequence[TensorType], scalars: Sequence[TensorType]) -> None:
    """Raise ShapeError unless state and gradient have the type of the variable, and scalars its element type."""
    require(variable.dtype.is_float, "needs floats", variable=variable)
    for other in state:
        require(other == variable, "gradient and state must have the variable's type", variable=variable, given=other)
    for other in scalars:
        fits = other == variable.with_shape()
        require(fits, "rates must be scalars of the variable's element type", variable=variable, given=other)


@family
class UpdateRule(Primitive):
    """Base of update rules: a call assigns its outputs to the operands `updated`, where these are parameters.

    So optimizers of r1.2, which apply a rule for its effect, work as they are. The operator itself changes nothing.
    """

    updated: ClassVar[tuple[int, ...]]
    precision: ClassVar = OperandPrecision.MASTER

    def __call__(self, *operands: Any) -> Value:
        outputs = super().__call__(*operands)
        for place, value in zip(self.updated, outputs, strict=True):
            if isinstance(operands[place], Parameter):
                current().assign(operands[place], value)
        return outputs


@primitive
class ApplyMomentum(UpdateRule):
    """accumulation = accumulation * momentum + gradient; variable -= learning_rate * accumulation.

    With `use_nesterov`: variable -= learning_rate * (gradient + momentum * accumulation). Learning rate and momentum
    are scalars. Outputs: the new variable and accumulation.
    """

    flops_each: ClassVar = 4
    updated: ClassVar = (0, 1)

    use_nesterov: bool = False
    use_locking: bool = dataclasses.field(default=False, compare=False)  # without effect

    def infer(
        self,
        variable: TensorType,
        accumulation: TensorType,
        learning_rate: TensorType,
        gradient: TensorType,
        momentum: TensorType,
    ) -> tuple[TensorType, TensorType]:
        check_operands(variable, (accumulation, gradient), (learning_rate, momentum))
        return variable, accumulation

    def kernel(self, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        variable, accumulation, learning_rate, gradient, momentum = operands
        new_variable, new_accum = np.empty_like(variable), np.empty_like(accumulation)

        def update(variable: np.ndarray, accum: np.ndarray, gradient: np.ndarray, *new: np.ndarray) -> None:
            new_variable, new_accum = new
            np.multiply(accum, momentum, out=new_accum)
            new_accum += gradient
            step = gradient + momentum * new_accum if self.use_nesterov else new_accum
            np.multiply(step, learning_rate, out=new_variable)
            np.subtract(variable, new_variable, out=new_variable)

        in_blocks(update, variable, accumulation, gradient, new_variable, new_accum)
        return new_variable, new_accum

    def lower(self, b: Builder, *names: str) -> tuple[str, str]:
        variable, accumulation, learning_rate, gradient, momentum = names
        learning_rate, momentum = (with_rank_of(b, scalar, variable) for scalar in (learning_rate, momentum))
        new_accum = b.node("Add", (b.node("Mul", (accumulation, momentum)), gradient))
        step = b.node("Add", (gradient, b.node("Mul", (new_accum, momentum)))) if self.use_nesterov else new_accum
        return b.node("Sub", (variable, b.node("Mul", (step, learning_rate)))), new_accum


@primitive
class SGD(UpdateRule):
    """Gradient descent with dampened momentum: (parameters, gradient, learning_rate, accum, momentum, stat).

    g = gradient + weight_decay * parameters; accum = momentum * accum + (1 - dampening) * g, but g itself in the first
    step, when `stat` (a scalar counter) is 0; parameters -= learning_rate * accum, or with `nesterov`
    learning_rate * (g + momentum * accum). Outputs: the new parameters, accum and stat.
    """

    flops_each: ClassVar = 4
    updated: ClassVar = (0, 3, 5)

    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def infer(
        self,
        parameters: TensorType,
        gradient: TensorType,
        learning_rate: TensorType,
        accum: TensorType,
        momentum: TensorType,
        stat: TensorType,
    ) -> tuple[TensorType, TensorType, TensorType]:
        check_operands(parameters, (gradient, accum), (learning_rate, momentum, stat))
        return parameters, accum, stat

    def kernel(self, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parameters, gradient, learning_rate, accum, momentum, stat = operands
        one = np.ones((), parameters.dtype)
        g = gradient + parameters * (one * self.weight_decay) if self.weight_decay else gradient
        fresh = g * (one - np.minimum(stat, one) * (one * self.dampening)) if self.dampening else g
        new_accum = accum * momentum + fresh
        step = g + new_accum * momentum if self.nesterov else new_accum
        return parameters - step * learning_rate, new_accum, stat + one

    def lower(self, b: Builder, *names: str) -> tuple[str, str, str]:
        parameters, gradient, learning_rate, accum, momentum, stat = names
        learning_rate, momentum = (with_rank_of(b, scalar, parameters) for scalar in (learning_rate, momentum))
        one = b.const(1.0, like=parameters)
        rank = (1,) * b.type(parameters).ndim
        decay = b.node("Mul", (parameters, b.reshape(b.const(self.weight_decay, like=parameters), rank)))
        g = b.node("Add", (gradient, decay)) if self.weight_decay else gradient
        damped = b.node("Mul", (b.node("Min", (stat, one)), b.const(self.dampening, like=parameters)))
        fresh = b.node("Mul", (g, b.reshape(b.node("Sub", (one, damped)), rank))) if self.dampening else g
        new_accum = b.node("Add", (b.node("Mul", (accum, momentum)), fresh))
        step = b.node("Add", (g, b.node("Mul", (new_accum, momentum)))) if self.nesterov else new_accum
        return b.node("Sub", (parameters, b.node("Mul", (step, learning_rate)))), new_accum, b.node("Add", (stat, one))


@primitive
class Adam(UpdateRule):
    """Kingma and Ba, 2014: (var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, gradient).

    m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
    var -= lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon); with `use_nesterov`
    beta1 m + (1 - beta1) g replaces m there. Outputs: the new var, m and v.
    """

    flops_each: ClassVar = 11
    updated: ClassVar = (0, 1, 2)

    use_locking: bool = dataclasses.field(default=False, compare=False)  # without effect
    use_nesterov: bool = False

    def infer(
        self,
        var: TensorType,
        m: TensorType,
        v: TensorType,
        beta1_power: TensorType,
        beta2_power: TensorType,
        lr: TensorType,
        beta1: TensorType,
        beta2: TensorType,
        epsilon: TensorType,
        gradient: TensorType,
    ) -> tuple[TensorType, TensorType, TensorType]:
        check_operands(var, (m, v, gradient), (beta1_power, beta2_power, lr, beta1, beta2, epsilon))
        return var, m, v

    def kernel(self, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, gradient = operands
        one = np.ones((), var.dtype)
        rate = lr * np.sqrt(one - beta2_power) / (one - beta1_power)
        m = m * beta1 + gradient * (one - beta1)
        v = v * beta2 + gradient * gradient * (one - beta2)
        step = m * beta1 + gradient * (one - beta1) if self.use_nesterov else m
        return var - rate * step / (np.sqrt(v) + epsilon), m, v

    def lower(self, b: Builder, *names: str) -> tuple[str, str, str]:
        var, m, v, *scalars, gradient = names
        beta1_power, beta2_power, lr, beta1, beta2, epsilon = (with_rank_of(b, scalar, var) for scalar in scalars)

        def n(kind: str, *inputs: str) -> str:
            return b.node(kind, inputs)

        one = b.const(1.0, like=var)
        rate = n("Div", n("Mul", lr, n("Sqrt", n("Sub", one, beta2_power))), n("Sub", one, beta1_power))
        kept, fresh = n("Mul", m, beta1), n("Mul", gradient, n("Sub", one, beta1))
        m = n("Add", kept, fresh)
        step = n("Add", n("Mul", m, beta1), fresh) if self.use_nesterov else m
        v = n("Add", n("Mul", v, beta2), n("Mul", n("Mul", gradient, gradient), n("Sub", one, beta2)))
        return n("Sub", var, n("Div", n("Mul", rate, step), n("Add", n("Sqrt", v), epsilon))), m, v

"""Optimizers of configs beyond momentum, SGD and Adam, with the defaults of the reference."""

from typing import Annotated

from runner import nn, register
from runner.config.groups.optimizer import Decay, NotNegative, Parameters, Positive
from runner.validation.rules import LARGEST_FLOAT32, Rule


@register.optimizer("adam_weight_decay")
def adam_weight_decay(
    params: Parameters,
    learning_rate: NotNegative = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Positive = 1e-6,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Adam with decoupled weight decay, without correction of the bias.

    Args:
        learning_rate: initial learning rate
        beta1: decay rate of the first moment
        beta2: decay rate of the second moment
        eps: added to the denominator
        weight_decay: share of the weights that a step subtracts, times the learning rate
    """
    return nn.AdamWeightDecay(params, learning_rate, beta1, beta2, eps, weight_decay)


@register.optimizer("lamb")
def lamb(
    params: Parameters,
    learning_rate: NotNegative = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Positive = 1e-6,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Lamb: Adam with a rate for each layer, for large batches.

    Args:
        learning_rate: initial learning rate
        beta1: decay rate of the first moment
        beta2: decay rate of the second moment
        eps: added to the denominator
        weight_decay: share of the weights that is added to a step
    """
    return nn.Lamb(params, learning_rate, beta1, beta2, eps, weight_decay)


@register.optimizer("lars")
def lars(
    params: Parameters,
    learning_rate: NotNegative = 0.01,
    momentum: NotNegative = 0.9,
    weight_decay: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    use_nesterov: bool = False,
    epsilon: Positive = 1e-5,
    coefficient: Positive = 0.001,
    use_clip: bool = False,
) -> nn.Optimizer:
    """LARS over momentum: a rate for each layer in proportion to its weights, for large batches.

    Args:
        learning_rate: initial learning rate
        momentum: momentum coefficient
        weight_decay: L2 penalty coefficient
        loss_scale: gradients are divided by it
        use_nesterov: Nesterov momentum
        epsilon: added to the norm of the gradient
        coefficient: trust coefficient of the layer's rate
        use_clip: limit the layer's rate to the learning rate
    """
    inner = nn.Momentum(params, learning_rate, momentum, weight_decay, loss_scale, use_nesterov)
    return nn.LARS(inner, epsilon, coefficient, use_clip)


@register.optimizer("rmsprop")
def rmsprop(
    params: Parameters,
    learning_rate: NotNegative = 0.1,
    decay: NotNegative = 0.9,
    momentum: NotNegative = 0.0,
    epsilon: Positive = 1e-10,
    centered: bool = False,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """RMSProp: steps divided by the root of the mean square of the gradients.

    Args:
        learning_rate: initial learning rate
        decay: decay rate of the mean square
        momentum: momentum coefficient
        epsilon: added below the root
        centered: subtract the square of the mean gradient
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient
    """
    return nn.RMSProp(params, learning_rate, decay, momentum, epsilon, False, centered, loss_scale, weight_decay)


@register.optimizer("adagrad")
def adagrad(
    params: Parameters,
    accum: Positive = 0.1,
    learning_rate: NotNegative = 0.001,
    update_slots: bool = True,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Adagrad: steps divided by the root of the sum of the squares of all gradients.

    Args:
        accum: first value of the sum
        learning_rate: initial learning rate
        update_slots: add to the sum
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient
    """
    return nn.Adagrad(params, accum, learning_rate, update_slots, loss_scale, weight_decay)


@register.optimizer("proximal_adagrad")
def proximal_adagrad(
    params: Parameters,
    accum: Positive = 0.1,
    learning_rate: NotNegative = 0.001,
    l1: NotNegative = 0.0,
    l2: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Adagrad with penalties that are applied to the result of a step.

    Args:
        accum: first value of the sum
        learning_rate: initial learning rate
        l1: penalty of the absolute values
        l2: penalty of the squares
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient, added to the gradient
    """
    return nn.ProximalAdagrad(params, accum, learning_rate, l1, l2, False, loss_scale, weight_decay)


@register.optimizer("ftrl")
def ftrl(
    params: Parameters,
    initial_accum: NotNegative = 0.1,
    learning_rate: Positive = 0.001,
    lr_power: Annotated[float, Rule(low=-LARGEST_FLOAT32, high=0)] = -0.5,
    l1: NotNegative = 0.0,
    l2: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """FTRL: follow the regularized leader, for sparse weights.

    Args:
        initial_accum: first value of the sum of squares
        learning_rate: constant learning rate
        lr_power: power of the sum of squares
        l1: penalty of the absolute values
        l2: penalty of the squares
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient, added to the gradient
    """
    return nn.FTRL(params, initial_accum, learning_rate, lr_power, l1, l2, False, loss_scale, weight_decay)

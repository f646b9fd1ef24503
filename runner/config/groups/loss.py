"""The loss functions of configs."""

from typing import Annotated, Literal

from runner import nn, register
from runner.config.groups.record import Records, Settings
from runner.validation.rules import Rule

Reduction = Annotated[Literal["mean", "sum"], Rule(hint="training needs one number per batch")]


class LossSettings(Settings):
    """The loss function. Training needs a single number, so it returns a scalar."""


LOSSES = Records(register.loss, LossSettings, "softmax_cross_entropy")


@register.loss("softmax_cross_entropy")
def softmax_cross_entropy(sparse: bool = True, reduction: Reduction = "mean") -> nn.Cell:
    """Softmax cross-entropy.

    Args:
        sparse: labels are class indices
        reduction: over a batch
    """
    return nn.SoftmaxCrossEntropyWithLogits(sparse, reduction)


@register.loss("mse")
def mse(reduction: Reduction = "mean") -> nn.Cell:
    """Squared error.

    Args:
        reduction: over the values of a batch
    """
    return nn.MSELoss(reduction)

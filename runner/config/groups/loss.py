"""The loss functions of configs."""

from typing import Annotated, Literal

from runner import nn, register
from runner.config.groups.record import Records, Settings
from runner.validation.rules import LARGEST_FLOAT32, Rule

Reduction = Annotated[Literal["mean", "sum"], Rule(hint="training needs one number per batch")]


class LossSettings(Settings):
    """The loss function. Training needs a single number, so it returns a scalar."""


LOSSES = Records(register.loss, LossSettings, "softmax_cross_entropy")


@register.loss("softmax_cross_entropy")
def softmax_cross_entropy(
    sparse: bool = True,
    reduction: Reduction = "mean",
    label_smoothing: Annotated[float, Rule(low=0, below=1)] = 0.0,
    class_weights: Annotated[tuple[float, ...] | None, Rule(low=0)] = None,
) -> nn.Cell:
    """Softmax cross-entropy: one of several classes.

    Args:
        sparse: labels are class indices
        reduction: over a batch
        label_smoothing: share of each label that all classes get in equal parts
        class_weights: weight of the samples of each class; null: all 1
    """
    loss: nn.Cell = nn.SoftmaxCrossEntropyWithLogits(
        sparse, reduction, label_smoothing=label_smoothing, class_weights=class_weights
    )
    return loss


@register.loss("binary_cross_entropy")
def binary_cross_entropy(
    reduction: Reduction = "mean", pos_weight: Annotated[tuple[float, ...] | None, Rule(low=0)] = None
) -> nn.Cell:
    """Binary cross-entropy of logits: targets 0 or 1, one or several per sample.

    Args:
        reduction: over the values of a batch
        pos_weight: weight of targets 1, one for all labels or one for each; null: 1
    """
    return nn.BCEWithLogitsLoss(reduction, pos_weight=pos_weight)


@register.loss("mse")
def mse(reduction: Reduction = "mean") -> nn.Cell:
    """Squared error.

    Args:
        reduction: over the values of a batch
    """
    return nn.MSELoss(reduction)


@register.loss("l1")
def l1(reduction: Reduction = "mean") -> nn.Cell:
    """Absolute error.

    Args:
        reduction: over the values of a batch
    """
    return nn.L1Loss(reduction)


@register.loss("smooth_l1")
def smooth_l1(
    beta: Annotated[float, Rule(above=0, high=LARGEST_FLOAT32)] = 1.0, reduction: Reduction = "mean"
) -> nn.Cell:
    """Squared error up to a difference of beta, absolute error from there on.

    Args:
        beta: difference from which on the loss is linear
        reduction: over the values of a batch
    """
    return nn.SmoothL1Loss(beta, reduction)

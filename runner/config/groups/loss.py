"""Keys of the group `loss`, which depend on its `name`.

A loss function is a record here, listed in `LOSSES`: choices, keys, defaults, help and the loss are derived from it.
Training needs a single number, so a reduction cannot be `none`.
"""

from runner import nn
from runner.config.groups.constructor import ConstructorSettings, argument
from runner.nn.loss import REDUCTIONS
from runner.validation.rules import key

SCALAR_REDUCTIONS = tuple(name for name in REDUCTIONS if name != "none")


class LossSettings(ConstructorSettings):
    """Base class of the settings of loss functions."""

    name: str = key("")  # the loss function

    @property
    def has_one_hot_labels(self) -> bool:
        """Whether labels are one-hot instead of class indices."""
        return False

    @property
    def is_sum(self) -> bool:
        """Whether the losses of a batch are summed, not averaged."""
        return False


class SoftmaxCrossEntropySettings(LossSettings, constructor=nn.SoftmaxCrossEntropyWithLogits):
    """Softmax cross-entropy. Training needs a single number, so its reduction cannot be `none`."""

    name: str = key("softmax_cross_entropy", choices=("softmax_cross_entropy",))  # the loss function
    sparse: bool = True  # labels are class indices
    label_smoothing: float = argument(low=0, below=1)  # share of each label that all classes get in equal parts
    class_weights: tuple[float, ...] | None = argument(low=0)  # of the samples of each class; null: all 1
    reduction: str = key("mean", choices=SCALAR_REDUCTIONS, hint="training needs one number per batch")  # over a batch

    @property
    def has_one_hot_labels(self) -> bool:
        return not self.sparse

    @property
    def is_sum(self) -> bool:
        return self.reduction == "sum"


LOSSES: dict[str, type[LossSettings]] = {kind.name: kind for kind in (SoftmaxCrossEntropySettings,)}

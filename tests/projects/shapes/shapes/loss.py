"""Cross entropy with smoothed labels."""

from typing import Annotated

import runner
from runner import nn, ops


@runner.register.loss("smooth")
class SmoothCrossEntropy(nn.Cell):
    """Cross entropy of logits (N, C) and class numbers (N,) with smoothed labels.

    Args:
        smoothing: share of the probability that all classes have in equal parts
    """

    activation = "softmax"  # from outputs to probabilities, in exported models

    def __init__(self, smoothing: Annotated[float, runner.key(low=0, below=1)] = 0.1) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.log_softmax, self.one_hot, self.mean = nn.LogSoftmax(), ops.OneHot(), ops.ReduceMean()

    def construct(self, logits, labels):
        classes = logits.shape[1]
        target = self.one_hot(labels, classes) * (1.0 - self.smoothing) + self.smoothing / classes
        return self.mean(self.log_softmax(logits) * target) * -float(classes)

"""Floor 4: the language in which networks are written, under the names of `mindspore.nn` r1.2."""

from runner.nn.cell import Cell
from runner.nn.layers import (
    AvgPool2d,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    MaxPool2d,
    ReLU,
    SequentialCell,
    Sigmoid,
    Softmax,
    Tanh,
)
from runner.nn.loss import MSELoss, SoftmaxCrossEntropyWithLogits
from runner.nn.metrics import Accuracy, Loss, Metric
from runner.nn.optim import SGD, Adam, Momentum, Optimizer
from runner.nn.wrap import TrainOneStepCell, WithEvalCell, WithLossCell

__all__ = [
    "SGD",
    "Accuracy",
    "Adam",
    "AvgPool2d",
    "Cell",
    "Conv2d",
    "Dense",
    "Dropout",
    "Flatten",
    "Loss",
    "MSELoss",
    "MaxPool2d",
    "Metric",
    "Momentum",
    "Optimizer",
    "ReLU",
    "SequentialCell",
    "Sigmoid",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "Tanh",
    "TrainOneStepCell",
    "WithEvalCell",
    "WithLossCell",
]

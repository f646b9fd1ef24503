"""Floor 4: the language in which networks are written, under the names of `mindspore.nn` r1.2."""

from typing import TYPE_CHECKING

from runner.host.lazy import late_names

if TYPE_CHECKING:  # for those who read; what runs loads a module when one of its names is asked for
    from runner.nn.activation import (
        ELU,
        GELU,
        HSigmoid,
        HSwish,
        LeakyReLU,
        LogSoftmax,
        PReLU,
        ReLU,
        ReLU6,
        Sigmoid,
        Softmax,
        Tanh,
    )
    from runner.nn.basic import Dense, Dropout, Embedding, Flatten
    from runner.nn.cell import Cell
    from runner.nn.container import CellList, SequentialCell
    from runner.nn.convolution import Conv2d, Conv2dTranspose
    from runner.nn.dynamic_lr import (
        cosine_decay_lr,
        exponential_decay_lr,
        inverse_decay_lr,
        natural_exp_decay_lr,
        piecewise_constant_lr,
        polynomial_decay_lr,
        warmup_lr,
    )
    from runner.nn.loss import MSELoss, SoftmaxCrossEntropyWithLogits
    from runner.nn.loss_scale import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, TrainOneStepWithLossScaleCell
    from runner.nn.metrics import Accuracy, Loss, Metric
    from runner.nn.normalization import BatchNorm1d, BatchNorm2d, LayerNorm
    from runner.nn.optim import SGD, Adam, Momentum, Optimizer
    from runner.nn.pooling import AvgPool2d, MaxPool2d
    from runner.nn.schedule import (
        ConstantLR,
        CosineDecayLR,
        ExponentialDecayLR,
        InverseDecayLR,
        LearningRateSchedule,
        NaturalExpDecayLR,
        PerStepLR,
        PiecewiseConstantLR,
        PolynomialDecayLR,
        StepLR,
        WarmUpLR,
        WarmUpThen,
    )
    from runner.nn.wrap import TrainOneStepCell, WithEvalCell, WithLossCell
else:
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "activation": "ELU GELU HSigmoid HSwish LeakyReLU LogSoftmax PReLU ReLU ReLU6 Sigmoid Softmax Tanh",
            "basic": "Dense Dropout Embedding Flatten",
            "cell": "Cell",
            "container": "CellList SequentialCell",
            "convolution": "Conv2d Conv2dTranspose",
            "dynamic_lr": (
                "cosine_decay_lr exponential_decay_lr inverse_decay_lr natural_exp_decay_lr piecewise_constant_lr "
                "polynomial_decay_lr warmup_lr"
            ),
            "layernorm": "LayerNorm",
            "loss": "MSELoss SoftmaxCrossEntropyWithLogits",
            "loss_scale": "DynamicLossScaleUpdateCell FixedLossScaleUpdateCell TrainOneStepWithLossScaleCell",
            "metrics": "Accuracy Loss Metric",
            "normalization": "BatchNorm1d BatchNorm2d",
            "optim": "SGD Adam Momentum Optimizer",
            "pooling": "AvgPool2d MaxPool2d",
            "schedule": (
                "ConstantLR CosineDecayLR ExponentialDecayLR InverseDecayLR LearningRateSchedule NaturalExpDecayLR "
                "PerStepLR PiecewiseConstantLR PolynomialDecayLR StepLR WarmUpLR WarmUpThen"
            ),
            "wrap": "TrainOneStepCell WithEvalCell WithLossCell",
        },
    )

__all__ = [
    "ELU",
    "GELU",
    "SGD",
    "Accuracy",
    "Adam",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Cell",
    "CellList",
    "ConstantLR",
    "Conv2d",
    "Conv2dTranspose",
    "CosineDecayLR",
    "Dense",
    "Dropout",
    "DynamicLossScaleUpdateCell",
    "Embedding",
    "ExponentialDecayLR",
    "FixedLossScaleUpdateCell",
    "Flatten",
    "HSigmoid",
    "HSwish",
    "InverseDecayLR",
    "LayerNorm",
    "LeakyReLU",
    "LearningRateSchedule",
    "LogSoftmax",
    "Loss",
    "MSELoss",
    "MaxPool2d",
    "Metric",
    "Momentum",
    "NaturalExpDecayLR",
    "Optimizer",
    "PReLU",
    "PerStepLR",
    "PiecewiseConstantLR",
    "PolynomialDecayLR",
    "ReLU",
    "ReLU6",
    "SequentialCell",
    "Sigmoid",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "StepLR",
    "Tanh",
    "TrainOneStepCell",
    "TrainOneStepWithLossScaleCell",
    "WarmUpLR",
    "WarmUpThen",
    "WithEvalCell",
    "WithLossCell",
    "cosine_decay_lr",
    "exponential_decay_lr",
    "inverse_decay_lr",
    "natural_exp_decay_lr",
    "piecewise_constant_lr",
    "polynomial_decay_lr",
    "warmup_lr",
]

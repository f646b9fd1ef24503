from runner.nn.activation import (
    ELU as ELU,
    GELU as GELU,
    HSigmoid as HSigmoid,
    HSwish as HSwish,
    LeakyReLU as LeakyReLU,
    LogSoftmax as LogSoftmax,
    PReLU as PReLU,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Tanh as Tanh,
)
from runner.nn.basic import Dense as Dense, Dropout as Dropout, Embedding as Embedding, Flatten as Flatten
from runner.nn.cell import Cell as Cell
from runner.nn.container import CellList as CellList, SequentialCell as SequentialCell
from runner.nn.convolution import Conv2d as Conv2d, Conv2dTranspose as Conv2dTranspose
from runner.nn.dynamic_lr import (
    cosine_decay_lr as cosine_decay_lr,
    exponential_decay_lr as exponential_decay_lr,
    inverse_decay_lr as inverse_decay_lr,
    natural_exp_decay_lr as natural_exp_decay_lr,
    piecewise_constant_lr as piecewise_constant_lr,
    polynomial_decay_lr as polynomial_decay_lr,
    warmup_lr as warmup_lr,
)
from runner.nn.loss import MSELoss as MSELoss, SoftmaxCrossEntropyWithLogits as SoftmaxCrossEntropyWithLogits
from runner.nn.loss_scale import (
    DynamicLossScaleUpdateCell as DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell as FixedLossScaleUpdateCell,
    TrainOneStepWithLossScaleCell as TrainOneStepWithLossScaleCell,
)
from runner.nn.metrics import Accuracy as Accuracy, Loss as Loss, Metric as Metric
from runner.nn.normalization import BatchNorm1d as BatchNorm1d, BatchNorm2d as BatchNorm2d, LayerNorm as LayerNorm
from runner.nn.optim import SGD as SGD, Adam as Adam, Momentum as Momentum, Optimizer as Optimizer
from runner.nn.pooling import AvgPool2d as AvgPool2d, MaxPool2d as MaxPool2d
from runner.nn.schedule import (
    ConstantLR as ConstantLR,
    CosineDecayLR as CosineDecayLR,
    ExponentialDecayLR as ExponentialDecayLR,
    InverseDecayLR as InverseDecayLR,
    LearningRateSchedule as LearningRateSchedule,
    NaturalExpDecayLR as NaturalExpDecayLR,
    PerStepLR as PerStepLR,
    PiecewiseConstantLR as PiecewiseConstantLR,
    PolynomialDecayLR as PolynomialDecayLR,
    StepLR as StepLR,
    WarmUpLR as WarmUpLR,
    WarmUpThen as WarmUpThen,
)
from runner.nn.wrap import (
    TrainOneStepCell as TrainOneStepCell,
    WithEvalCell as WithEvalCell,
    WithLossCell as WithLossCell,
)

from runner.mindspore.nn.dynamic_lr import (
    cosine_decay_lr as cosine_decay_lr,
    exponential_decay_lr as exponential_decay_lr,
    inverse_decay_lr as inverse_decay_lr,
    natural_exp_decay_lr as natural_exp_decay_lr,
    piecewise_constant_lr as piecewise_constant_lr,
    polynomial_decay_lr as polynomial_decay_lr,
    warmup_lr as warmup_lr,
)
from runner.mindspore.nn.images import (
    MSSSIM as MSSSIM,
    PSNR as PSNR,
    SSIM as SSIM,
    CentralCrop as CentralCrop,
    ImageGradients as ImageGradients,
    Pad as Pad,
    ResizeBilinear as ResizeBilinear,
    Unfold as Unfold,
)
from runner.mindspore.nn.layers import (
    LSTM as LSTM,
    Conv2dBnAct as Conv2dBnAct,
    Conv3d as Conv3d,
    Conv3dTranspose as Conv3dTranspose,
    DenseBnAct as DenseBnAct,
    Embedding as Embedding,
    EmbeddingLookup as EmbeddingLookup,
    ForwardValueAndGrad as ForwardValueAndGrad,
    GroupNorm as GroupNorm,
    InstanceNorm2d as InstanceNorm2d,
    LSTMCell as LSTMCell,
    MultiFieldEmbeddingLookup as MultiFieldEmbeddingLookup,
    ParameterUpdate as ParameterUpdate,
    TimeDistributed as TimeDistributed,
    WithGradCell as WithGradCell,
)
from runner.mindspore.nn.losses import (
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    DiceLoss as DiceLoss,
    FocalLoss as FocalLoss,
    MultiClassDiceLoss as MultiClassDiceLoss,
    SampledSoftmaxLoss as SampledSoftmaxLoss,
)
from runner.mindspore.nn.math import (
    ClipByNorm as ClipByNorm,
    DiGamma as DiGamma,
    L1Regularizer as L1Regularizer,
    LBeta as LBeta,
    LGamma as LGamma,
    MatDet as MatDet,
    MatInverse as MatInverse,
    MatMul as MatMul,
    MatrixDiag as MatrixDiag,
    MatrixDiagPart as MatrixDiagPart,
    MatrixSetDiag as MatrixSetDiag,
    Moments as Moments,
    Norm as Norm,
    Range as Range,
    ReduceLogSumExp as ReduceLogSumExp,
    Tril as Tril,
    Triu as Triu,
)
from runner.nn.basic import (
    ELU as ELU,
    GELU as GELU,
    CellList as CellList,
    Dense as Dense,
    Dropout as Dropout,
    FastGelu as FastGelu,
    Flatten as Flatten,
    HSigmoid as HSigmoid,
    HSwish as HSwish,
    LeakyReLU as LeakyReLU,
    LogSigmoid as LogSigmoid,
    LogSoftmax as LogSoftmax,
    OneHot as OneHot,
    PReLU as PReLU,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    SequentialCell as SequentialCell,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Tanh as Tanh,
    get_activation as get_activation,
)
from runner.nn.cell import (
    Cell as Cell,
)
from runner.nn.convolution import (
    AvgPool1d as AvgPool1d,
    AvgPool2d as AvgPool2d,
    Conv1d as Conv1d,
    Conv1dTranspose as Conv1dTranspose,
    Conv2d as Conv2d,
    Conv2dTranspose as Conv2dTranspose,
    MaxPool1d as MaxPool1d,
    MaxPool2d as MaxPool2d,
)
from runner.nn.head import (
    freeze as freeze,
    replace_head as replace_head,
)
from runner.nn.loss.losses import (
    BCELoss as BCELoss,
    BCEWithLogitsLoss as BCEWithLogitsLoss,
    L1Loss as L1Loss,
    LossBase as LossBase,
    MAELoss as MAELoss,
    MSELoss as MSELoss,
    RMSELoss as RMSELoss,
    SmoothL1Loss as SmoothL1Loss,
    SoftmaxCrossEntropyWithLogits as SoftmaxCrossEntropyWithLogits,
)
from runner.nn.metrics.base import (
    Metric as Metric,
    rearrange_inputs as rearrange_inputs,
)
from runner.nn.metrics.by_name import (
    get_metric_fn as get_metric_fn,
    get_metrics as get_metrics,
    names as names,
)
from runner.nn.metrics.classification import (
    F1 as F1,
    ROC as ROC,
    Accuracy as Accuracy,
    ConfusionMatrix as ConfusionMatrix,
    ConfusionMatrixMetric as ConfusionMatrixMetric,
    Fbeta as Fbeta,
    Precision as Precision,
    Recall as Recall,
    Top1CategoricalAccuracy as Top1CategoricalAccuracy,
    Top5CategoricalAccuracy as Top5CategoricalAccuracy,
    TopKCategoricalAccuracy as TopKCategoricalAccuracy,
    auc as auc,
)
from runner.nn.metrics.images import (
    Dice as Dice,
    HausdorffDistance as HausdorffDistance,
    MeanSurfaceDistance as MeanSurfaceDistance,
    OcclusionSensitivity as OcclusionSensitivity,
    RootMeanSquareDistance as RootMeanSquareDistance,
)
from runner.nn.metrics.regression import (
    MAE as MAE,
    MSE as MSE,
    R2 as R2,
    CosineSimilarity as CosineSimilarity,
    Loss as Loss,
)
from runner.nn.metrics.text import (
    BleuScore as BleuScore,
    Perplexity as Perplexity,
)
from runner.nn.normalization import (
    BatchNorm1d as BatchNorm1d,
    BatchNorm2d as BatchNorm2d,
    BatchNorm3d as BatchNorm3d,
    GlobalBatchNorm as GlobalBatchNorm,
    LayerNorm as LayerNorm,
    SyncBatchNorm as SyncBatchNorm,
)
from runner.nn.optim.optimizer import (
    Optimizer as Optimizer,
)
from runner.nn.optim.rules import (
    FTRL as FTRL,
    LARS as LARS,
    SGD as SGD,
    Adagrad as Adagrad,
    Adam as Adam,
    AdamOffload as AdamOffload,
    AdamWeightDecay as AdamWeightDecay,
    Lamb as Lamb,
    LazyAdam as LazyAdam,
    Momentum as Momentum,
    ProximalAdagrad as ProximalAdagrad,
    RMSProp as RMSProp,
)
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
    DistributedGradReducer as DistributedGradReducer,
    DynamicLossScaleUpdateCell as DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell as FixedLossScaleUpdateCell,
    TrainOneStepCell as TrainOneStepCell,
    TrainOneStepWithLossScaleCell as TrainOneStepWithLossScaleCell,
    WithEvalCell as WithEvalCell,
    WithLossCell as WithLossCell,
)

from runner.mindspore.nn.convolution3d import Conv3d as Conv3d, Conv3dTranspose as Conv3dTranspose
from runner.mindspore.nn.dynamic_lr import (
    cosine_decay_lr as cosine_decay_lr,
    exponential_decay_lr as exponential_decay_lr,
    inverse_decay_lr as inverse_decay_lr,
    natural_exp_decay_lr as natural_exp_decay_lr,
    piecewise_constant_lr as piecewise_constant_lr,
    polynomial_decay_lr as polynomial_decay_lr,
    warmup_lr as warmup_lr,
)
from runner.mindspore.nn.embedding import (
    ClipByNorm as ClipByNorm,
    Embedding as Embedding,
    EmbeddingLookup as EmbeddingLookup,
    L1Regularizer as L1Regularizer,
    MultiFieldEmbeddingLookup as MultiFieldEmbeddingLookup,
    Norm as Norm,
)
from runner.mindspore.nn.gradient_cells import (
    ForwardValueAndGrad as ForwardValueAndGrad,
    ParameterUpdate as ParameterUpdate,
    WithGradCell as WithGradCell,
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
from runner.mindspore.nn.losses import (
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    DiceLoss as DiceLoss,
    FocalLoss as FocalLoss,
    MultiClassDiceLoss as MultiClassDiceLoss,
    SampledSoftmaxLoss as SampledSoftmaxLoss,
)
from runner.mindspore.nn.math import (
    DiGamma as DiGamma,
    LBeta as LBeta,
    LGamma as LGamma,
    MatDet as MatDet,
    MatInverse as MatInverse,
    MatMul as MatMul,
    MatrixDiag as MatrixDiag,
    MatrixDiagPart as MatrixDiagPart,
    MatrixSetDiag as MatrixSetDiag,
    Moments as Moments,
    Range as Range,
    ReduceLogSumExp as ReduceLogSumExp,
    Tril as Tril,
    Triu as Triu,
)
from runner.mindspore.nn.normalization import (
    Conv2dBnAct as Conv2dBnAct,
    DenseBnAct as DenseBnAct,
    GroupNorm as GroupNorm,
    InstanceNorm2d as InstanceNorm2d,
)
from runner.mindspore.nn.sequences import LSTM as LSTM, LSTMCell as LSTMCell, TimeDistributed as TimeDistributed
from runner.nn.basic import *
from runner.nn.cell import *
from runner.nn.container import *
from runner.nn.convolution import *
from runner.nn.head import *
from runner.nn.loss.losses import *
from runner.nn.metrics.base import *
from runner.nn.metrics.by_name import *
from runner.nn.metrics.classification import *
from runner.nn.metrics.others import *
from runner.nn.normalization import *
from runner.nn.optim.optimizer import *
from runner.nn.optim.rules import *
from runner.nn.pooling import *
from runner.nn.schedule import *
from runner.nn.wrap import *

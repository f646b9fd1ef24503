from runner.mindspore.nn.losses import (
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    DiceLoss as DiceLoss,
    FocalLoss as FocalLoss,
    MultiClassDiceLoss as MultiClassDiceLoss,
    SampledSoftmaxLoss as SampledSoftmaxLoss,
)
from runner.nn.loss.base import *
from runner.nn.loss.binary import *
from runner.nn.loss.cross_entropy import *
from runner.nn.loss.values import *

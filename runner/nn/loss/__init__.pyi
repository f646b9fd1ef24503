from runner.mindspore.nn.losses import (
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    DiceLoss as DiceLoss,
    FocalLoss as FocalLoss,
    MultiClassDiceLoss as MultiClassDiceLoss,
    SampledSoftmaxLoss as SampledSoftmaxLoss,
)
from runner.nn.loss.losses import *

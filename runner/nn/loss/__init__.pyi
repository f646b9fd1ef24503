from runner.mindspore.nn.losses import (
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    DiceLoss as DiceLoss,
    FocalLoss as FocalLoss,
    MultiClassDiceLoss as MultiClassDiceLoss,
    SampledSoftmaxLoss as SampledSoftmaxLoss,
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

from runner.dataset.vision.augment import (
    RandomCrop as RandomCrop,
    RandomHorizontalFlip as RandomHorizontalFlip,
    RandomVerticalFlip as RandomVerticalFlip,
)
from runner.dataset.vision.c_transforms.geometry import *
from runner.dataset.vision.c_transforms.intensity import *
from runner.mindspore.vision.array_transforms import (
    AutoContrast as AutoContrast,
    CutMixBatch as CutMixBatch,
    CutOut as CutOut,
    Decode as Decode,
    Equalize as Equalize,
    Invert as Invert,
    MixUpBatch as MixUpBatch,
    RandomAffine as RandomAffine,
    RandomColor as RandomColor,
    RandomColorAdjust as RandomColorAdjust,
    RandomCropDecodeResize as RandomCropDecodeResize,
    RandomPosterize as RandomPosterize,
    RandomResize as RandomResize,
    RandomResizedCrop as RandomResizedCrop,
    RandomRotation as RandomRotation,
    RandomSelectSubpolicy as RandomSelectSubpolicy,
    RandomSharpness as RandomSharpness,
    RandomSolarize as RandomSolarize,
    SoftDvppDecodeRandomCropResizeJpeg as SoftDvppDecodeRandomCropResizeJpeg,
    SoftDvppDecodeResizeJpeg as SoftDvppDecodeResizeJpeg,
    UniformAugment as UniformAugment,
)

from runner.dataset.transforms.transform import OneHot as OneHot, TypeCast as TypeCast
from runner.mindspore.dataset.transforms import (
    Compose as Compose,
    Concatenate as Concatenate,
    Duplicate as Duplicate,
    Fill as Fill,
    Mask as Mask,
    PadEnd as PadEnd,
    RandomApply as RandomApply,
    RandomChoice as RandomChoice,
    Relational as Relational,
    Slice as Slice,
    Unique as Unique,
)

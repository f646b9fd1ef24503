from runner.dataset.transforms.c_transforms.arrays import *
from runner.dataset.transforms.c_transforms.labels import *
from runner.dataset.transforms.composition import (
    Compose as Compose,
    RandomApply as RandomApply,
    RandomChoice as RandomChoice,
)

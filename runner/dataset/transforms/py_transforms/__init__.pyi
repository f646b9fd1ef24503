from runner.dataset.transforms.composition import (
    Compose as Compose,
    RandomApply as RandomApply,
    RandomChoice as RandomChoice,
    RandomOrder as RandomOrder,
)
from runner.dataset.transforms.py_transforms.labels import *

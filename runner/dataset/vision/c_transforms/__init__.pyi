from runner.dataset.vision.augment import (
    RandomCrop as RandomCrop,
    RandomHorizontalFlip as RandomHorizontalFlip,
    RandomVerticalFlip as RandomVerticalFlip,
)
from runner.dataset.vision.c_transforms.color import *
from runner.dataset.vision.c_transforms.decode import *
from runner.dataset.vision.c_transforms.geometry import *
from runner.dataset.vision.c_transforms.intensity import *
from runner.dataset.vision.c_transforms.mixture import *
from runner.dataset.vision.c_transforms.policy import *
from runner.dataset.vision.c_transforms.rotation import *

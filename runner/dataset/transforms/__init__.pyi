from runner.dataset import vision as vision
from runner.dataset.transforms import c_transforms as c_transforms, py_transforms as py_transforms
from runner.dataset.transforms.transform import (
    Affine as Affine,
    RandomTransform as RandomTransform,
    Transform as Transform,
)

from runner.dataset.vision.py_transforms.array import *
from runner.dataset.vision.py_transforms.color import *
from runner.dataset.vision.py_transforms.conversion import *
from runner.dataset.vision.py_transforms.crop import *
from runner.dataset.vision.py_transforms.erasure import *
from runner.dataset.vision.py_transforms.rotation import *

"""Image transforms of Pillow's images, under MindSpore's names. They take arrays of bytes [H, W, C], too.

Source: `mindspore.dataset.vision.py_transforms` r1.2.
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)

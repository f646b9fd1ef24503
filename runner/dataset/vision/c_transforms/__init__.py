"""Image transforms of arrays, under MindSpore's names (imported as `CV`). Images are height x width x channels.

Each is also callable directly, on an array or an image of Pillow. Source: `mindspore.dataset.vision.c_transforms` r1.2.
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)

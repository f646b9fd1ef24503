"""Image transforms: those of MindSpore are in `c_transforms` (arrays) and `py_transforms` (images of Pillow)."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)

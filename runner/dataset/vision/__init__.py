"""Image transforms: those of the reference are in `c_transforms` (arrays) and `py_transforms` (images of Pillow)."""

from runner.dataset.vision.border import Border, ImageBatchFormat
from runner.dataset.vision.inter import Inter

__all__ = ["Border", "ImageBatchFormat", "Inter"]

"""Image transforms: those of the reference are in `c_transforms`."""

from runner.dataset.vision.inter import Inter

__all__ = ["Inter"]

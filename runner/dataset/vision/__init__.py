"""Image transforms; `c_transforms` holds those of the reference."""

from runner.dataset.vision.inter import Inter

__all__ = ["Inter"]

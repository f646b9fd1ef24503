"""Transforms of values; `c_transforms` holds those of the reference, `Transform` is the base of own ones."""

from runner.dataset.transforms.transform import Affine, Transform

__all__ = ["Affine", "Transform"]

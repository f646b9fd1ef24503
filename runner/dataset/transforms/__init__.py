"""Transforms of values: those of the reference in `c_transforms`, and the base classes of custom ones."""

from runner.dataset.transforms.transform import Affine, RandomTransform, Transform

__all__ = ["Affine", "RandomTransform", "Transform"]

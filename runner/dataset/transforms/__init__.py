"""Transforms of values: `c_transforms` holds the reference's, own ones derive from `Transform`, `RandomTransform`."""

from runner.dataset.transforms.transform import Affine, RandomTransform, Transform

__all__ = ["Affine", "RandomTransform", "Transform"]

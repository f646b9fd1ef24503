"""Transforms of any column, under MindSpore's names (imported as `CT`).

Source: `mindspore.dataset.transforms.c_transforms` r1.2.
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)

"""Transforms of any column in Python, under MindSpore's names.

Source: `mindspore.dataset.transforms.py_transforms` r1.2.
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)

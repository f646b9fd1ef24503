"""Datasets for training, under MindSpore's names; `__init__.pyi` lists them.

>>> import runner.dataset as ds
>>> import runner.dataset.vision.c_transforms as CV
>>> data = ds.DigitsDataset("train").map(CV.Resize((32, 32)), "image").shuffle(2000).batch(32, drop_remainder=True)
>>> data.get_dataset_size(), data.output_shapes()
(44, [[32, 32, 32, 1], [32]])
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)

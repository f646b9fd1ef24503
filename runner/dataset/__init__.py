"""Data for training, under the reference's names.

>>> import runner.dataset as ds
>>> import runner.dataset.vision.c_transforms as CV
>>> data = ds.DigitsDataset("train").map(CV.Resize((32, 32)), "image").shuffle(2000).batch(32, drop_remainder=True)
>>> data.get_dataset_size(), data.output_shapes()
(44, [[32, 32, 32, 1], [32]])
"""

from runner.dataset import transforms, vision
from runner.dataset.catalog import DatasetSettings, open_dataset
from runner.dataset.formats.download import download_mnist
from runner.dataset.pipeline import Dataset
from runner.dataset.sources import Cifar10Dataset, DigitsDataset, MnistDataset, NumpySlicesDataset, SyntheticDataset

__all__ = [
    "Cifar10Dataset",
    "Dataset",
    "DatasetSettings",
    "DigitsDataset",
    "MnistDataset",
    "NumpySlicesDataset",
    "SyntheticDataset",
    "download_mnist",
    "open_dataset",
    "transforms",
    "vision",
]

from runner.dataset import transforms as transforms, vision as vision
from runner.dataset.catalog import DatasetSettings as DatasetSettings, open_dataset as open_dataset
from runner.dataset.formats.download import download_mnist as download_mnist
from runner.dataset.pipeline import Dataset as Dataset
from runner.dataset.sources import (
    Cifar10Dataset as Cifar10Dataset,
    DigitsDataset as DigitsDataset,
    MnistDataset as MnistDataset,
    NumpySlicesDataset as NumpySlicesDataset,
    SyntheticDataset as SyntheticDataset,
)

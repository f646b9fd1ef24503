"""CIFAR-10 in two halves: vehicles and others to learn from first, the other classes to fine-tune on."""

from typing import Literal

import numpy as np

import runner
from runner.dataset import Dataset
from runner.dataset.catalog import image_dataset

CLASSES = {
    "first": ("airplane", "automobile", "bird", "cat", "deer"),
    "second": ("dog", "frog", "horse", "ship", "truck"),
}


@runner.register.dataset("half_of_cifar10")
def half_of_cifar10(
    split: Literal["train", "test"],
    half: Literal["first", "second"],
    data_dir: str = "datasets/cifar-10-batches-bin",
) -> Dataset:
    """Images of five classes: `image` Float32 [3, 32, 32], cropped and mirrored at random in training, `label` Int32.

    Args:
        half: which five of the ten classes
        data_dir: the folder with the binary files of CIFAR-10
    """
    first = 0 if half == "first" else 5
    data = image_dataset("cifar10", split, data_dir, augment=split == "train")
    data = data.filter(lambda label: first <= label < first + 5, "label")
    data = data.map(lambda label: np.int32(label - first), "label")
    data.class_names, data.num_classes = CLASSES[half], 5
    return data

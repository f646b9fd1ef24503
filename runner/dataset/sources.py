"""The public dataset classes. Each reads its data in the constructor, so that damaged data is reported before training.

All take `num_samples` (only the first rows of the data), `shuffle` (True: a full shuffle in every epoch, before
sharding; None or False: the order of the data, where the reference shuffles for None) or a `sampler` that determines
rows and order (`runner/dataset/samplers.py`), `num_shards` with `shard_id` (rows `shard_id::num_shards` of that order)
and `num_parallel_workers` (1 to 64 threads that prefetch batches; a single one is used only for large batches, and
results never depend on them). Source: `mindspore.dataset` r1.2.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import runner.dataset.formats.cifar as cifar
import runner.dataset.formats.digits as digits
import runner.dataset.formats.idx as idx
from runner.dataset.column import Column
from runner.dataset.formats.content import missing
from runner.dataset.formats.synthetic import make_images
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.selection import RowSelection, labels_column
from runner.errors import ConfigError
from runner.validation.arguments import as_list, flag, one_of, whole_number

__all__ = [
    "Cifar10Dataset",
    "DigitsDataset",
    "MnistDataset",
    "SyntheticDataset",
]

USAGES = ("train", "test", "all")
Folder = str | PathLike[str]
Pair = tuple[np.ndarray, np.ndarray]  # images and labels


class MnistDataset(Dataset):
    """MNIST: columns `image` uint8 [28, 28, 1] and `label`, uint32 for scripts and int32 for networks.

    Reads `train-*` and `t10k-*` in IDX format, plain or `.gz`, from the folder or its `train` and `test` folders.
    `usage` is "train", "test" or "all"; None is all existing splits. A file of the published shape must have the
    published sha256; `verify=False` accepts other data of that shape (Fashion-MNIST). Other shapes are always
    accepted. Raises DataError when a file is missing or damaged.
    """

    def __init__(
        self,
        dataset_dir: Folder,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
        *,
        verify: bool = True,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        folder = _folder(dataset_dir)
        flag({}, verify=verify)
        present = [split for split in idx.PREFIXES if idx.has_part_of(folder, split)]
        if usage is None and not present:
            raise missing(
                folder, "MNIST's train-* and t10k-* files, in the folder or in its train/ and test/", idx.MISSING
            )
        splits = _splits(usage, present)
        data = _concatenate([idx.read_split(folder, split, verify) for split in splits], folder)
        super().__init__(*selection.apply(_labelled(data, selection)))


class Cifar10Dataset(Dataset):
    """CIFAR-10: columns `image` uint8 [32, 32, 3] (red, green, blue) and `label`, of types as for MNIST.

    Reads `data_batch_{1..5}.bin` (those that exist) and `test_batch.bin`, plain or `.gz`. `usage` as for MNIST.
    Raises DataError when a file is missing or damaged.
    """

    def __init__(
        self,
        dataset_dir: Folder,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        folder = _folder(dataset_dir)
        present = [split for split in cifar.FILES if cifar.split_files(folder, split)]
        if usage is None and not present:
            raise missing(folder, "CIFAR-10's data_batch_*.bin and test_batch.bin", cifar.MISSING)
        data = _concatenate([cifar.read_split(folder, split) for split in _splits(usage, present)], folder)
        super().__init__(*selection.apply(_labelled(data, selection)))


class DigitsDataset(Dataset):
    """Handwritten digits, distributed with runner: columns `image` uint8 [8, 8, 1] (0..255) and `label` int32.

    1,437 rows for "train" and 360 for "test", by a fixed split; None and "all" are all 1,797.

    >>> DigitsDataset("test").get_dataset_size()
    360
    """

    def __init__(
        self,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id, sampler)
        chosen = "all" if usage is None else usage
        one_of({}, USAGES, usage=chosen)
        images, labels = digits.read_digits()
        rows = np.arange(len(labels)) if chosen == "all" else digits.split_rows(chosen)
        super().__init__(*selection.apply({"image": images[rows], "label": labels[rows]}))


class SyntheticDataset(Dataset):
    """Random images of learnable classes: columns `image` uint8 [H, W, C] and `label` int32.

    They depend on `seed`, not on the run's seed; "train" and "test" have the same classes.

    >>> SyntheticDataset(num_samples=4, image_shape=(8, 8, 1)).get_col_names()
    ['image', 'label']
    """

    def __init__(
        self,
        num_samples: int = 1024,
        image_shape: Sequence[int] = (28, 28, 1),
        num_classes: int = 10,
        usage: str = "train",
        seed: int = 1,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        selection = RowSelection(num_samples, num_parallel_workers, shuffle, num_shards, shard_id)
        one_of({}, USAGES[:2], usage=usage)
        sides = tuple(whole_number("image_shape", side, 1) for side in as_list(image_shape))
        if len(sides) != 3:
            raise ConfigError("not the shape of an image", argument="image_shape", value=sides, allowed="(H, W, C)")
        count, classes = whole_number("num_samples", num_samples, 1), whole_number("num_classes", num_classes, 1)
        shape = sides[0], sides[1], sides[2]
        images, labels = make_images(count, shape, classes, whole_number("seed", seed, 0), usage)
        super().__init__(*selection.apply({"image": images, "label": labels}))


def _folder(dataset_dir: Folder) -> Path:
    if not isinstance(dataset_dir, str | PathLike) or not str(dataset_dir):
        raise ConfigError("not a folder", argument="dataset_dir", value=repr(dataset_dir), allowed="a path")
    return Path(dataset_dir).expanduser()


def _splits(usage: str | None, present: list[str]) -> list[str]:
    if usage is None:
        return present
    one_of({}, USAGES, usage=usage)
    return ["train", "test"] if usage == "all" else [usage]


def _concatenate(parts: list[Pair], folder: Path) -> dict[str, np.ndarray]:
    shapes = {images.shape[1:] for images, _ in parts}
    if len(shapes) != 1:
        raise ConfigError("the splits have images of different sizes", folder=folder, found=shapes, allowed="one usage")
    images, labels = (part[0] if len(parts) == 1 else np.concatenate(part) for part in zip(*parts, strict=True))
    return {"image": images, "label": labels}


def _labelled(data: Mapping[str, np.ndarray], selection: RowSelection) -> dict[str, np.ndarray | Column]:
    return {**data, "label": labels_column("label", data["label"][: selection.num_samples])}

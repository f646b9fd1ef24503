"""CIFAR's binary format: records of one label byte (CIFAR-100: two) and 3,072 pixels, as planes of red, green and blue.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", and the data set's own page.
"""

from pathlib import Path

import numpy as np

from runner.dataset.formats.content import Content, missing, stored_as

CLASSES = 10
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
FILES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
MISSING = "unpack cifar-10-binary.tar.gz and set dataset.data_dir to its folder"
DAMAGED = "unpack the file from cifar-10-binary.tar.gz again, or set dataset.data_dir to a good copy"
DAMAGED_100 = "unpack the file from cifar-100-binary.tar.gz again, or name a folder with a good copy"
CLASSES_100 = {"coarse_label": 20, "fine_label": 100}
FILES_100 = {"train": "train.bin", "test": "test.bin"}


def read_records(path: Path) -> np.ndarray:
    """A file of records, plain or gzip, as uint8 [N, 3073].

    Raises DataError for a size that is not a multiple of 3,073, and for a label above 9.
    """
    content = Content.of_file(path, DAMAGED)
    data = content.rest()
    if len(data) == 0 or len(data) % RECORD:
        cut = f", the last {len(data) % RECORD} in an incomplete record" if len(data) else ""
        raise content.error(f"whole records of {RECORD} bytes", f"{len(data)} bytes{cut}")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    first = int((records[:, 0] >= CLASSES).argmax())  # the first invalid one, if any
    if records[first, 0] >= CLASSES:
        location = f"the label of record {first}, at byte {first * RECORD}"
        raise content.error(f"labels from 0 to {CLASSES - 1}", f"{records[first, 0]} as {location}")
    return records


def read_records_100(path: Path) -> np.ndarray:
    """A file of CIFAR-100's records (coarse label, fine label, pixels), plain or gzip, as uint8 [N, 3074].

    Raises DataError for a size that is not a multiple of 3,074, and for a label out of range.
    """
    content = Content.of_file(path, DAMAGED_100)
    data = content.rest()
    if len(data) == 0 or len(data) % (RECORD + 1):
        raise content.error(f"whole records of {RECORD + 1} bytes", f"{len(data)} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD + 1)
    for place, (name, classes) in enumerate(CLASSES_100.items()):
        first = int((records[:, place] >= classes).argmax())
        if records[first, place] >= classes:
            location = f"the {name} of record {first}, at byte {first * (RECORD + 1) + place}"
            raise content.error(f"labels from 0 to {classes - 1}", f"{records[first, place]} as {location}")
    return records


def split_files(folder: Path, split: str) -> list[Path]:
    """The existing files of "train" or "test"."""
    return [path for name in FILES[split] if (path := stored_as(folder, name)) is not None]


def read_split(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, 32, 32, 3] and labels int32 [N] of "train" or "test"; one of the five training files is enough.

    The images are a view of channel planes, so that HWC2CHW needs no copy.
    """
    paths = split_files(folder, split)
    if not paths:
        raise missing(folder, " or ".join(f"{name}[.gz]" for name in FILES[split]), MISSING)
    parts = [read_records(path) for path in paths]
    planes = np.concatenate([part[:, 1:] for part in parts]).reshape(-1, 3, SIDE, SIDE)
    labels = np.concatenate([part[:, 0] for part in parts]).astype(np.int32)
    return planes.transpose(0, 2, 3, 1), labels

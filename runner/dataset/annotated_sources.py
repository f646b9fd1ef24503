"""Datasets whose image files are listed in a file with their annotations: Manifest and CelebA. Source: r1.2."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.dataset.column import Column
from runner.dataset.file_sources import FileImages
from runner.dataset.pipeline import Dataset, refuse
from runner.dataset.samples.samples import SampleColumn
from runner.dataset.selection import RowSelection, labels_column, listed_column
from runner.errors import DataError
from runner.host import files, json_data
from runner.validation.arguments import flag, one_of, whole_number

__all__ = ["CelebADataset", "ManifestDataset"]

MAX_FILE_BYTES = 1 << 30
PARTITIONS = {"train": 0, "valid": 1, "test": 2}


class ManifestDataset(Dataset):
    """The images of a manifest, a JSON object in each line: `image`, the bytes of a file (or decoded, [H, W, 3]), and
    `label`, the number of its class, or of each of its classes [n].

    Rows of `usage` ("train", "eval" or "inference"). Classes are numbered in the order of their names, or by
    `class_indexing`, which then also selects the rows. In the order of the reference, so for `shuffle=None` at random.
    Raises DataError for a missing file, and for a line that is no such object.
    """

    def __init__(
        self,
        dataset_file: str | Path,
        usage: str = "train",
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        class_indexing: Mapping[str, int] | None = None,
        decode: bool = False,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        flag({}, decode=decode)
        one_of({}, ("train", "eval", "inference"), usage=usage)
        selection = RowSelection(
            num_samples, num_parallel_workers, _is_shuffled(shuffle, sampler), num_shards, shard_id, sampler
        )
        rows = _manifest_rows(Path(dataset_file), usage)
        names = sorted({name for _, classes in rows for name in classes})
        numbers = {name: number for number, name in enumerate(names)}
        if class_indexing:
            numbers = {name: whole_number("class_indexing", number, 0) for name, number in class_indexing.items()}
        kept = [(path, [numbers[name] for name in own if name in numbers]) for path, own in rows]
        kept = [(path, own) for path, own in kept if own or usage == "inference"]
        if not kept:
            raise DataError("a manifest without images", file=dataset_file, usage=usage, classes=", ".join(numbers))
        labels = [np.array(own[0] if len(own) == 1 else own, np.uint64) for _, own in kept]
        super().__init__(*_applied(selection, [path for path, _ in kept], decode, {"label": _label(labels)}))
        self._indexing, self.num_classes = numbers, len(numbers)


class CelebADataset(Dataset):
    """The images of CelebA: `image`, the bytes of a file (or decoded, [H, W, 3]), and `attr`, its attributes, 0 or 1.

    The folder has the images, `list_attr_celeba.txt` and, for a `usage` other than "all", `list_eval_partition.txt`.
    In the order of the reference, so for `shuffle=None` at random. Raises DataError for a file that is missing or has
    another form.
    """

    def __init__(
        self,
        dataset_dir: str | Path,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        usage: str = "all",
        sampler: Any = None,
        decode: bool = False,
        extensions: Sequence[str] | None = None,
        num_samples: int | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        refuse(cache=cache)
        flag({}, decode=decode)
        one_of({}, ("all", *PARTITIONS), usage=usage)
        selection = RowSelection(
            num_samples, num_parallel_workers, _is_shuffled(shuffle, sampler), num_shards, shard_id, sampler
        )
        folder = Path(dataset_dir).expanduser()
        rows = _attributes(folder / "list_attr_celeba.txt")
        if usage != "all":
            part = _partition(folder / "list_eval_partition.txt", PARTITIONS[usage])
            rows = [row for row in rows if row[0] in part]
        if extensions:
            rows = [row for row in rows if Path(row[0]).suffix in extensions]
        if not rows:
            raise DataError("no images are left", folder=folder, usage=usage, extensions=extensions)
        attributes = labels_column("attr", (np.array([own for _, own in rows]) + 1) // 2)
        super().__init__(*_applied(selection, [folder / name for name, _ in rows], decode, {"attr": attributes}))


def _is_shuffled(shuffle: bool | None, sampler: Any) -> bool | None:
    return True if shuffle is None and sampler is None else shuffle


def _applied(selection: RowSelection, paths: list[Path], decode: bool, others: Mapping[str, Column]) -> Any:
    images = Column("image", SampleColumn(FileImages(paths, decode), 0))
    columns, order, workers = selection.apply({"image": images, **others})
    limited = Dataset(columns, order, workers).take(selection.limit or -1)
    return columns, limited._order, workers


def _label(labels: list[np.ndarray]) -> Column:
    if any(label.ndim for label in labels):
        return listed_column("label", labels)
    numbers = np.array(labels)
    return Column("label", numbers.astype(np.int32), original=numbers)


def _manifest_rows(path: Path, usage: str) -> list[tuple[Path, list[str]]]:
    rows = []
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = json_data.parse(line.encode())
            if str(entry["usage"]).lower() == usage:
                names = [str(one["name"]) for one in entry.get("annotation", []) if "name" in one]
                rows.append((Path(entry["source"].removeprefix("file://")), names))
        except (ValueError, TypeError, KeyError, AttributeError) as reason:
            expected = '{"source": path, "usage": "train", "annotation": [{"name": class}]}'
            found = reason.rows.get("reason", reason.what) if isinstance(reason, DataError) else reason
            about = {"file": path, "line": number, "found": found, "expected": expected}
            raise DataError("not a line of a manifest", **about) from None
    return rows


def _attributes(path: Path) -> list[tuple[str, list[int]]]:
    lines = _lines(path)
    width = len(lines[1].split()) if len(lines) > 1 else 0
    rows = []
    for number, line in enumerate(lines[2:], 3):
        name, *values = line.split()
        if len(values) != width or not {"1", "-1"}.issuperset(values):
            about = {"found": f"{len(values)} values", "expected": f"{width}, 1 or -1"}
            raise DataError("not a line of attributes", file=path, line=number, **about)
        rows.append((name, [int(value) for value in values]))
    return rows


def _partition(path: Path, number: int) -> set[str]:
    rows = [line.split() for line in _lines(path)]
    return {row[0] for row in rows if len(row) == 2 and row[1] == str(number)}


def _lines(path: Path) -> list[str]:
    try:
        text = files.read_bytes(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError as reason:
        raise DataError("not UTF-8 text", file=path, found=reason) from None
    return [line for line in text.splitlines() if line.strip()]

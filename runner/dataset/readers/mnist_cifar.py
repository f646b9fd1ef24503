"""The files of MNIST and CIFAR-10: read, checked and, for MNIST, downloaded.

Files are untrusted: nothing is unpickled, no size in a file is used before the bytes are present, and a file that
differs from its format is rejected with a DataError. First the content of a file, plain or gzip, in amounts that the
caller knows in advance; then the two formats.
"""

import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runner.errors import ConfigError, DataError
from runner.host.console import LOG
from runner.host.files import make_directory, write_atomically
from runner.validation.arguments import finite_number
from runner.validation.rules import Frozen

if TYPE_CHECKING:
    from urllib.request import OpenerDirector
MAX_BYTES = 1 << 30  # far above the size of any supported data file
MAX_RECORDS = 1 << 28  # the same for CIFAR, whose files do not say their size: a small gzip file may take all memory
LISTED = 6  # file names in an error
GZIP_FRAME = 31  # zlib's window bits for gzip's header, checksum and length


class Content:
    """The uncompressed content of a file. Errors contain its `path` and how to `repair` it."""

    def __init__(self, path: Path, stored: bytes, repair: str) -> None:
        self.path = path
        self.repair = repair
        self._stored = memoryview(stored)
        self._inflate = zlib.decompressobj(GZIP_FRAME) if path.suffix == ".gz" else None

    @classmethod
    def of_file(cls, path: Path, repair: str) -> "Content":
        """The content of a file on disk. Raises DataError when it cannot be read or is too large."""
        try:
            size = path.stat().st_size
            if size > MAX_BYTES:
                raise damaged(path, f"at most {MAX_BYTES} bytes", f"{size} bytes", repair)
            return cls(path, path.read_bytes(), repair)
        except OSError as reason:
            raise DataError("cannot read a data file", file=path, found=reason.strerror, repair=repair) from reason

    def take(self, most: int) -> bytes | memoryview:
        """The next bytes, at most `most`; fewer only at the end of the content."""
        if self._inflate is None or most == 0:
            part, self._stored = self._stored[:most], self._stored[most:]
            return part
        try:
            inflated = self._inflate.decompress(self._stored, most)
        except zlib.error as reason:
            raise self.error("a complete gzip file", f"a damaged one ({reason})") from None
        self._stored = memoryview(self._inflate.unconsumed_tail)
        return inflated

    def rest(self, most: int) -> bytes | memoryview:
        """The remaining content, checked as by `end`. Raises DataError for more than `most` bytes."""
        content = self.take(most)
        self.end(f"at most {most} bytes")
        return content

    def end(self, expected: str) -> None:
        """Raise DataError unless all content was read and, for gzip, length and checksum are right."""
        if len(self.take(1)):
            raise self.error(expected, "additional data at the end")
        if self._inflate is None:
            return
        if not self._inflate.eof:
            raise self.error("a complete gzip file", "a truncated one")
        if self._inflate.unused_data:
            raise self.error(expected, f"{len(self._inflate.unused_data)} additional bytes after the gzip data")

    def error(self, expected: str, found: str) -> DataError:
        """The error for content that is not as expected."""
        return damaged(self.path, expected, found, self.repair)


def damaged(path: Path, expected: str, found: str, repair: str) -> DataError:
    """The error for a file that differs from its format."""
    return DataError("a data file is not as expected", file=path, expected=expected, found=found, repair=repair)


def missing(folder: Path, expected: str, repair: str) -> DataError:
    """The error for missing files, with the names of those in the folder."""
    try:
        names = sorted(path.name for path in folder.iterdir())
        found = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "") if names else "an empty folder"
    except OSError as reason:
        found = reason.strerror or str(reason)
    rows = {"below": None if folder.is_absolute() else Path.cwd(), "expected": expected, "found": found}
    return DataError("a data file is missing", folder=folder, **rows, repair=repair)


def stored_as(folder: Path, name: str) -> Path | None:
    """The path of a file or, failing that, of its gzip form; None without both. Raises DataError without permission."""
    try:
        return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    except OSError as reason:
        raise DataError("cannot read a data folder", folder=folder, found=reason.strerror) from reason


# MNIST: its own format, IDX (four magic bytes, one big-endian size per axis, then the values), and the download.
#
# Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"; checksums of the published files.

UNSIGNED_BYTES = 8  # the only element type of IDX that MNIST uses
CLASSES = 10
MISSING = "set dataset.data_dir to the folder with the files, or dataset.download=true to download them"
NOT_PUBLISHED = "other data, such as Fashion-MNIST, or a damaged copy; dataset.verify=false (verify=False) says nothing"
DAMAGED = "delete the file and download it again (dataset.download=true), or set dataset.data_dir to a good copy"


class PublishedFile(Frozen):
    """A published file: its shape and the sha256 of its uncompressed content."""

    shape: tuple[int, ...]
    sha256: str

    @property
    def size(self) -> int:
        """Bytes of the uncompressed file."""
        return 4 + 4 * len(self.shape) + math.prod(self.shape)


PUBLISHED = {
    "train-images-idx3-ubyte": PublishedFile(
        (60000, 28, 28), "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "train-labels-idx1-ubyte": PublishedFile(
        (60000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
    ),
    "t10k-images-idx3-ubyte": PublishedFile(
        (10000, 28, 28), "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "t10k-labels-idx1-ubyte": PublishedFile(
        (10000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
}
PREFIXES = {"train": "train", "test": "t10k"}


def read_idx(path: Path, axes: int, verify: bool = True) -> np.ndarray:
    """An IDX file of bytes with that many axes, plain or gzip, as uint8.

    With `verify`, a warning says when a file with a published name and the published shape has another sha256: nothing
    else detects a flipped bit in a pixel. Raises DataError unless the file is one complete IDX file.
    """
    content = Content.of_file(path, DAMAGED)
    header = bytes(content.take(4 + 4 * axes))
    if len(header) < 4 + 4 * axes:
        raise content.error(f"a header of {4 + 4 * axes} bytes", f"{len(header)} bytes")
    magic = bytes([0, 0, UNSIGNED_BYTES, axes])
    if header[:4] != magic:
        raise content.error(f"the magic bytes {magic.hex(' ')}", header[:4].hex(" "))
    shape = struct.unpack(f">{axes}I", header[4:])
    size = math.prod(shape)
    if not 0 < size <= MAX_BYTES:
        raise content.error(f"a shape of 1 to {MAX_BYTES} bytes", f"the shape {shape}")
    body = content.take(size)
    if len(body) < size:
        raise content.error(f"{size} bytes after the header, for the shape {shape}", f"{len(body)} bytes")
    content.end(f"{size} bytes after the header, for the shape {shape}")
    if verify:
        _note_unpublished(path, shape, header, body)
    return np.frombuffer(body, np.uint8).reshape(shape)


def read_split(folder: Path, split: str, verify: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, H, W, 1] and labels int32 [N] of "train" or "test", from `folder` or its folder of that name."""
    paths = split_files(folder, split)
    if paths is None:
        images, labels = _names(split)
        raise missing(folder, f"{images}[.gz] and {labels}[.gz], in the folder or in its {split}/", MISSING)
    return _read_pair(*paths, verify)


def split_files(folder: Path, split: str) -> tuple[Path, Path] | None:
    """The files with the images and the labels of a split, or None unless both exist in one folder."""
    for location in (folder, folder / split):
        images, labels = (stored_as(location, name) for name in _names(split))
        if images is not None and labels is not None:
            return images, labels
    return None


def has_part_of(folder: Path, split: str) -> bool:
    """Whether at least one file of the split exists."""
    return any(stored_as(location, name) for location in (folder, folder / split) for name in _names(split))


def _read_pair(image_file: Path, label_file: Path, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    images, labels = read_idx(image_file, 3, verify), read_idx(label_file, 1, verify)
    if len(images) != len(labels):
        expected = f"{len(images)} labels, for the images of {image_file.name}"
        raise damaged(label_file, expected, f"{len(labels)} labels", DAMAGED)
    if labels.max() >= CLASSES:
        found = f"{labels.max()} as label number {labels.argmax()}"
        raise damaged(label_file, f"labels from 0 to {CLASSES - 1}", found, DAMAGED)
    return images[..., np.newaxis], labels.astype(np.int32)


def _names(split: str) -> tuple[str, str]:
    return f"{PREFIXES[split]}-images-idx3-ubyte", f"{PREFIXES[split]}-labels-idx1-ubyte"


def _note_unpublished(path: Path, shape: tuple[int, ...], header: bytes, body: bytes | memoryview) -> None:
    published = PUBLISHED.get(path.name.removesuffix(".gz"))
    if published is None or published.shape != shape:
        return
    digest = hashlib.sha256(header)
    digest.update(body)
    if digest.hexdigest() != published.sha256:
        LOG.warning("%s is not MNIST's: %s", path, NOT_PUBLISHED)


# CIFAR-10's binary format: records of one label byte and 3,072 pixels, as planes of red, green and blue.
#
# Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", and the data set's own page.


# The download, over http or https: limited in size and compared with the published sha256 before a file is written.
# urllib is imported where it is used: it takes 20 ms, and few runs download anything.

MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist"
TIMEOUT = 30.0  # seconds without data
GZIP_OVERHEAD = 1 << 10  # bytes by which a gzip file may exceed its content
SCHEMES = ("http", "https")


def download_mnist(folder: str | Path, base_url: str = MIRROR, timeout: float = TIMEOUT) -> list[Path]:
    """Download those of the four MNIST files that are not in `folder`, as `.gz`; returns all four paths.

    Raises ConfigError unless the URL is http or https, DataError when a file cannot be downloaded or is not the
    published one (it is then not written), StorageError when it cannot be written.
    """
    return download(Path(folder).expanduser(), base_url, PUBLISHED, timeout)


def download(folder: Path, base_url: str, files: Mapping[str, PublishedFile], timeout: float = TIMEOUT) -> list[Path]:
    """Download `{base_url}/{name}.gz` for each file that is not in the folder, plain or gzip; returns all paths."""
    from urllib.parse import urlsplit

    parts = urlsplit(base_url)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise ConfigError(
            "not a URL of a download server", argument="url", value=base_url, allowed="http:// or https://"
        )
    if finite_number("timeout", timeout) <= 0:
        raise ConfigError("the timeout is not positive", argument="timeout", value=timeout, allowed="seconds, above 0")
    make_directory(folder)
    paths = []
    for name, published in files.items():
        path = stored_as(folder, name) or folder / f"{name}.gz"
        if not path.exists():
            url = f"{base_url.rstrip('/')}/{name}.gz"
            repair = f"check the URL and the connection, or copy {name}.gz to {folder}"
            write_atomically(path, _checked(url, _fetch(url, published, timeout, repair), path, published, repair))
        paths.append(path)
    return paths


def _fetch(url: str, published: PublishedFile, timeout: float, repair: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError

    most = published.size + GZIP_OVERHEAD
    try:
        with _opener().open(url, timeout=timeout) as response:
            data: bytes = response.read(most + 1)
    except HTTPError as response:
        with response:
            raise _failed(url, f"the server responded {response.code} {response.reason}", repair) from None
    except (OSError, HTTPException, ValueError) as reason:
        raise _failed(url, getattr(reason, "reason", None) or reason, repair) from reason
    if len(data) > most:
        raise _failed(url, f"more than {most} bytes received", repair)
    return data


def _checked(url: str, data: bytes, path: Path, published: PublishedFile, repair: str) -> bytes:
    content = Content(path, data, repair)
    try:
        inflated = content.take(published.size)
        content.end(f"{published.size} bytes")
    except DataError as error:
        raise _failed(url, f"the response is not the file: {error.rows['found']}", repair) from None
    found = hashlib.sha256(inflated).hexdigest()
    if found != published.sha256:
        raise _failed(url, "the response is not the published file", repair).add(expected=published.sha256, found=found)
    return data


def _failed(url: str, reason: object, repair: str) -> DataError:
    return DataError("a download failed", url=url, reason=reason, repair=repair)


def _opener() -> "OpenerDirector":
    """An opener of http and https URLs, with the proxies of the environment; redirects to other schemes are errors."""
    from urllib import request

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPRedirectHandler(),
        request.HTTPErrorProcessor(),
        request.HTTPDefaultErrorHandler(),
        request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
FILES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
CIFAR_MISSING = "unpack cifar-10-binary.tar.gz and set dataset.data_dir to its folder"
CIFAR_DAMAGED = "unpack the file from cifar-10-binary.tar.gz again, or set dataset.data_dir to a good copy"
DAMAGED_100 = "unpack the file from cifar-100-binary.tar.gz again, or name a folder with a good copy"
CLASSES_100 = {"coarse_label": 20, "fine_label": 100}
FILES_100 = {"train": "train.bin", "test": "test.bin"}


def read_records(path: Path) -> np.ndarray:
    """A file of records, plain or gzip, as uint8 [N, 3073].

    Raises DataError for a size that is not a multiple of 3,073, and for a label above 9.
    """
    content = Content.of_file(path, CIFAR_DAMAGED)
    data = content.rest(MAX_RECORDS)
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
    data = content.rest(MAX_RECORDS)
    if len(data) == 0 or len(data) % (RECORD + 1):
        raise content.error(f"whole records of {RECORD + 1} bytes", f"{len(data)} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD + 1)
    for place, (name, classes) in enumerate(CLASSES_100.items()):
        first = int((records[:, place] >= classes).argmax())
        if records[first, place] >= classes:
            location = f"the {name} of record {first}, at byte {first * (RECORD + 1) + place}"
            raise content.error(f"labels from 0 to {classes - 1}", f"{records[first, place]} as {location}")
    return records


def cifar_split_files(folder: Path, split: str) -> list[Path]:
    """The existing files of "train" or "test"."""
    return [path for name in FILES[split] if (path := stored_as(folder, name)) is not None]


def read_cifar_split(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, 32, 32, 3] and labels int32 [N] of "train" or "test"; one of the five training files is enough.

    The images are a view of channel planes, so that HWC2CHW needs no copy.
    """
    paths = cifar_split_files(folder, split)
    if not paths:
        raise missing(folder, " or ".join(f"{name}[.gz]" for name in FILES[split]), CIFAR_MISSING)
    parts = [read_records(path) for path in paths]
    planes = np.concatenate([part[:, 1:] for part in parts]).reshape(-1, 3, SIDE, SIDE)
    labels = np.concatenate([part[:, 0] for part in parts]).astype(np.int32)
    return planes.transpose(0, 2, 3, 1), labels

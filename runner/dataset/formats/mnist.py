"""MNIST: its own format, IDX (four magic bytes, one big-endian size per axis, then the values), and the download.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"; checksums of the published files.
"""

import hashlib
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runner.dataset.formats.content import MAX_BYTES, Content, damaged, missing, stored_as
from runner.errors import ConfigError, DataError
from runner.host.files import make_directory, write_atomically
from runner.validation.arguments import finite_number
from runner.validation.rules import Frozen

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

UNSIGNED_BYTES = 8  # the only element type of IDX that MNIST uses
CLASSES = 10
MISSING = "set dataset.data_dir to the folder with the files, or dataset.download=true to download them"
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

    With `verify`, a file with a published name and the published shape must have the published sha256: nothing else
    detects a flipped bit in a pixel. Raises DataError unless the file is one complete IDX file.
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
        _require_published(content, shape, header, body)
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


def _require_published(content: Content, shape: tuple[int, ...], header: bytes, body: bytes | memoryview) -> None:
    published = PUBLISHED.get(content.path.name.removesuffix(".gz"))
    if published is None or published.shape != shape:
        return
    digest = hashlib.sha256(header)
    digest.update(body)
    if digest.hexdigest() != published.sha256:
        error = content.error(f"sha256 {published.sha256}", f"sha256 {digest.hexdigest()}")
        raise error.add(if_intended="dataset.verify=false (verify=False) accepts other images under these names")


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

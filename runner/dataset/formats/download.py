"""Download of MNIST over http or https, limited in size and compared with the published sha256 before it is written."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runner.dataset.formats.mnist_cifar import PUBLISHED, Content, PublishedFile, stored_as
from runner.errors import ConfigError, DataError
from runner.host.files import make_directory, write_atomically
from runner.validation.arguments import finite_number

if TYPE_CHECKING:
    from urllib.request import OpenerDirector


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

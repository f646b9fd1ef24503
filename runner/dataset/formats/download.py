"""Fetching MNIST: http or https only, capped in size, and compared with the published sums before a file gets its name.

What arrives is data from a stranger until its sha256 is right; nothing else of it is looked at.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runner.dataset.formats.content import Content, stored_as
from runner.dataset.formats.idx import PUBLISHED, Published
from runner.errors import ConfigError, DataError
from runner.host.files import make_directory, write_atomically
from runner.validation.arguments import finite_number

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

# urllib is imported where it is used: it takes 20 ms, which every start would pay for a download that few runs make.

MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist"
TIMEOUT = 30.0  # seconds without a byte
GZIP_OVERHEAD = 1 << 10  # how much larger than its content a gzip file may be
SCHEMES = ("http", "https")


def download_mnist(folder: str | Path, base_url: str = MIRROR, timeout: float = TIMEOUT) -> list[Path]:
    """Fetch the four MNIST files that are not in `folder` yet from `base_url`, as `.gz`; returns all four paths.

    Raises ConfigError for an address that is not http or https, DataError when a file cannot be fetched or is not the
    published one (nothing is then left under its name), StorageError when it cannot be written.
    """
    return download(Path(folder).expanduser(), base_url, PUBLISHED, timeout)


def download(folder: Path, base_url: str, files: Mapping[str, Published], timeout: float = TIMEOUT) -> list[Path]:
    """Fetch `{base_url}/{name}.gz` for each file that is not in the folder, plain or gzip; returns the paths."""
    from urllib.parse import urlsplit

    parts = urlsplit(base_url)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise ConfigError("not an address to fetch from", argument="url", value=base_url, allowed="http:// or https://")
    if finite_number("timeout", timeout) <= 0:
        raise ConfigError("no time to fetch anything", argument="timeout", value=timeout, allowed="seconds, above 0")
    make_directory(folder)
    paths = []
    for name, published in files.items():
        path = stored_as(folder, name) or folder / f"{name}.gz"
        if not path.exists():
            url = f"{base_url.rstrip('/')}/{name}.gz"
            repair = f"check the address and the connection, or put {name}.gz into {folder} yourself"
            write_atomically(path, _checked(url, _fetch(url, published, timeout, repair), path, published, repair))
        paths.append(path)
    return paths


def _fetch(url: str, published: Published, timeout: float, repair: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError

    most = published.size + GZIP_OVERHEAD
    try:
        with _opener().open(url, timeout=timeout) as answer:
            data: bytes = answer.read(most + 1)
    except HTTPError as answer:
        with answer:
            raise _failed(url, f"the server says {answer.code} {answer.reason}", repair) from None
    except (OSError, HTTPException, ValueError) as reason:
        raise _failed(url, getattr(reason, "reason", None) or reason, repair) from reason
    if len(data) > most:
        raise _failed(url, f"more than {most} bytes came", repair)
    return data


def _checked(url: str, data: bytes, path: Path, published: Published, repair: str) -> bytes:
    content = Content(path, data, repair)
    try:
        inflated = content.take(published.size)
        content.end(f"{published.size} bytes")
    except DataError as error:
        raise _failed(url, f"what came is not the file: {error.rows['found']}", repair) from None
    found = hashlib.sha256(inflated).hexdigest()
    if found != published.sha256:
        raise _failed(url, "what came is not the published file", repair).add(expected=published.sha256, found=found)
    return data


def _failed(url: str, reason: object, repair: str) -> DataError:
    return DataError("a download failed", url=url, reason=reason, repair=repair)


def _opener() -> "OpenerDirector":
    """Opens http and https, through the proxies of the environment, and no redirection to anything else."""
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

"""Downloads from a server on this machine: right, wrong, cut off, absent and silent."""

import gzip
import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from argument_errors import refused_argument
from patience import PATIENCE

from runner.dataset import MnistDataset
from runner.dataset.readers.mnist_cifar import GZIP_OVERHEAD, PublishedFile, download, download_mnist
from runner.errors import ConfigError, DataError

CONTENT = bytes([0, 0, 8, 1, 0, 0, 0, 40]) + bytes(range(40))
FILES = {"train-labels-idx1-ubyte": PublishedFile((40,), hashlib.sha256(CONTENT).hexdigest())}
NAME = "train-labels-idx1-ubyte.gz"
GOOD = gzip.compress(CONTENT, mtime=0)


class Server:
    """Answers with what `answers` holds for a path: bytes, a status, or a place to go on to."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | int | str] = {}
        self.requested: list[str] = []
        self.promised = 0  # bytes that a header promises beyond those that come
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requested.append(self.path)
                answer = outer.answers.get(self.path, 404)
                if isinstance(answer, bytes):
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(answer) + outer.promised))
                    self.end_headers()
                    self.wfile.write(answer)
                elif isinstance(answer, str):
                    self.send_response(302)
                    self.send_header("Location", answer)
                    self.end_headers()
                else:
                    self.send_error(answer)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/mnist"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def refused(folder: Path, url: str, timeout: float = PATIENCE) -> DataError:
    with pytest.raises(DataError, match="a download failed") as caught:
        download(folder, url, FILES, timeout)
    assert list(folder.iterdir()) == []
    assert caught.value.exit_code == 7
    assert caught.value.rows["url"] == f"{url}/{NAME}"
    assert str(folder) in caught.value.rows["repair"]
    return caught.value


def test_a_good_file(tmp_path: Path, server: Server) -> None:
    server.answers[f"/mnist/{NAME}"] = GOOD
    folder = tmp_path / "new" / "folder"
    assert download(folder, server.url + "/", FILES) == [folder / NAME]
    assert (folder / NAME).read_bytes() == GOOD
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize("there", [NAME, NAME.removesuffix(".gz")])
def test_a_file_that_is_there_is_not_fetched(tmp_path: Path, server: Server, there: str) -> None:
    (tmp_path / there).write_bytes(b"mine")
    assert download(tmp_path, server.url, FILES) == [tmp_path / there]
    assert server.requested == []


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (gzip.compress(CONTENT[:-1] + b"x", mtime=0), "the response is not the published file"),
        (gzip.compress(CONTENT + b"x", mtime=0), "the response is not the file: additional data at the end"),
        (gzip.compress(CONTENT + bytes(10_000_000), mtime=0), "more than"),
        (GOOD + b"x", "the response is not the file: 1 additional bytes after the gzip data"),
        (GOOD[:30], "the response is not the file: a truncated one"),
        (b"", "the response is not the file: a truncated one"),
        (b"<html>please log in</html>", "the response is not the file: a damaged one"),
        (bytes(len(CONTENT) + GZIP_OVERHEAD + 1), "more than"),
    ],
)
def test_wrong_content(tmp_path: Path, server: Server, sent: bytes, reason: str) -> None:
    server.answers[f"/mnist/{NAME}"] = sent
    assert reason in refused(tmp_path, server.url).rows["reason"]


def test_a_connection_that_ends_early(tmp_path: Path, server: Server) -> None:
    server.answers[f"/mnist/{NAME}"] = GOOD[:30]
    server.promised = len(GOOD) - 30
    refused(tmp_path, server.url)


def test_no_more_is_read_than_the_file_can_have(tmp_path: Path, server: Server) -> None:
    server.answers[f"/mnist/{NAME}"] = bytes(len(CONTENT) + GZIP_OVERHEAD + 9)
    server.promised = 10**12
    assert "more than" in refused(tmp_path, server.url).rows["reason"]


def test_not_found(tmp_path: Path, server: Server) -> None:
    assert refused(tmp_path, server.url).rows["reason"] == "the server responded 404 Not Found"


def test_a_redirection_is_followed_to_http_only(tmp_path: Path, server: Server) -> None:
    (tmp_path / "in").mkdir()
    secret = tmp_path / "secret.gz"
    secret.write_bytes(GOOD)
    for target in (secret.as_uri(), "ftp://127.0.0.1/x"):
        server.answers[f"/mnist/{NAME}"] = target
        refused(tmp_path / "in", server.url)
    server.answers[f"/mnist/{NAME}"] = "/elsewhere"
    server.answers["/elsewhere"] = GOOD
    assert download(tmp_path / "in", server.url, FILES) == [tmp_path / "in" / NAME]


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        error = refused(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert "refused" in error.rows["reason"]


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = refused(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
    assert "timed out" in error.rows["reason"]


@pytest.mark.parametrize("url", ["file:///etc", "ftp://x/y", "/etc", "", "http://", "HTTP"])
def test_only_web_addresses(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        download(tmp_path / "new", url, FILES)
    assert caught.value.rows["argument"] == "url"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), None])
def test_timeouts(tmp_path: Path, timeout: object) -> None:
    with pytest.raises(ConfigError) as caught:
        download(tmp_path, "http://127.0.0.1", FILES, timeout)
    assert refused_argument(caught.value) == ("timeout", repr(timeout))


def test_an_address_that_cannot_be_written_in_a_request(tmp_path: Path) -> None:
    refused(tmp_path, "http://127.0.0.1/a b")


def test_the_whole_mnist(tmp_path: Path, server: Server, real_mnist: Path) -> None:
    server.answers = {f"/mnist/{path.name}": path.read_bytes() for path in real_mnist.iterdir()}
    paths = download_mnist(tmp_path, server.url)
    assert len(paths) == 4
    labels = MnistDataset(tmp_path, "train").compact()[1]
    assert np.bincount(labels).sum() == 60000

"""Whole files or none, whole lines, folders with one owner: also when a disk is full and when many ask at once."""

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from patience import PATIENCE

from runner.errors import BusyError, StorageError
from runner.host import files
from runner.host.files import Journal

ROOT = Path(__file__).parents[2]


def process(code: str, *words: object) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], env=environment, **pipes)


def answer(running: subprocess.Popen) -> str:
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, err
    return out


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("content", "bytes_there"),
    [
        ("h\u00e9", b"h\xc3\xa9"),
        (b"\x00\r\n", b"\x00\r\n"),
        (lambda file: file.write(b"by hand"), b"by hand"),
        ("", b""),
    ],
)
def test_what_is_given_is_what_is_there(tmp_path, content, bytes_there):
    path = tmp_path / "file"
    for _ in range(2):
        files.write_atomically(path, content)
        assert path.read_bytes() == bytes_there
        assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError("surprise"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_the_old_file_survives_a_writer_that_fails(tmp_path, error):
    def fails(file):
        file.write(b"half of it")
        raise error

    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(StorageError if isinstance(error, OSError) else type(error)):
        files.write_atomically(path, fails)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_the_old_file_survives_a_system_that_fails(tmp_path, monkeypatch, call):
    def fails(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(files.os, call, fails)
    with pytest.raises(StorageError) as caught:
        files.write_atomically(path, "new")
    assert str(caught.value) == (
        f"StorageError: cannot write a file\n  path    {path}\n  reason  No space left on device"
    )
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from runner.host import files
from runner.host.files import Journal
from runner.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
folder = Path(sys.argv[1])
for write in (
    lambda: files.write_atomically(folder / "file", "x" * 101),
    lambda: Journal(folder / "lines").append({"x": "x" * 101}),
):
    try:
        write()
    except StorageError as error:
        print(error.exit_code, error.what, error.rows["reason"], sep="; ")
"""


def test_a_file_that_grows_beyond_what_the_system_allows(tmp_path):
    (tmp_path / "file").write_text("old")
    lines = answer(process(FULL_DISK, tmp_path)).splitlines()
    assert lines == [
        "5; cannot write a file; File too large",
        "5; cannot append to a file; the disk took only a part",
    ]
    assert (tmp_path / "file").read_text() == "old"
    assert names(tmp_path) == ["file", "lines"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_permissions_follow_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        files.write_atomically(tmp_path / "file", "x")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o666 & ~umask


def test_writing_in_many_threads(tmp_path, monkeypatch):
    """Nothing of the process is changed for a moment: another thread would see it, or put it back wrongly."""
    before = os.umask(0o022)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "umask", lambda mask: pytest.fail("the umask belongs to the whole process"))
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda k: files.write_atomically(tmp_path / f"{k % 40}", f"{k}"), range(400)))
    os.umask(before)
    assert {mode_of(path) for path in tmp_path.iterdir()} == {0o644}
    assert len(names(tmp_path)) == 40


def test_readers_never_see_a_part(tmp_path):
    path, whole = tmp_path / "file", {"a" * 100_000, "b" * 100_000}
    files.write_atomically(path, min(whole))
    seen, done = set(), threading.Event()

    def read():
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for text in sorted(whole) * 20:
        files.write_atomically(path, text)
    done.set()
    reader.join()
    assert seen <= whole


def test_a_missing_folder(tmp_path):
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(StorageError) as caught:
        files.write_atomically(path, "x")
    assert str(caught.value) == (
        f"StorageError: cannot write a file\n  path    {path}\n  reason  No such file or directory"
    )
    assert caught.value.exit_code == 5
    assert isinstance(caught.value, OSError)


def test_a_folder_in_the_place_of_the_file(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        files.write_atomically(tmp_path / "file", "x")
    assert names(tmp_path) == ["file"]


def test_json_is_standard_json(tmp_path):
    files.write_json(tmp_path / "file", {"a": [1, None, 0.1, "\u00e9"]})
    assert json.loads((tmp_path / "file").read_bytes()) == {"a": [1, None, 0.1, "\u00e9"]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "file", float("nan"))
    assert json.loads((tmp_path / "file").read_bytes()) == {"a": [1, None, 0.1, "\u00e9"]}


def test_a_journal_appends(tmp_path):
    path = tmp_path / "lines"
    for k in range(2):
        with closing(Journal(path)) as journal:
            journal.append({"a": k, "b": "\n"})
            assert len(path.read_text().splitlines()) == 2 * k + 1  # there before it is closed
            journal.sync()
            journal.append({"a": 0.1})
        journal.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"a": 0, "b": "\n"}, {"a": 0.1}, {"a": 1, "b": "\n"}, {"a": 0.1}]


def test_a_journal_knows_its_length_and_hash(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"before\n")
    with closing(Journal(path)) as journal:
        for k in range(3):
            journal.extend(b"%d\n" % k)
            content = path.read_bytes()
            assert journal.position() == (len(content), hashlib.sha256(content).hexdigest())
        journal.cut(9)
        assert journal.position() == (9, hashlib.sha256(b"before\n0\n").hexdigest())
        with pytest.raises(StorageError, match="cannot shorten a file"):  # the system would fill it with zeros
            journal.cut(10)
        assert path.read_bytes() == b"before\n0\n"
        path.write_bytes(b"")
        with pytest.raises(StorageError) as caught:
            journal.position()
        assert "another process has changed its length" in caught.value.rows["reason"]


def test_a_journal_refuses_what_is_not_json(tmp_path):
    with closing(Journal(tmp_path / "lines")) as journal, pytest.raises(ValueError, match="not JSON compliant"):
        journal.append({"loss": float("inf")})
    assert (tmp_path / "lines").read_bytes() == b""


def test_a_torn_line_is_an_error(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "lines")

    class Torn:
        def write(self, line):
            return len(line) - 1

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_file", Torn())
        with pytest.raises(StorageError) as caught:
            journal.append({"a": 1})
    journal.close()
    assert str(caught.value) == (
        f"StorageError: cannot append to a file\n  path    {tmp_path / 'lines'}\n  reason  the disk took only a part"
    )


def test_sync_asks_the_disk(tmp_path, monkeypatch):
    synced = []
    journal = Journal(tmp_path / "lines")
    monkeypatch.setattr(files.os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    journal.append({"a": 1})
    assert synced == []
    journal.sync()
    journal.close()
    journal.close()
    assert synced == [(tmp_path / "lines").stat().st_ino] * 2

    def fails(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files.os, "fsync", fails)
    broken = Journal(tmp_path / "lines")
    with pytest.raises(StorageError) as caught:
        broken.sync()
    assert caught.value.what == "cannot sync a file to the disk"
    monkeypatch.undo()
    broken.close()


def test_sync_notices_that_the_file_was_removed(tmp_path):
    """A run whose directory is deleted ends, and does not train for a file that nothing will ever read."""
    journal = Journal(tmp_path / "lines")
    journal.append({"a": 1})
    (tmp_path / "lines").rename(tmp_path / "moved")
    journal.sync()
    (tmp_path / "moved").unlink()
    journal.append({"a": 2})
    for end in (journal.sync, journal.close):
        with pytest.raises(StorageError) as caught:
            end()
        assert caught.value.rows["reason"] == "it was removed while it was written"
    journal.close()


def test_a_whole_file_reaches_the_disk_before_its_name_does(tmp_path, monkeypatch):
    order = []
    path, fsync, replace = tmp_path / "file", os.fsync, os.replace

    def synced(handle):
        order.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def replaced(*arguments):
        order.append("name")
        replace(*arguments)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(files.os, "replace", replaced)
    files.write_atomically(path, "x")
    assert order == ["file", "name", "folder"]


def test_a_journal_without_a_folder(tmp_path):
    with pytest.raises(StorageError) as caught:
        Journal(tmp_path / "nowhere" / "lines")
    assert caught.value.what == "cannot open a file for writing"


CLAIMS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runner.host import files
from runner.host.files import Journal
from runner.errors import BusyError
folder, threads = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
def claim(name):
    try:
        return files.claim_directory(name).name
    except BusyError:
        return "lost"
sys.stdin.readline()
with ThreadPoolExecutor(threads) as pool:
    print(*pool.map(claim, [folder / "one"] * threads))
    print(*[found.name for found in pool.map(files.claim_first_free, [folder / "day" / "time"] * threads)])
"""


def test_64_claims_in_processes_and_threads(tmp_path):
    """One folder has one winner; 64 runs that start in one second have 64 folders."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", CLAIMS, str(tmp_path), "16"]
    started = [subprocess.Popen(command, env=environment, **pipes) for _ in range(4)]
    assert [running.stdout.readline() for running in started] == ["ready\n"] * 4
    for running in started:
        running.stdin.write("\n")
        running.stdin.flush()
    answers = [answer(running).splitlines() for running in started]
    ones, times = ([name for words in answers for name in words[k].split()] for k in range(2))
    assert sorted(ones) == ["lost"] * 63 + ["one"]
    assert sorted(times) == sorted(["time", *(f"time-{k}" for k in range(1, 64))])
    assert names(tmp_path / "day") == sorted(times)


def test_a_taken_directory(tmp_path):
    files.claim_directory(tmp_path / "a" / "run")
    with pytest.raises(BusyError) as caught:
        files.claim_directory(tmp_path / "a" / "run")
    assert str(caught.value) == f"BusyError: the directory is taken by another run\n  path  {tmp_path / 'a' / 'run'}"
    assert caught.value.exit_code == 4
    assert files.claim_first_free(tmp_path / "a" / "run").name == "run-1"


@pytest.mark.parametrize("make", [files.make_directory, files.claim_directory, files.claim_first_free])
def test_a_directory_below_a_file(tmp_path, make):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError) as caught:
        make(tmp_path / "file" / "below" / "it")
    assert caught.value.what == "cannot create a directory"
    assert caught.value.rows["reason"] in ("Not a directory", "File exists")


def test_a_directory_may_be_made_twice(tmp_path):
    assert files.make_directory(tmp_path / "a" / "b") == files.make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/full", path)])
def test_a_journal_is_a_regular_file(tmp_path, make):
    """Opening a pipe without a reader would wait for one."""
    make(tmp_path / "lines")
    with pytest.raises(StorageError, match="cannot open a file for writing"):
        Journal(tmp_path / "lines")


def test_what_is_not_a_regular_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(StorageError, match="cannot write a file"):
            files.write_atomically(tmp_path / name, b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_links_of_a_loop_have_a_real_path(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert files.real_path(tmp_path / "loop" / "x") == tmp_path / "loop" / "x"

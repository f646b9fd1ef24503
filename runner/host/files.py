"""Writing files: whole files atomically, directories that one process claims, locks, and journals of appended rows.

Whole files go to a temporary name in the same folder, are fsynced and renamed, and the folder is fsynced: a reader
sees the old file or the new one, never a part (`np.savez` lost 50 of 60 files to a kill at a random moment).
"""

import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

from runner.errors import BusyError, DataError, RunnerError, StorageError
from runner.validation.paths import ALLOWED, path_problem

Content: TypeAlias = bytes | str | Callable[[IO[bytes]], object]
TEMPORARY_SUFFIX = ".tmp"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
NO_LINKS = errno.EPERM, errno.ENOTSUP, errno.ENOSYS  # of file systems without hard links


def before_operation(operation: str, path: Path) -> None:
    """Called before every operation that changes something: open, write, truncate, fsync, link, rename, mkdir, unlink.

    Raises OSError in a directory that this process has locked, if its name leads elsewhere now: a run would go on in
    two places. Tests replace it with a function that raises OSError or kills the process at the n-th call.
    """
    if _held:
        name = str(path)
        place = name if os.path.isabs(name) else os.path.abspath(name)
        for folder, lock, state in [*_held.values()]:
            if place.startswith(folder) and not leads_to(lock, state):
                raise OSError(f"{folder} was renamed, removed or replaced while it was in use")


# The locks that this process holds, by file descriptor: folder and file as absolute paths, and the open file.
_held: dict[int, tuple[str, str, os.stat_result]] = {}


def leads_to(path: str, state: os.stat_result) -> bool:
    """Whether a path is still that of a file."""
    try:
        return os.path.samestat(os.lstat(path), state)
    except (FileNotFoundError, NotADirectoryError):
        return False


def write_atomically(path: Path, content: Content, mode: int = 0o666) -> None:
    """Write a whole file, or leave what was there untouched.

    `content` is the data, or a function that writes to the open binary file; the umask is taken from `mode`. Raises
    StorageError with the path and the operating system's reason, also for a path that is not a regular file: the rename
    would replace a device.
    """
    _require_replaceable(path)
    temporary = hidden(path, TEMPORARY_SUFFIX)
    try:
        with storage_errors("cannot write a file", path):
            write_new(temporary, content, mode)
            rename(temporary, path)
            sync_folder(path.parent)
        remove_leftovers(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _require_replaceable(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):  # there is none, or writing will report the reason
        return
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        reason = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a regular file"
        raise StorageError("cannot write a file", path=path, reason=reason)


def write_whole(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a whole file as `write_atomically` does, but without fsync: for steps that write thousands of files.

    `pieces` are written in order, without copies. A killed process leaves the whole file or a temporary one; a power
    failure can lose what the operating system had not written yet. Raises StorageError.
    """
    # Not by `hidden`: the name may already have the maximum length.
    temporary = path.with_name(f".{_author()}{os.urandom(4).hex()}{TEMPORARY_SUFFIX}")
    try:
        with storage_errors("cannot write a file", path, "open"):
            with open(temporary, "xb") as file:
                before_operation("write", path)
                for piece in pieces:
                    file.write(piece)
            rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, json_text(value))


def json_text(value: object) -> str:
    """The text of a JSON file: indented, with a newline at its end. Raises ValueError for NaN and infinities."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def write_exclusively(path: Path, content: Content, mode: int = 0o666) -> bool:
    """Write a whole file unless it exists; whether this process, of several, wrote it.

    The umask is taken from `mode`. Raises StorageError.
    """
    temporary = hidden(path, TEMPORARY_SUFFIX)
    try:
        with storage_errors("cannot write a file", path), suppress(FileExistsError):
            write_new(temporary, content, mode)
            before_operation("link", path)
            try:
                os.link(temporary, path)
            except OSError as reason:
                if reason.errno not in NO_LINKS:
                    raise
                write_new(path, content, mode)  # where a kill in between leaves a part
            sync_folder(path.parent)
            return True
        return False
    finally:
        with suppress(OSError):
            temporary.unlink()
        remove_leftovers(path)


def claim_directory(path: Path) -> Path:
    """Create a directory that no other process can also create.

    Raises BusyError if it exists and StorageError if it cannot be created.
    """
    make_directory(path.parent)
    with storage_errors("cannot create a directory", path):
        try:
            make_new(path)
        except FileExistsError:
            raise BusyError("the directory is taken by another run", path=path) from None
    return path


def claim_first_free(path: Path) -> Path:
    """Claim `path`, or `path-1`, `path-2`, ... when earlier ones are taken."""
    name, number = path, 0
    while True:
        try:
            return claim_directory(name)
        except BusyError:
            number += 1
            name = path.with_name(f"{path.name}-{number}")


def make_directory(path: Path) -> Path:
    """Create a directory inside one that this run owns; it may exist already."""
    with storage_errors("cannot create a directory", path):
        if not path.is_dir():
            before_operation("mkdir", path)
            path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold a lock file while the context is open; the system frees it when the process ends, however it ends.

    Raises BusyError when another process holds it, unless the caller waits.
    """
    with storage_errors("cannot open a lock file", path, "open"):
        handle = open_unlinked(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        folder = os.path.abspath(path.parent) + os.sep
        _held[handle] = folder, folder + path.name, os.fstat(handle)
        yield
    except BlockingIOError:
        raise BusyError("another process is using this directory", path=path.parent) from None
    finally:
        _held.pop(handle, None)
        os.close(handle)


@contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """Hold a lock of a directory itself, which needs no file in it, while the context is open. Raises StorageError."""
    with storage_errors("cannot lock a directory", path):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def real_path(path: Path) -> Path:
    """The absolute path without symbolic links; those of a loop stay, for which `Path.resolve` raises RuntimeError."""
    return Path(os.path.realpath(path))


def names(folder: Path) -> list[str]:
    """The sorted names in a folder; none when there is no such folder. Raises StorageError."""
    with storage_errors("cannot list a directory", folder), suppress(FileNotFoundError):
        return sorted(os.listdir(folder))
    return []


def read_bytes(path: Path, limit: int) -> bytes:
    """A whole file of at most `limit` bytes; it is measured before it is read.

    Raises DataError when it is missing, not a regular file or longer, StorageError when the system cannot read it.
    """
    with open_regular(path, limit) as file:
        return file.read(min(limit, os.fstat(file.fileno()).st_size))


def sha256(path: Path, size: int = sys.maxsize) -> str:
    """The sha256 (hex) of the first `size` bytes of a file, which is read in parts. Raises as `open_regular`."""
    digest = hashlib.sha256()
    with open_regular(path, sys.maxsize) as file:
        while part := file.read(min(size, 1 << 20)):
            digest.update(part)
            size -= len(part)
    return digest.hexdigest()


@contextmanager
def open_regular(path: Path, limit: int) -> Iterator[IO[bytes]]:
    """A regular file of at most `limit` bytes, open for reading. Raises as `read_bytes`, also for reads inside."""
    if problem := path_problem(str(path)):
        raise DataError(problem, file=path, allowed=ALLOWED)
    try:
        # Without O_NONBLOCK a pipe under this name would wait for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise DataError("not a regular file", file=path)
            if found.st_size > limit:
                raise DataError("a file is too long", file=path, expected=f"at most {limit} bytes", found=found.st_size)
            yield file
    except RunnerError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise DataError("a file is missing", file=path) from None
    except IsADirectoryError:
        raise DataError("not a regular file", file=path) from None
    except OSError as reason:
        raise storage_error("cannot read a file", path, reason) from reason


@contextmanager
def storage_errors(what: str, path: Path, operation: str = "") -> Iterator[None]:
    """Raise the operating system's errors in the context as StorageError; `before_operation` is called first."""
    try:
        if operation:
            before_operation(operation, path)
        yield
    except OSError as reason:
        raise storage_error(what, path, reason) from reason
    except ValueError as reason:  # Python refuses such a path before it calls the system
        if isinstance(reason, RunnerError) or (problem := path_problem(str(path))) is None:
            raise
        raise StorageError(what, path=path, reason=problem, allowed=ALLOWED) from reason


def storage_error(what: str, path: Path, reason: OSError) -> StorageError:
    """The error block for an operating-system failure at a path."""
    return StorageError(what, path=path, reason=reason.strerror or reason)


# The primitive operations of whole writes; they raise OSError.


_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}(\.tmp|\.old)|\.[0-9a-f]{16}\.tmp", re.DOTALL)


def is_temporary(name: str) -> bool:
    """Whether a name is one that a killed process has left: of a file or directory that was being written.

    >>> is_temporary(".status.json.0123456789ab.tmp"), is_temporary(".draft.tmp")
    (True, False)
    """
    return _TEMPORARY.fullmatch(name) is not None


def hidden(path: Path, suffix: str) -> Path:
    """An unused name in the same folder, with the process and machine in it: `.name.0123456789ab.tmp`."""
    return path.with_name(f".{path.name}.{_author()}{os.urandom(2).hex()}{suffix}")


def _author() -> str:
    return f"{os.getpid():06x}{zlib.crc32(platform.node().encode()) & 0xFF:02x}"


def remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed on this machine have left of a file or directory, now that it is there."""
    _remove_left(path.parent, f".{path.name}.")


def remove_parts(folder: Path) -> None:
    """Remove what processes that were killed on this machine have left in a folder by `write_whole`."""
    _remove_left(folder, ".")


def _remove_left(folder: Path, beginning: str) -> None:
    with suppress(OSError, RunnerError):  # what counts is written
        for name in names(folder):
            digits = name.removeprefix(beginning).partition(".")[0]
            is_left = name.startswith(beginning) and is_temporary(name) and is_temporary(f"{beginning}{digits}.tmp")
            if is_left and digits[6:8] == _author()[6:] and not _exists(int(digits[:6], 16)):
                remove(folder / name)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def write_new(path: Path, content: Content, mode: int = 0o666) -> None:
    """Write a file that does not exist, and return when it is on the disk."""
    before_operation("open", path)
    # Not by tempfile: so the system applies the umask, which Python cannot read without changing it.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        before_operation("write", path)
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        before_operation("fsync", path)
        os.fsync(file.fileno())


def open_unlinked(path: Path, flags: int) -> int:
    """Open a file for writing: what a link under its name leads to is not written, and a pipe is not waited for."""
    try:
        return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o666)
    except OSError as reason:
        if path.is_symlink():
            raise OSError(reason.errno, "it is a symbolic link, which is not followed") from None
        raise


def rename(path: Path, other: Path) -> None:
    """Rename a file or directory; an existing file of the new name is replaced."""
    before_operation("rename", other)
    os.replace(path, other)


def make_new(path: Path) -> None:
    """Create a directory that does not exist."""
    before_operation("mkdir", path)
    path.mkdir()


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with all that is in it.

    Links are not followed, also if another process puts them there in the meantime.
    """
    if path.is_dir() and not path.is_symlink():
        handle = os.open(path, FOLDER)
        try:
            _empty(handle, path)
        finally:
            os.close(handle)
        before_operation("unlink", path)
        path.rmdir()
    else:
        before_operation("unlink", path)
        path.unlink(missing_ok=True)


def _empty(folder: int, path: Path) -> None:
    """Remove everything in an open folder; `path` is its name."""
    with os.scandir(folder) as entries:
        found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_folder in found:
        if is_folder:
            handle = os.open(name, FOLDER, dir_fd=folder)
            try:
                _empty(handle, path / name)
            finally:
                os.close(handle)
        before_operation("unlink", path / name)
        with suppress(FileNotFoundError):
            (os.rmdir if is_folder else os.unlink)(name, dir_fd=folder)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk."""
    before_operation("fsync", folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Append-only files, whose records survive a kill of the process that writes them.


class Journal:
    """An append-only file of JSON lines or binary records.

    `size` is its length in bytes. Each record is one write to the operating system; `sync` (and `close`) puts it on the
    disk. After a kill the last record may be cut, all earlier ones are whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors("cannot open a file for writing", path, "open"):
            handle = open_unlinked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StorageError("cannot open a file for writing", path=path, reason="not a regular file")
        self._file = open(handle, "ab", buffering=0)  # noqa: SIM115  it stays open as long as the run
        self.size = os.fstat(handle).st_size  # as this process knows it
        self._hashed, self._digest = 0, hashlib.sha256()  # of so many bytes

    def append(self, row: dict[str, Any]) -> None:
        """Add one row. Raises StorageError when the disk does not take all of it."""
        self.extend(json.dumps(row, allow_nan=False).encode() + b"\n")

    def extend(self, content: bytes) -> None:
        """Add bytes. Raises StorageError when the disk does not take all of them."""
        with storage_errors("cannot append to a file", self.path, "write"):
            written = self._file.write(content)
            self.size += written
            if written != len(content):
                raise OSError("the disk took only a part")

    def position(self) -> tuple[int, str]:
        """Bytes in the file, and their sha256 (hex); each byte is read once.

        Raises StorageError when another process has changed the length, so that nothing else is known of it either.
        """
        with storage_errors("cannot read a file that is written", self.path):
            if (found := os.fstat(self._file.fileno()).st_size) != self.size:
                raise OSError(f"another process has changed its length: from {self.size} to {found} bytes")
            while part := os.pread(self._file.fileno(), 1 << 20, self._hashed):
                self._digest.update(part)
                self._hashed += len(part)
        return self.size, self._digest.hexdigest()

    def cut(self, size: int) -> None:
        """Truncate to the first `size` bytes: a resumed run writes the rest again. Raises StorageError."""
        with storage_errors("cannot shorten a file", self.path, "truncate"):
            if size > os.fstat(self._file.fileno()).st_size:  # the system would fill it with zeros
                raise OSError(f"it has less than {size} bytes")
            self._file.truncate(size)
        self.size, self._hashed, self._digest = size, 0, hashlib.sha256()

    def sync(self) -> None:
        """Write all appended rows to the disk. Raises StorageError, also when the file was removed in the meantime."""
        with storage_errors("cannot sync a file to the disk", self.path, "fsync"):
            os.fsync(self._file.fileno())
            if os.fstat(self._file.fileno()).st_nlink == 0:  # the system writes into it until it is closed
                raise OSError("it was removed while it was written")

    def close(self) -> None:
        """Sync and close; closing twice is allowed."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                self._file.close()


# Locations of the folders that are distributed with runner.


def folder(name: str) -> Path:
    """The folder `conf` or `models`: inside an installed package, or beside `runner/` in a checkout.

    Raises StorageError when it is in neither location.
    """
    package = Path(__file__).resolve().parents[1]
    for path in (package / name, package.parent / name):
        if path.is_dir():
            return path
    raise StorageError("a folder of runner is missing", folder=name, looked_in=f"{package} and {package.parent}")

"""Errors for users, and the exit codes of the command line.

An error is one short block: a sentence that states the problem, then labelled rows with the place, the value, the
allowed values and a hint. Inner layers raise with the details that they know; outer layers `add` the place.
"""

import difflib
import errno
import os
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Self, TypeVar

T = TypeVar("T")
# Where source files are that are not the user's, as code objects name them: this package, Python, installed packages.
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LIBRARY = os.path.dirname(os.__file__) + os.sep
SITE_PACKAGES = f"{os.sep}site-packages{os.sep}"
_TYPED = ("<stdin>", "<ipython-input")  # what a user types at a prompt
NO_MEMORY = "there is not enough memory"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The valid name closest to a mistyped one, or None when nothing is close.

    >>> nearest("batchsize", ["batch_size", "data_dir"])
    'batch_size'
    """
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def known_names(given: object, names: Iterable[str]) -> dict[str, object]:
    """The rows `allowed` and `nearest` of an error about an unknown name."""
    allowed = list(names)
    return {"allowed": ", ".join(allowed), "nearest": nearest(str(given), allowed)}


def changed_rows(was: Mapping[str, object], now: Mapping[str, object]) -> dict[str, str]:
    """The rows of an error about values that differ, by name.

    >>> changed_rows({"seed": 1, "epochs": 8}, {"seed": 2, "epochs": 8, "mode": "graph"})
    {'seed': 'was 1, is 2', 'mode': 'was None, is graph'}
    """
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return {name: f"was {was.get(name)}, is {now.get(name)}" for name in names}


def some(names: Sequence[str], most: int) -> str:
    """The first names, and the number of the others.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


SECRET = r"[\w.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|api_?key|access_?key|signature)[\w.-]*"
_SECRETS = re.compile(
    r"(://[^\s/@:]*:)[^\s/]+(?=@)"  # the password of an address
    rf"|((?:[?&;]|%3B){SECRET}(?:=|%3D))[^\s&;#\"']+"  # an entry of its query
    r"|(\bauthorization\W{1,4}(?:basic|bearer)\s+)[^\s\"']+",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """A text for logs and files, without passwords and tokens in addresses and headers.

    >>> masked("https://me:secret@host/x?api_key=secret&y=1")
    'https://me:***@host/x?api_key=***&y=1'
    """
    return _SECRETS.sub(lambda found: f"{found[1] or found[2] or found[3]}***", text)


class RunnerError(RuntimeError):
    """A failure that the user can understand and correct.

    `rows` are the labelled lines below the sentence; rows whose value is None are omitted. It is a RuntimeError, since
    scripts of MindSpore catch what its pipelines and kernels raise as one.
    """

    exit_code = 1

    def __init__(self, what: str, /, **rows: object) -> None:
        super().__init__(what)
        self.what = what
        self.rows: dict[str, str] = {}
        self.add(**rows)

    def add(self, **rows: object) -> Self:
        """Add rows; a row that exists keeps its value.

        Underscores in labels are printed as spaces, except in names of keys (`optimizer.learning_rate`).
        """
        for label, value in rows.items():
            if value is not None:
                self.rows.setdefault(label if "." in label else label.replace("_", " "), str(value))
        return self

    def __str__(self) -> str:
        width = max((len(label) for label in self.rows), default=0)
        margin = "\n" + " " * (width + 4)
        lines = [f"  {label:<{width}}  {value.replace(chr(10), margin)}" for label, value in self.rows.items()]
        return _printable(masked("\n".join([f"{type(self).__name__}: {self.what}", *lines])))


class TrainingError(RunnerError):
    """Training failed: a loss that is not finite, or an error inside a network."""


class ConfigError(RunnerError, ValueError, TypeError):
    """An invalid configuration or call.

    MindSpore raises TypeError for some of them and ValueError for others; scripts that catch either catch this one.
    """

    exit_code = 2


class MissingName(ConfigError, AttributeError):
    """A public name of MindSpore that runner does not have."""


class MissingModule(ConfigError, ImportError):
    """The import of a module or name of MindSpore that runner does not have."""


class ShapeError(ConfigError):
    """Operands that an operator cannot take."""


class NotDifferentiable(ConfigError):
    """A gradient was requested of an operator that has none."""


class DeviceError(RunnerError):
    """The requested device cannot be used on this machine."""

    exit_code = 3


class BusyError(RunnerError):
    """Another run owns the run directory."""

    exit_code = 4


class StorageError(RunnerError, OSError):
    """A file could not be written or read."""

    exit_code = 5


class MismatchError(RunnerError):
    """A comparison or an expectation failed."""

    exit_code = 6


class DataError(RunnerError, ValueError):
    """A data file is missing, damaged, or has another format than its name says."""

    exit_code = 7


class ConfigErrors(ConfigError):
    """All errors of a configuration."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(f"{len(errors)} errors in the configuration")
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def raise_all(errors: Collection[ConfigError]) -> None:
    """Raise the only error, or ConfigErrors with all of them; do nothing when there are none."""
    if len(errors) == 1:
        raise next(iter(errors))
    if errors:
        raise ConfigErrors(tuple(errors))


def collect_errors(make: Callable[..., T], *given: object) -> tuple[T | None, list[ConfigError]]:
    """The result of a call; or None and its configuration errors, to be raised with others (`raise_all`)."""
    try:
        return make(*given), []
    except ConfigErrors as all_of_them:
        return None, list(all_of_them.errors)
    except ConfigError as error:
        return None, [error]


class InternalError(RunnerError):
    """A broken invariant: a defect of runner, not a mistake of the user."""


def unexpected(error: BaseException) -> RunnerError:
    """The error to report for an exception that runner did not foresee, with the place that raised it.

    A file that the system refuses and memory that is not there are no defects of runner: StorageError, ConfigError.
    Nor is what the code of a user raises: TrainingError, with the lines of that code.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    place = f"{last.filename}:{last.lineno} in {last.name}" if last else None
    text = str(error).strip().splitlines() or [""]
    if lines := user_lines(error):
        return TrainingError(f"{type(error).__name__}: {text[0]}", at="\n".join(lines))
    if is_memory_error(error):
        repair = "a smaller network, batch or image size, or a larger limit (ulimit -v, of the container)"
        return ConfigError(NO_MEMORY, reason=text[0] or None, at=place, repair=repair)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageError("too many files are open", reason=error.strerror, at=place, repair="ulimit -n 1024")
    if isinstance(error, OSError) and error.filename is not None:
        rows = {"path": _path(error.filename), "reason": error.strerror or text[0], "at": place}
        return StorageError("a file cannot be used", **rows)
    return InternalError(f"{type(error).__name__}: {text[0]}", at=place, hint="runner.debug=true shows the traceback")


def is_memory_error(error: BaseException) -> bool:
    """Whether memory was refused, in whatever form Python, the system or a native library reports it."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    refused = ("failed to map segment", "cannot allocate memory", "failed to allocate memory", "std::bad_alloc")
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in refused)


def user_lines(error: BaseException) -> list[str]:
    """The lines of the user's code that led to an error, the innermost last; [] when there are none.

    Without those of a program that called runner: they did not cause it.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return [f"{error.filename}:{error.lineno}  {(error.text or '').strip()}"]
    frames = traceback.extract_tb(error.__traceback__)
    first = next((place for place, one in enumerate(frames) if one.filename.startswith(PACKAGE)), 0)
    of_user = (one for one in frames[first:] if _is_users(one.filename))
    return [f"{one.filename}:{one.lineno} in {one.name}: {one.line}" for one in of_user]


def _is_users(file: str) -> bool:
    """Whether a source file is the user's: neither of this package, nor of Python or an installed package."""
    others = (PACKAGE, LIBRARY, "<")
    return (not file.startswith(others) or file.startswith(_TYPED)) and SITE_PACKAGES not in file


def _path(name: object) -> object:
    return os.fsdecode(name) if isinstance(name, bytes) else name


def _printable(text: str) -> str:
    """A text without control characters and lone surrogates, which terminals execute and files cannot have."""
    plain = text.translate(_CONTROLS)
    return plain.encode("utf-8", "backslashreplace").decode()


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}

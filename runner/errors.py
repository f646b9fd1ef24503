"""What a user is told when something cannot work, and the exit code that goes with it.

An error is one short block: a sentence that says what is wrong, then labelled rows with the place, the value,
what is allowed and how to repair it. Inner floors raise with what they know; outer floors `add` the place.
"""

import difflib
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Self, TypeVar

T = TypeVar("T")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The valid name closest to a mistyped one, or None when nothing is close.

    >>> nearest("batchsize", ["batch_size", "data_dir"])
    'batch_size'
    """
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


class RunnerError(Exception):
    """A failure that the user can understand and repair.

    `rows` become the labelled lines under the sentence; a row whose value is None is left out.
    """

    exit_code = 1

    def __init__(self, what: str, /, **rows: object) -> None:
        super().__init__(what)
        self.what = what
        self.rows: dict[str, str] = {}
        self.add(**rows)

    def add(self, **rows: object) -> Self:
        """Add rows that an inner floor could not know; a row that is already there keeps its first value.

        Underscores of labels are shown as spaces, except in the names of keys (`optimizer.learning_rate`).
        """
        for label, value in rows.items():
            if value is not None:
                self.rows.setdefault(label if "." in label else label.replace("_", " "), str(value))
        return self

    def __str__(self) -> str:
        width = max((len(label) for label in self.rows), default=0)
        margin = "\n" + " " * (width + 4)
        lines = [f"  {label:<{width}}  {value.replace(chr(10), margin)}" for label, value in self.rows.items()]
        return "\n".join([f"{type(self).__name__}: {self.what}", *lines])


class TrainingError(RunnerError):
    """Training itself failed: a loss that is not finite, or an error inside a network."""


class ConfigError(RunnerError, ValueError):
    """A configuration or a call that asks for something impossible."""

    exit_code = 2


class ShapeError(ConfigError):
    """Operands that do not fit an operator."""


class NotDifferentiable(ConfigError):
    """A gradient was asked of an operator that has none."""


class DeviceError(RunnerError):
    """The device that was asked for cannot be used on this machine."""

    exit_code = 3


class BusyError(RunnerError):
    """Another run owns the run directory."""

    exit_code = 4


class StorageError(RunnerError, OSError):
    """A file could not be written or read."""

    exit_code = 5


class MismatchError(RunnerError):
    """A comparison or an expectation does not hold."""

    exit_code = 6


class DataError(RunnerError, ValueError):
    """A data file is missing, damaged, or not what its name says."""

    exit_code = 7


class ConfigErrors(ConfigError):
    """All the errors of one configuration, reported together."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(f"{len(errors)} errors in the configuration")
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def raise_all(errors: Collection[ConfigError]) -> None:
    """Raise the error, or all of them together; nothing when there are none."""
    if len(errors) == 1:
        raise next(iter(errors))
    if errors:
        raise ConfigErrors(tuple(errors))


def attempted(make: Callable[..., T], *given: object) -> tuple[T | None, list[ConfigError]]:
    """What a function returns; or None and what is wrong with the configuration, to be raised with other errors."""
    try:
        return make(*given), []
    except ConfigErrors as all_of_them:
        return None, list(all_of_them.errors)
    except ConfigError as error:
        return None, [error]


class InternalError(RunnerError):
    """A promise between two parts of runner is broken: a defect of runner, not of its user."""


def unexpected(error: BaseException) -> InternalError:
    """The error to report for an exception that runner did not foresee, with the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    place = f"{last.filename}:{last.lineno} in {last.name}" if last else None
    text = str(error).strip().splitlines() or [""]
    return InternalError(f"{type(error).__name__}: {text[0]}", at=place, hint="runner.debug=true shows the traceback")

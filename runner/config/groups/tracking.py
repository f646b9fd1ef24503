"""Keys of the group `tracking`, which depend on its `name`, and the check for its library."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from runner.errors import ConfigError
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import (
    FREE,
    MAX_COUNT,
    Frozen,
    Invalid,
    existing_folder,
    invalid_value_error,
    key,
    validate,
)

VARIABLE = "MLFLOW_TRACKING_URI"
FILE = "mlflow.db"
DATABASES = "postgresql", "mysql", "mssql"
ADDRESSES = "sqlite:///file.db, http://host:port, https://host, postgresql://host/name, mysql://..., mssql://..."
NAME_LENGTH = 250  # limit of names in MLflow


def address(value: object) -> str:
    """The checked URI of an MLflow store, with the absolute path of a database file. Raises Invalid."""
    text: str = validate(str, FREE, value)
    scheme, found, rest = text.partition("://")
    if scheme == "sqlite" and found:
        return _file(rest)
    if not found or scheme.split("+")[0] not in ("http", "https", *DATABASES):
        hint = f"a file: sqlite:///{FILE}" if scheme in ("file", text) else None
        raise Invalid("not an address of MLflow", ADDRESSES, hint=hint)
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None
    except ValueError as reason:
        raise Invalid(f"not an address of MLflow: {reason}", ADDRESSES) from None
    if not host and scheme.startswith("http"):
        raise Invalid("an address without a host", ADDRESSES)
    if parts.password is not None:
        hint = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or PGPASSWORD, in the environment"
        raise Invalid(
            "the address contains a password and would be written to files", "an address without a password", hint=hint
        )
    return text


def _file(rest: str) -> str:
    path, _, query = rest.removeprefix("/").partition("?")
    if not rest.startswith("/") or path in ("", ":memory:"):
        raise Invalid("not a database file", ADDRESSES, hint=f"sqlite:///{FILE}, or sqlite:////tmp/{FILE}")
    if problem := path_problem(path):
        raise Invalid(problem, ALLOWED)
    path = os.path.abspath(path)
    existing_folder(os.path.dirname(path))
    if os.path.lexists(path) and not os.path.isfile(path):
        raise Invalid("not a regular file", "a database file, existing or new")
    return f"sqlite:///{path}{'?' if query else ''}{query}"


def database_file(uri: str | None, tracking: object = None) -> str | None:
    """The path of the file in which a checked address stores runs; None for a server."""
    scheme, found, rest = (uri or "").partition(":///")
    return rest.partition("?")[0] if scheme == "sqlite" and found else None


def _name(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not 0 < len(text.strip()) <= NAME_LENGTH:
        raise Invalid("not a name", f"null, or text of 1 to {NAME_LENGTH} characters")
    return text


class NoTracking(Frozen):
    """No tracking: the run is recorded in its folder only."""

    name: str = key("none", choices=("none",))  # the kind of tracking


class TensorBoardTracking(Frozen):
    """Event files for TensorBoard in `tensorboard/` of the run directory."""

    name: str = key("tensorboard", choices=("tensorboard",))  # the kind of tracking
    every_seconds: float = key(2.0, above=0, high=MAX_COUNT)  # interval of updates in seconds


class MlflowTracking(Frozen):
    """A run of MLflow.

    `uri` null: MLFLOW_TRACKING_URI of the environment, or else `sqlite:///mlflow.db` in the working directory.
    `experiment` null: the name of the experiment, or of the network. `run_name` null: the last two folders of the run.
    """

    name: str = key("mlflow", choices=("mlflow",))  # the kind of tracking
    uri: str | None = key(None, validate=address, writes=database_file)  # a database file, a server or a database
    experiment: str | None = key(None, validate=_name)  # name of the experiment in MLflow
    run_name: str | None = key(None, validate=_name)  # name of the run in MLflow
    every_seconds: float = key(2.0, above=0, high=MAX_COUNT)  # interval of updates in seconds


Tracking = NoTracking | TensorBoardTracking | MlflowTracking


def is_requested(tracking: Tracking) -> bool:
    """Whether a run is tracked: only then `runner.experiment.tracking.attach` is loaded."""
    return not isinstance(tracking, NoTracking)


def address_of(tracking: MlflowTracking) -> str:
    """The URI of the MLflow store. Raises Invalid for an invalid one in the environment."""
    return tracking.uri or address(os.environ.get(VARIABLE) or f"sqlite:///{FILE}")


def consistency_errors(tracking: Tracking) -> Iterator[ConfigError]:
    """Errors of a tracking: its library is not installed, or the address in the environment is invalid."""
    needed = {"tensorboard": ["tensorboardX"], "mlflow": ["mlflow"]}.get(tracking.name, [])
    if isinstance(tracking, MlflowTracking):
        try:
            uri = address_of(tracking)
        except Invalid as invalid:
            given = os.environ.get(VARIABLE)
            yield invalid_value_error(VARIABLE if given else "tracking.uri", given, invalid)
            return
        if not uri.startswith("http"):
            needed.append("sqlalchemy")  # not in mlflow-skinny, which supports servers only
    missing = [name for name in needed if not _is_installed(name)]
    if missing:
        rows = {"value": tracking.name, "missing": ", ".join(missing)}
        hint = f'pip install "runner-ml[{tracking.name}]"'
        yield ConfigError("the library of this tracking is not installed", key="tracking", **rows, hint=hint)


def _is_installed(name: str) -> bool:
    found = find_spec(name)
    return found is not None and found.origin is not None  # None: only a folder of this name

"""Keys of the group `tracking`, whose `name` decides which keys it has, and whether its library is there."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from runner.errors import ConfigError
from runner.validation.records import Frozen
from runner.validation.rules import FREE, key
from runner.validation.validate import Invalid, existing_folder, invalid_value_error, validate

VARIABLE = "MLFLOW_TRACKING_URI"
FILE = "mlflow.db"
DATABASES = "postgresql", "mysql", "mssql"
ADDRESSES = "sqlite:///file.db, http://host:port, https://host, postgresql://host/name, mysql://..., mssql://..."
NAME_LENGTH = 250  # of what MLflow takes as a name


def address(value: object) -> str:
    """An address of MLflow, a database file with its absolute path; nothing is opened. Raises Invalid."""
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
        raise Invalid("a password in an address, which is written into files", "an address without one", hint=hint)
    return text


def _file(rest: str) -> str:
    path, _, query = rest.removeprefix("/").partition("?")
    if not rest.startswith("/") or path in ("", ":memory:"):
        raise Invalid("no file of a database", ADDRESSES, hint=f"sqlite:///{FILE}, or sqlite:////tmp/{FILE}")
    place = os.path.abspath(path)
    existing_folder(os.path.dirname(place))
    if os.path.lexists(place) and not os.path.isfile(place):
        raise Invalid("not a file", "the file of a database, which may be missing")
    return f"sqlite:///{place}{'?' if query else ''}{query}"


def _name(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not 0 < len(text.strip()) <= NAME_LENGTH:
        raise Invalid("not a name", f"null, or text of 1 to {NAME_LENGTH} characters")
    return text


class NoTracking(Frozen):
    """The run is written down in its folder only."""

    name: str = key("none", choices=("none",))  # which one


class TensorBoardTracking(Frozen):
    """Event files in `tensorboard/` of the run directory, which get what is new every so many seconds."""

    name: str = key("tensorboard", choices=("tensorboard",))  # which one
    every_seconds: float = key(2.0, above=0)  # how often it is told what is new


class MlflowTracking(Frozen):
    """A run of MLflow.

    `uri` null: MLFLOW_TRACKING_URI of the environment, or else `sqlite:///mlflow.db` where the command was started.
    `experiment` null: the name of the experiment, or of the network. `run_name` null: the last two folders of the run.
    """

    name: str = key("mlflow", choices=("mlflow",))  # which one
    uri: str | None = key(None, validate=address)  # a file, a server or a database
    experiment: str | None = key(None, validate=_name)  # under which MLflow lists it
    run_name: str | None = key(None, validate=_name)  # how MLflow shows it
    every_seconds: float = key(2.0, above=0)  # how often it is told what is new


Tracking = NoTracking | TensorBoardTracking | MlflowTracking
TRACKINGS: dict[str, type[Tracking]] = {
    "none": NoTracking,
    "tensorboard": TensorBoardTracking,
    "mlflow": MlflowTracking,
}


def is_asked(tracking: Tracking) -> bool:
    """Whether somebody else is told of the run: only then `runner.experiment.tracking.attach` is needed."""
    return not isinstance(tracking, NoTracking)


def address_of(tracking: MlflowTracking) -> str:
    """Where the run is told to. Raises Invalid for a wrong address in the environment."""
    return tracking.uri or address(os.environ.get(VARIABLE) or f"sqlite:///{FILE}")


def disagreements(tracking: Tracking) -> Iterator[ConfigError]:
    """What is missing for a tracking: its library, or a usable address in the environment."""
    needed = {"tensorboard": ["tensorboardX"], "mlflow": ["mlflow"]}.get(tracking.name, [])
    if isinstance(tracking, MlflowTracking):
        try:
            uri = address_of(tracking)
        except Invalid as invalid:
            told = os.environ.get(VARIABLE)
            yield invalid_value_error(VARIABLE if told else "tracking.uri", told, invalid)
            return
        if not uri.startswith("http"):
            needed.append("sqlalchemy")  # mlflow-skinny has none, and speaks with servers only
    missing = [name for name in needed if not _is_installed(name)]
    if missing:
        rows = {"value": tracking.name, "missing": ", ".join(missing)}
        hint = f'pip install "runner[{tracking.name}]"'
        yield ConfigError("the library of this tracking is not installed", key="tracking", **rows, hint=hint)


def _is_installed(name: str) -> bool:
    found = find_spec(name)
    return found is not None and found.origin is not None  # a folder of this name is no library

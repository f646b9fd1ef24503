"""What the group `tracking` cannot be, and how that is reported: before anything is written, with exit code 2."""

import pytest

from runner.config.compose import CommandLine, compose
from runner.config.groups import services
from runner.config.groups.services import MlflowTracking, NoTracking, TensorBoardTracking
from runner.errors import ConfigError, ConfigErrors, masked

LISTED = (
    "allowed  sqlite:///file.db, http://host:port, https://host, postgresql://host/name, mysql://..., mssql://...\n"
)
URI = "tracking.uri"

# Overrides behind tracking=mlflow, the key of the error, pieces of it.
WRONG = [
    ("tracking.uri=mlruns", URI, ("not an address of MLflow\n", LISTED, "hint     a file: sqlite:///mlflow.db\n")),
    ("tracking.uri=file:./mlruns", URI, ('value    "file:./mlruns"\n', LISTED, "sqlite:///mlflow.db\n")),
    ("tracking.uri=file:///tmp/mlruns", URI, (LISTED, "hint     a file: sqlite:///mlflow.db\n")),
    ("tracking.uri=ftp://host", URI, ("not an address of MLflow\n", LISTED)),
    ("tracking.uri=databricks://x", URI, ("not an address of MLflow\n", LISTED)),
    ("tracking.uri=http://", URI, ("an address without a host\n", LISTED)),
    ("tracking.uri='http://[::1'", URI, ("not an address of MLflow: Invalid IPv6 URL\n", LISTED)),
    ("tracking.uri=http://host:99999", URI, ("not an address of MLflow: Port out of range", LISTED)),
    ("tracking.uri=sqlite://", URI, ("not a database file\n", "sqlite:///mlflow.db")),
    ("tracking.uri=sqlite://mlflow.db", URI, ("not a database file\n", "sqlite:////tmp/mlflow.db")),
    ("tracking.uri='sqlite:///:memory:'", URI, ("not a database file\n",)),
    ("tracking.uri=sqlite:///nowhere/x.db", URI, ("a folder is missing\n", "mkdir -p {place}/nowhere\n")),
    (
        "tracking.uri=sqlite:///folder",
        URI,
        ("not a regular file\n", "a database file, existing or new\n"),
    ),
    ("tracking.uri=https://me:secret@host", URI, ("the address contains a password", "MLFLOW_TRACKING_PASSWORD")),
    ("tracking.uri=postgresql://me:secret@host/x", URI, ("the address contains a password", "PGPASSWORD")),
    ("tracking.uri='postgresql://host/x?password=secret'", URI, ("contains a password", 'x?password=***"')),
    ("tracking.uri='mssql://host/x?odbc_connect=A%3Dx%3BPWD%3Dsecret'", URI, ("contains a password", 'PWD%3D***"')),
    ("tracking.uri='sqlite:///x.db?api_key=secret'", URI, ("contains a password", 'api_key=***"')),
    ("tracking.uri=7", URI, ("not text\n", "value    7\n")),
    ("tracking.experiment=''", "tracking.experiment", ("not a name\n", "null, or text of 1 to 250 characters\n")),
    ("tracking.run_name=7", "tracking.run_name", ("not text\n", 'nearest  "7"\n')),
    (f"tracking.run_name={'x' * 251}", "tracking.run_name", ("not a name\n", "null, or text of 1 to 250")),
    (
        "tracking.every_seconds=0",
        "tracking.every_seconds",
        ("out of range\n", "number, above 0 and at most 2147483647\n"),
    ),
    ("tracking.every_seconds=often", "tracking.every_seconds", ("not a number\n",)),
    ("tracking.experimnt=a", "tracking.experimnt", ("unknown key\n", "nearest  tracking.experiment\n")),
]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Where the command is started; every library seems to be there."""
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(services.VARIABLE, raising=False)
    monkeypatch.setattr(services, "_is_installed", lambda name: True)
    return tmp_path


def errors_of(*lines: str) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        compose(CommandLine(lines))
    assert caught.value.exit_code == 2
    return list(caught.value.errors) if isinstance(caught.value, ConfigErrors) else [caught.value]


@pytest.mark.parametrize(("line", "key", "pieces"), WRONG, ids=[row[0][:50] for row in WRONG])
def test_a_wrong_value(place, line, key, pieces):
    (error,) = errors_of("tracking=mlflow", line)
    assert error.rows["key"] == key
    assert error.rows["from"] == "command line"
    for piece in pieces:
        assert piece.replace("{place}", str(place)) in f"{error}\n"
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "OperationalError: https://me:secret@host/x is not there",
        "connect to postgresql+psycopg2://me:sec@secret@host:5432/x",
        "GET /x?token=secret&y=1 failed",
        "Authorization: Bearer secret",
        "{'authorization': 'basic secret'}",
    ],
)
def test_secrets_are_masked_in_every_error(text):
    assert "secret" not in str(ConfigError("MLflow cannot start this run", reason=text))
    assert "***" in masked(text)


@pytest.mark.parametrize(
    "text", ["a file of tokens: x?tokens", "http://host:5000/x", "me@host", "a:b@c", "sqlite:///x.db?mode=ro"]
)
def test_other_texts_stay_as_they_are(text):
    assert masked(text) == text


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("tracking=tensorbord", ("unknown option\n", "nearest  tensorboard\n")),
        ("tracking=wandb", ("unknown option\n", "allowed  mlflow, none, tensorboard\n")),
        ("tracking.uri=sqlite:///x.db", ("unknown key\n", "add tracking=mlflow first\n")),
        ("tracking.every_seconds=1", ("unknown key\n", "add tracking=tensorboard or tracking=mlflow first\n")),
    ],
)
def test_a_wrong_group(line, pieces):
    (error,) = errors_of(line)
    for piece in pieces:
        assert piece in f"{error}\n"


@pytest.mark.parametrize(
    ("lines", "missing", "libraries"),
    [
        (("tracking=tensorboard",), {"tensorboardX"}, "tensorboardX"),
        (("tracking=mlflow",), {"mlflow", "sqlalchemy"}, "mlflow, sqlalchemy"),
        (("tracking=mlflow",), {"sqlalchemy"}, "sqlalchemy"),  # mlflow-skinny
    ],
)
def test_a_missing_library_is_reported_with_all_other_errors(monkeypatch, lines, missing, libraries):
    monkeypatch.setattr(services, "_is_installed", lambda name: name not in missing)
    name = lines[0].partition("=")[2]
    wrong, error = errors_of(*lines, "epochs=0")
    assert wrong.rows["key"] == "epochs"
    assert error.what == "the library of this tracking is not installed"
    hint = f'pip install "runner-ml[{name}]"'
    assert error.rows == {"key": "tracking", "value": name, "missing": libraries, "hint": hint}


def test_a_server_needs_no_library_of_databases(monkeypatch):
    monkeypatch.setattr(services, "_is_installed", lambda name: name != "sqlalchemy")
    assert compose(
        CommandLine(("tracking=mlflow", "tracking.uri=http://localhost:5000"))
    ).config.tracking == MlflowTracking(uri="http://localhost:5000")


def test_a_library_is_what_can_be_imported(place, monkeypatch):
    monkeypatch.undo()
    (place / "thelib").mkdir()
    monkeypatch.syspath_prepend(place)
    assert services._is_installed("numpy")
    assert not services._is_installed("thelib")  # a folder of this name
    assert not services._is_installed("nolib")


def test_a_wrong_address_in_the_environment(monkeypatch):
    monkeypatch.setenv(services.VARIABLE, "file:./mlruns")
    (error,) = errors_of("tracking=mlflow")
    assert error.rows["key"] == services.VARIABLE
    assert error.rows["value"] == '"file:./mlruns"'
    compose(CommandLine(("tracking=tensorboard",)))  # which does not ask for it


def test_what_is_right(place, monkeypatch):
    assert compose(CommandLine()).config.tracking == NoTracking()
    assert compose(CommandLine(("tracking=tensorboard",))).config.tracking == TensorBoardTracking(every_seconds=2.0)
    made = compose(CommandLine(("tracking=mlflow", "tracking.uri='sqlite:///a b.db?timeout=9'"))).config.tracking
    assert made.uri == f"sqlite:///{place}/a b.db?timeout=9"
    assert services.address_of(made) == made.uri
    assert services.address_of(MlflowTracking()) == f"sqlite:///{place}/mlflow.db"
    monkeypatch.setenv(services.VARIABLE, "https://host/x")
    assert services.address_of(MlflowTracking()) == "https://host/x"
    assert services.address_of(made) == made.uri

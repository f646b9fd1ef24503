"""A run of MLflow: its library is loaded here, without telemetry, and asked through its client only.

MLflow tries for an hour to reach a database that is not there, so whether it is there is asked first.
"""

import json
import logging
import os
import socket
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from runner.errors import BusyError, ConfigError
from runner.experiment.tracking.points import Point
from runner.host.files import locked
from runner.host.json_file import flat
from runner.validation.records import Frozen

METRICS, TAGS = 500, 100  # at once; MLflow takes 1000 and 100
LENGTHS = {"params": 6000, "tags": 8000}  # characters of a value
ATTEMPTS, PAUSE = 3, 2.0  # seconds: another process may be writing into the same database
REACH_SECONDS = 5.0
LOCK_SECONDS, LOCK_PAUSE = 120.0, 0.05  # tables are made in some seconds
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
STATUS = {"ok": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}

T = TypeVar("T")
_LOG = logging.getLogger("runner")


class About(Frozen):
    """What a new run is called, or which one goes on: `run_id` of an earlier process, or None."""

    uri: str
    experiment: str
    run_name: str
    run_id: str | None
    config: dict[str, Any]
    tags: dict[str, str]


class MlflowRun:
    """A run that is made here, or one that goes on. Raises ConfigError when MLflow does not want to."""

    name = "mlflow"

    def __init__(self, about: About) -> None:
        try:
            _reach(about.uri)
            self._mlflow = _loaded()
            with _alone(about.uri):
                self._client = self._mlflow.MlflowClient(about.uri)
            self._run_id, self._goes_on = self._begun(about)
            self._note("tags", about.tags)
            self._configured(about.config)
        except Exception as reason:  # MLflow's, SQLAlchemy's, those of a broken installation: no list is complete
            text = (str(reason).strip().splitlines() or [""])[0]
            rows = {"key": "tracking.uri", "value": about.uri, "reason": f"{type(reason).__name__}: {text}"}
            hint = "tracking=none runs without; a database of an older MLflow needs: mlflow db upgrade URI"
            raise ConfigError("MLflow cannot begin with this run", **rows, hint=hint) from reason
        self._uri, self._experiment = about.uri, about.experiment

    @property
    def place(self) -> dict[str, Any]:
        return {"uri": self._uri, "experiment": self._experiment, "run_id": self._run_id}

    def told(self) -> dict[str, int]:
        if not self._goes_on:
            return {}
        known = self._client.get_run(self._run_id).data.metrics
        histories = {name: self._client.get_metric_history(self._run_id, name) for name in known}
        return {name: max(metric.step for metric in history) for name, history in histories.items()}

    def tell(self, points: list[Point]) -> None:
        for part in _parts(points, METRICS):
            metrics = [self._mlflow.entities.Metric(p.name, p.value, int(p.time * 1000), p.step) for p in part]
            # Metrics that are told twice, with the same times, are there once.
            _patiently(partial(self._client.log_batch, self._run_id, metrics=metrics))

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        self._note("tags", {f"{name}.{key}": value for key, value in flat(dict(values)).items()})

    def close(self, status: str) -> None:
        _patiently(partial(self._client.set_terminated, self._run_id, STATUS[status]))

    def _begun(self, about: About) -> tuple[str, bool]:
        """The id of the run, and whether it goes on."""
        if about.run_id is not None:
            try:
                if self._client.get_run(about.run_id).info.lifecycle_stage == "active":
                    self._client.update_run(about.run_id, status="RUNNING")
                    return about.run_id, True
            except self._mlflow.exceptions.MlflowException:
                pass
            _LOG.warning("MLflow has no run %s any more: another one gets all rows", about.run_id)
        made = self._client.create_run(self._experiment_id(about.experiment), run_name=about.run_name)
        return str(made.info.run_id), False

    def _experiment_id(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except self._mlflow.exceptions.MlflowException:  # another job was faster
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _configured(self, config: Mapping[str, Any]) -> None:
        """Parameters cannot change in MLflow; what a run that goes on has changed becomes tags."""
        now = _texts("params", flat(dict(config)))
        before = self._client.get_run(self._run_id).data.params if self._goes_on else {}
        self._note("params", {name: value for name, value in now.items() if name not in before})
        self._note("tags", {f"changed.{name}": now[name] for name in now if before.get(name, now[name]) != now[name]})

    def _note(self, kind: str, values: Mapping[str, Any]) -> None:
        made = {"params": self._mlflow.entities.Param, "tags": self._mlflow.entities.RunTag}[kind]
        for part in _parts(list(_texts(kind, values).items()), TAGS):
            batch = {kind: [made(name, value) for name, value in part]}
            _patiently(partial(self._client.log_batch, self._run_id, **batch))


def _reach(uri: str) -> None:
    """Raise OSError or sqlite3.Error when there is no database at an address."""
    parts, path = urlsplit(uri), _file(uri)
    kind = parts.scheme.split("+")[0]
    if path is not None and path.exists():
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA schema_version")
    elif kind in PORTS and parts.hostname:
        socket.create_connection((parts.hostname, parts.port or PORTS[kind]), REACH_SECONDS).close()


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Inside, no other job opens the same file: two that make its tables at once fail both (MLflow 3.17).

    Raises BusyError when another one does not come to an end.
    """
    with ExitStack() as stack:
        path = _file(uri)
        deadline = time.monotonic() + LOCK_SECONDS
        while path is not None:
            try:
                stack.enter_context(locked(path.with_name(f".{path.name}.lock")))
                break
            except BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_PAUSE)
        yield


def _file(uri: str) -> Path | None:
    """The file of a database, when it is one."""
    return Path(urlsplit(uri).path.removeprefix("/")) if uri.startswith("sqlite") else None


def _loaded() -> Any:
    """The library, which is told to send nothing home and to give up after seconds; what the user has set holds."""
    usual = {"DISABLE_TELEMETRY": "true", "HTTP_REQUEST_MAX_RETRIES": "3", "HTTP_REQUEST_TIMEOUT": "20"}
    for name, value in usual.items():
        os.environ.setdefault(f"MLFLOW_{name}", value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own parts to each other
        import mlflow
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)  # how it makes its tables
    return mlflow


def _texts(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Values as MLflow keeps them: text as it is, all else as JSON, within its lengths."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return {name: text[: LENGTHS[kind]] for name, text in texts.items()}


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _patiently(call: Callable[[], object]) -> None:
    """Call, and again after a while when it raises; the last time what it raises is raised."""
    for _ in range(ATTEMPTS - 1):
        try:
            call()
        except Exception:
            time.sleep(PAUSE)
        else:
            return
    call()

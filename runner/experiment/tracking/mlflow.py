"""A run of MLflow: loads its library, without telemetry, and uses its client only.

MLflow tries for an hour to reach a missing database, so its existence is checked first.
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
from runner.host.console import LOG
from runner.host.files import locked
from runner.host.json import flat
from runner.validation.rules import Frozen

METRICS, TAGS = 500, 100  # per request; MLflow's limits are 1000 and 100
LENGTHS = {"params": 6000, "tags": 8000}  # characters of a value
ATTEMPTS, PAUSE = 3, 2.0  # PAUSE in seconds: another process may be writing to the same database
REACH_SECONDS = 5.0
LOCK_SECONDS, LOCK_PAUSE = 120.0, 0.05  # creating the tables takes some seconds
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
STATUS = {"ok": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}

T = TypeVar("T")


class MlflowRunInfo(Frozen):
    """Database, names and config of a run; `run_id` is that of an earlier process to continue, or None."""

    uri: str
    experiment: str
    run_name: str
    run_id: str | None
    config: dict[str, Any]
    tags: dict[str, str]


class MlflowRun:
    """A new or continued run. Raises ConfigError when MLflow cannot start it."""

    name = "mlflow"

    def __init__(self, info: MlflowRunInfo) -> None:
        try:
            _reach(info.uri)
            self._mlflow = _load_library()
            with _exclusive(info.uri):
                self._client = self._mlflow.MlflowClient(info.uri)
            self._run_id, self._is_continued = self._start(info)
            self._log("tags", info.tags)
            self._log_config(info.config)
        except Exception as reason:  # of MLflow, SQLAlchemy or a broken installation: no list is complete
            text = (str(reason).strip().splitlines() or [""])[0]
            rows = {"key": "tracking.uri", "value": info.uri, "reason": f"{type(reason).__name__}: {text}"}
            hint = "tracking=none runs without it; a database of an older MLflow needs: mlflow db upgrade URI"
            raise ConfigError("MLflow cannot start this run", **rows, hint=hint) from reason
        self._uri, self._experiment = info.uri, info.experiment

    @property
    def place(self) -> dict[str, Any]:
        return {"uri": self._uri, "experiment": self._experiment, "run_id": self._run_id}

    def last_steps(self) -> dict[str, int]:
        if not self._is_continued:
            return {}
        known = self._client.get_run(self._run_id).data.metrics
        histories = {name: self._client.get_metric_history(self._run_id, name) for name in known}
        return {name: max(metric.step for metric in history) for name, history in histories.items()}

    def add_points(self, points: list[Point]) -> None:
        for part in _parts(points, METRICS):
            metrics = [self._mlflow.entities.Metric(p.name, p.value, int(p.time * 1000), p.step) for p in part]
            # MLflow stores a metric once that is sent again with the same time.
            _patiently(partial(self._client.log_batch, self._run_id, metrics=metrics))

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        self._log("tags", {f"{name}.{key}": value for key, value in flat(dict(values)).items()})

    def close(self, status: str) -> None:
        _patiently(partial(self._client.set_terminated, self._run_id, STATUS[status]))

    def _start(self, info: MlflowRunInfo) -> tuple[str, bool]:
        """The id of the run, and whether it continues an earlier one."""
        if info.run_id is not None:
            try:
                if self._client.get_run(info.run_id).info.lifecycle_stage == "active":
                    self._client.update_run(info.run_id, status="RUNNING")
                    return info.run_id, True
            except self._mlflow.exceptions.MlflowException:
                pass
            LOG.warning("MLflow no longer has run %s: a new one gets all rows", info.run_id)
        run = self._client.create_run(self._experiment_id(info.experiment), run_name=info.run_name)
        return str(run.info.run_id), False

    def _experiment_id(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except self._mlflow.exceptions.MlflowException:  # another job has created it
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _log_config(self, config: Mapping[str, Any]) -> None:
        """Log the config as parameters, which MLflow cannot change; keys changed by a continued run become tags."""
        now = _texts("params", flat(dict(config)))
        before = self._client.get_run(self._run_id).data.params if self._is_continued else {}
        self._log("params", {name: value for name, value in now.items() if name not in before})
        self._log("tags", {f"changed.{name}": now[name] for name in now if before.get(name, now[name]) != now[name]})

    def _log(self, kind: str, values: Mapping[str, Any]) -> None:
        entity = {"params": self._mlflow.entities.Param, "tags": self._mlflow.entities.RunTag}[kind]
        for part in _parts(list(_texts(kind, values).items()), TAGS):
            batch = {kind: [entity(name, value) for name, value in part]}
            _patiently(partial(self._client.log_batch, self._run_id, **batch))


def _reach(uri: str) -> None:
    """Raise OSError or sqlite3.Error when the database at `uri` cannot be reached."""
    parts, path = urlsplit(uri), _file(uri)
    kind = parts.scheme.split("+")[0]
    if path is not None and path.exists():
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA schema_version")
    elif kind in PORTS and parts.hostname:
        socket.create_connection((parts.hostname, parts.port or PORTS[kind]), REACH_SECONDS).close()


@contextmanager
def _exclusive(uri: str) -> Iterator[None]:
    """Inside, no other job opens the same database file: two that create its tables at once both fail (MLflow 3.17).

    Raises BusyError when another job holds it for more than `LOCK_SECONDS`.
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
    """The file of an SQLite database; None for others."""
    return Path(urlsplit(uri).path.removeprefix("/")) if uri.startswith("sqlite") else None


def _load_library() -> Any:
    """The library, without telemetry and with short timeouts, unless the user has set these variables."""
    defaults = {"DISABLE_TELEMETRY": "true", "HTTP_REQUEST_MAX_RETRIES": "3", "HTTP_REQUEST_TIMEOUT": "20"}
    for name, value in defaults.items():
        os.environ.setdefault(f"MLFLOW_{name}", value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own modules
        import mlflow
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)  # they log the creation of tables
    return mlflow


def _texts(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Values as MLflow stores them: strings unchanged, all else as JSON, truncated to its limits."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return {name: text[: LENGTHS[kind]] for name, text in texts.items()}


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _patiently(call: Callable[[], object]) -> None:
    """Call up to `ATTEMPTS` times, `PAUSE` seconds apart, until it succeeds. Raises the last error."""
    for _ in range(ATTEMPTS - 1):
        try:
            call()
        except Exception:
            time.sleep(PAUSE)
        else:
            return
    call()

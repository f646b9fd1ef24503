"""TensorBoard and MLflow: a thread that follows the files of a run and sends what is new to a tracker.

`with_tracking` wraps a run with a config, `tracked` is the context for that of a script. In order: rows as points of
curves; MLflow; the thread; TensorBoard; from the config to the running thread.
"""

import errno
import json
import logging
import math
import os
import socket
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from runner import rundir
from runner.config.gate import path_error
from runner.config.groups.services import MlflowTracking, Tracking, address, address_of, database_file
from runner.config.schema import RunRequest
from runner.errors import BusyError, ConfigError, MismatchError, RunnerError, StorageError, masked, raise_all
from runner.experiment.sweep.journal import SweepState
from runner.host.console import LOG
from runner.host.event_files import MARK, load_library, records
from runner.host.files import leads_to, locked, make_directory, names, real_path, write_json
from runner.host.json import flat, read_object, read_optional, without_lists
from runner.validation.rules import Frozen, Invalid, invalid_value_error

# Rows of `metrics.jsonl` as points of curves, in the form that trackers receive.

POSITION_KEYS = {"event", "epoch", "step", "global_step"}  # all other keys are values
CHUNK = 1 << 18  # bytes per read: about 3000 rows


class Point(NamedTuple):
    """A value of a curve at a global step; `time` is when it was read, in seconds since 1970."""

    name: str
    value: float
    step: int
    time: float


def of_row(row: Mapping[str, Any]) -> list[Point]:
    """The single numbers of a row by name, prefixed with the event unless it is a step: `loss`, and `eval/loss`.

    >>> [point[:3] for point in of_row({"event": "eval", "epoch": 1, "global_step": 44, "accuracy": 0.5})]
    [('eval/accuracy', 0.5, 44)]
    """
    group = "" if row["event"] == "step" else f"{row['event']}/"
    now = time.time()
    numbers = without_lists({name: value for name, value in row.items() if name not in POSITION_KEYS})
    return [Point(group + name, float(x), row["global_step"], now) for name, x in numbers.items() if x is not None]


def of_summary(summary: Mapping[str, Any]) -> list[Point]:
    """The numbers of `summary.json` as `summary/...`, at the last step."""
    values = {name: value for name, value in flat(dict(summary)).items() if type(value) in (int, float)}
    now, step = time.time(), int(summary.get("steps", 0))
    return [Point(f"summary/{name}", float(value), step, now) for name, value in values.items() if math.isfinite(value)]


class Tail:
    """Reads the new rows of a growing file; an incomplete last line is left for the next read."""

    def __init__(self, path: Path) -> None:
        self.path, self._offset = path, 0

    def new(self) -> Iterator[list[Point]]:
        """The points of new rows, about 3000 rows at a time. Raises OSError, and ValueError for an invalid row."""
        while content := self._read():
            yield [point for line in content.splitlines() for point in of_row(json.loads(line))]

    def _read(self) -> bytes:
        if not self.path.exists():
            return b""
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            content = file.read(CHUNK)
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole


# A run of MLflow: loads its library, without telemetry, and uses its client only.
#
# MLflow tries for an hour to reach a missing database, so its existence is checked first.

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


# A thread that follows the files of a run and sends new rows to a tracker, so that no step waits for it.
#
# The files are authoritative: the tracker gets every row of `metrics.jsonl` once, also after a resume, including those
# that an earlier process could not send. A failing tracker is logged once, and the training continues.

LAST_SECONDS = 30.0  # timeout of a tracker at the end of a run
STOPPED_SECONDS = 5.0  # the same after a signal, before the sender kills the process


class Tracker(Protocol):
    """Receives one run, first from the thread that creates it, then from one other. May raise any exception."""

    name: str

    @property
    def place(self) -> dict[str, Any]:
        """The location of the run, as JSON."""

    def last_steps(self) -> dict[str, int]:
        """The last step of each curve, as sent by earlier processes."""

    def add_points(self, points: list[Point]) -> None:
        """Add points to the curves."""

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        """Add the values of a file of the run, such as its `manifest`."""

    def close(self, status: str) -> None:
        """End the run as ok, failed or interrupted. Called once, also after errors."""


class Follower:
    """Follows the run in `folder`, checking its files every `every_seconds` seconds."""

    def __init__(self, tracker: Tracker, folder: Path, every_seconds: float) -> None:
        self.tracker, self.folder = tracker, folder
        self.reason: str | None = None  # why the tracker gets no more rows
        self._every = every_seconds
        self._tail = Tail(folder / rundir.METRICS)
        self._last_steps: dict[str, int] = {}
        self._before, self._described = self._manifest(), False
        self._ending = threading.Event()
        self._status, self._summary = "ok", dict[str, Any]()
        # A daemon: a tracker that hangs does not keep the process.
        self._thread = threading.Thread(target=self._follow, name="tracking", daemon=True)
        self._thread.start()

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        """Send the remaining rows and the summary, if any, and close, within `LAST_SECONDS` or `STOPPED_SECONDS`."""
        self._status, self._summary = status, dict(summary)
        self._ending.set()
        timeout = STOPPED_SECONDS if status == "interrupted" else LAST_SECONDS
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._stop(f"no answer for {timeout:g} seconds")

    def _follow(self) -> None:
        try:
            self._last_steps = self.tracker.last_steps()
            while not self._ending.wait(self._every):
                # Before the manifest of this process exists, a resumed run may still truncate its metrics.
                if self._has_manifest():
                    self._rows()
            self._has_manifest()
            self._rows()
            if self._summary:
                self.tracker.add_points(of_summary(self._summary))
        except Exception as reason:
            self._stop(_line(reason))
        self._ending.wait()
        try:
            self.tracker.close(self._status)
        except Exception as reason:
            self._stop(_line(reason))

    def _has_manifest(self) -> bool:
        """Whether the manifest of this process exists; it is sent once."""
        if not self._described and self._manifest() not in (None, self._before):
            self.tracker.describe("manifest", read_object(self.folder / rundir.MANIFEST))
            self._described = True
        return self._described

    def _manifest(self) -> tuple[int, int] | None:
        """Inode and modification time (ns) of the manifest, which change when it is rewritten."""
        try:
            state = (self.folder / rundir.MANIFEST).stat()
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns

    def _rows(self) -> None:
        for points in self._tail.new():
            fresh = [point for point in points if point.step > self._last_steps.get(point.name, -1)]
            if fresh:
                self.tracker.add_points(fresh)

    def _stop(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            effect = "its data are incomplete; the run continues, and its files are complete"
            LOG.warning("tracking=%s has failed (%s): %s", self.tracker.name, reason, effect)


def _line(reason: Exception) -> str:
    """An exception in one line."""
    return masked(f"{type(reason).__name__}: {(str(reason).strip().splitlines() or [''])[0]}")


# A run as TensorBoard event files. Messages and records are those of tensorboardX, the thread is ours.
#
# The writer of tensorboardX has a queue whose reader dies at the first error, which then blocks the training forever.


class EventFile:
    """A new event file in `folder`, next to those of earlier processes; it begins with texts, by name.

    Raises ImportError, OSError and StorageError.
    """

    name = "tensorboard"

    def __init__(self, folder: Path, texts: Mapping[str, Mapping[str, Any]]) -> None:
        self._library = load_library()
        before = [name for name in names(make_directory(folder)) if MARK in name]
        self._folder, self._before = folder, [folder / name for name in before]
        # The suffix distinguishes and orders files that are created in the same second.
        self._writer = self._library.writer(str(folder / "events"), f".{len(before)}")
        self._file = next(folder / name for name in names(folder) if MARK in name and name not in before)
        self._identity = self._file.stat()
        for name, values in texts.items():
            self.describe(name, values)

    @property
    def place(self) -> dict[str, Any]:
        return {"path": str(self._folder)}

    def last_steps(self) -> dict[str, int]:
        last: dict[str, int] = {}
        for path in self._before:
            for event in map(self._library.event.FromString, records(path)):
                last |= {value.tag: max(event.step, last.get(value.tag, -1)) for value in event.summary.value}
        return last

    def add_points(self, points: list[Point]) -> None:
        self._require_file()
        for point in points:
            summary = self._library.summary(value=[{"tag": point.name, "simple_value": point.value}])
            self._writer.write_event(self._library.event(wall_time=point.time, step=point.step, summary=summary))
        self._writer.flush()

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        lines = json.dumps(dict(values), indent=2).splitlines()
        text = self._library.text(name, "\n".join(f"    {line}" for line in lines))  # a Markdown code block
        self._writer.write_event(self._library.event(wall_time=time.time(), summary=text))
        self._writer.flush()

    def close(self, status: str) -> None:
        self.describe("status", {"status": status})
        self._writer.close()
        self._require_file()

    def _require_file(self) -> None:
        """Raise OSError when the file is no longer there: what is written would be lost without an error."""
        if not leads_to(str(self._file), self._identity):
            raise FileNotFoundError(errno.ENOENT, "the event file was removed or replaced", str(self._file))


# From the config to the thread.

MAX_LEVELS = 4  # folders between a job and its sweep

Run = Callable[[RunRequest], dict[str, Any]]


class TrackedRun(Frozen):
    """What trackers receive about a run besides its files; `name` is its experiment or its network."""

    folder: Path
    tracking: Tracking
    name: str
    experiment: str | None
    config: dict[str, Any]
    overrides: tuple[str, ...] = ()
    resume: bool = False


def with_tracking(run: Run) -> Run:
    """The function `run` with the tracker of its config; the summary gets the tracker's status as `tracking`.

    It raises the errors of `run`, and ConfigError before the run starts when the tracker cannot start.
    """

    def tracked_run(request: RunRequest) -> dict[str, Any]:
        name = request.experiment or request.config.network.name
        names = request.config.tracking, name, request.experiment
        with tracked(
            TrackedRun(request.folder, *names, request.resolved, request.overrides, request.resume)
        ) as summary:
            summary.update(run(request))
        return summary

    return tracked_run


@contextmanager
def tracked(run: TrackedRun) -> Iterator[dict[str, Any]]:
    """Inside, the tracker of a run follows its files. Yields a dict, into which the caller puts the summary of the run;
    at the end the summary has the tracker's status as `tracking`.

    Raises ConfigError and StorageError when the tracker cannot start.
    """
    tracker = _tracker(run)
    write_json(run.folder / rundir.TRACKING, _state(tracker, "running", None))
    follower = Follower(tracker, run.folder, run.tracking.every_seconds)  # type: ignore[union-attr]
    summary: dict[str, Any] = {}
    try:
        yield summary
    except BaseException as error:
        # A run that does not meet its expectations has a summary, too.
        has_summary = isinstance(error, MismatchError)
        _end(follower, error, read_optional(run.folder / rundir.SUMMARY) if has_summary else {})
        raise
    summary["tracking"] = _end(follower, None, summary)
    write_json(run.folder / rundir.SUMMARY, summary)


def _end(follower: Follower, error: BaseException | None, summary: dict[str, Any]) -> dict[str, Any]:
    """Close the tracker, and return its status."""
    status = "ok" if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    follower.end(status, summary)
    state = _state(follower.tracker, "incomplete" if follower.reason else "ok", follower.reason)
    with suppress(StorageError):  # a full disk: the run itself says so
        write_json(follower.folder / rundir.TRACKING, state)
    return state


def _state(tracker: Tracker, status: str, reason: str | None) -> dict[str, Any]:
    return {"name": tracker.name, "status": status, "reason": reason, **tracker.place}


def _tracker(run: TrackedRun) -> Tracker:
    if isinstance(run.tracking, MlflowTracking):
        return MlflowRun(_run_info(run, run.tracking))
    folder = run.folder.absolute() / rundir.TENSORBOARD
    try:
        return EventFile(folder, {"config": run.config, "run": _tags(run, run.folder.absolute())})
    except ImportError as reason:
        hint = 'pip install "runner-ml[tensorboard]"'
        raise ConfigError("tensorboardX cannot be loaded", key="tracking", reason=reason, hint=hint) from reason
    except OSError as reason:
        raise StorageError("no event file can be written", path=folder, reason=reason) from reason


def _run_info(run: TrackedRun, tracking: MlflowTracking) -> Any:
    folder, uri = run.folder.absolute(), address_of(tracking)
    before = read_optional(folder / rundir.TRACKING) if run.resume else {}
    same = (before.get("name"), before.get("uri")) == ("mlflow", uri)
    if before.get("name") == "mlflow" and tracking.uri is None:  # a resumed run keeps its database
        same, uri = True, _recorded_address(str(before.get("uri")), uri, folder)
    return MlflowRunInfo(
        uri=uri,
        experiment=tracking.experiment or run.name,
        run_name=tracking.run_name or "/".join(folder.parts[-2:]),
        run_id=before.get("run_id") if same else None,
        config=run.config,
        tags=_tags(run, folder),
    )


def _recorded_address(recorded: str, current: str, folder: Path) -> str:
    """The database of a resumed run, from its folder. Raises ConfigError when it is not below an allowed place."""
    if recorded != current:
        try:
            file = database_file(address(recorded))
        except Invalid as invalid:
            raise invalid_value_error("tracking.uri", recorded, invalid, file=folder / rundir.TRACKING) from None
        if file is not None:
            raise_all(path_error("tracking.uri", recorded, Path(file), {}, [folder]))
    return recorded


def _tags(run: TrackedRun, folder: Path) -> dict[str, str]:
    """Metadata of a run besides its config: its folder, and its job in a sweep."""
    tags = {"folder": str(folder), "experiment": run.experiment, "overrides": " ".join(run.overrides)}
    for sweep in folder.parents[:MAX_LEVELS]:
        if (sweep / rundir.SWEEP).exists():
            tags |= {"sweep": str(sweep), "job": _job(sweep, folder)}
            break
    return {f"runner.{name}": value for name, value in tags.items() if value}


def _job(sweep: Path, folder: Path) -> str | None:
    """The number of the job that runs in a folder, according to the journal of its sweep."""
    state = SweepState(sweep)
    with suppress(RunnerError):  # a damaged journal is reported elsewhere
        state.update()
    rows = state.started.items()
    return next((str(number) for number, row in rows if real_path(sweep / row["folder"]) == real_path(folder)), None)

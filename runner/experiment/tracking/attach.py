"""Attaches TensorBoard or MLflow to a run: from the config to the thread that follows the files of the run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from runner.config.gate import path_error
from runner.config.groups.services import MlflowTracking, Tracking, address, address_of, database_file
from runner.config.schema import RunRequest
from runner.errors import ConfigError, MismatchError, RunnerError, StorageError, raise_all
from runner.experiment.sweep.journal import NAME as SWEEP_FILE
from runner.experiment.sweep.state import SweepState
from runner.experiment.tracking import mlflow
from runner.experiment.tracking.follower import Follower, Tracker
from runner.experiment.tracking.tensorboard import EventFile
from runner.host.files import real_path, write_json
from runner.host.json import read_optional
from runner.validation.rules import Frozen, Invalid, invalid_value_error

STATE_FILE, SUMMARY_FILE = "tracking.json", "summary.json"
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
    write_json(run.folder / STATE_FILE, _state(tracker, "running", None))
    follower = Follower(tracker, run.folder, run.tracking.every_seconds)  # type: ignore[union-attr]
    summary: dict[str, Any] = {}
    try:
        yield summary
    except BaseException as error:
        # A run that does not meet its expectations has a summary, too.
        has_summary = isinstance(error, MismatchError)
        _end(follower, error, read_optional(run.folder / SUMMARY_FILE) if has_summary else {})
        raise
    summary["tracking"] = _end(follower, None, summary)
    write_json(run.folder / SUMMARY_FILE, summary)


def _end(follower: Follower, error: BaseException | None, summary: dict[str, Any]) -> dict[str, Any]:
    """Close the tracker, and return its status."""
    status = "ok" if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    follower.end(status, summary)
    state = _state(follower.tracker, "incomplete" if follower.reason else "ok", follower.reason)
    with suppress(StorageError):  # a full disk: the run itself says so
        write_json(follower.folder / STATE_FILE, state)
    return state


def _state(tracker: Tracker, status: str, reason: str | None) -> dict[str, Any]:
    return {"name": tracker.name, "status": status, "reason": reason, **tracker.place}


def _tracker(run: TrackedRun) -> Tracker:
    if isinstance(run.tracking, MlflowTracking):
        return mlflow.MlflowRun(_run_info(run, run.tracking))
    folder = run.folder.absolute() / "tensorboard"
    try:
        return EventFile(folder, {"config": run.config, "run": _tags(run, run.folder.absolute())})
    except ImportError as reason:
        hint = 'pip install "runner-ml[tensorboard]"'
        raise ConfigError("tensorboardX cannot be loaded", key="tracking", reason=reason, hint=hint) from reason
    except OSError as reason:
        raise StorageError("no event file can be written", path=folder, reason=reason) from reason


def _run_info(run: TrackedRun, tracking: MlflowTracking) -> Any:
    folder, uri = run.folder.absolute(), address_of(tracking)
    before = read_optional(folder / STATE_FILE) if run.resume else {}
    same = (before.get("name"), before.get("uri")) == ("mlflow", uri)
    if before.get("name") == "mlflow" and tracking.uri is None:  # a resumed run keeps its database
        same, uri = True, _recorded_address(str(before.get("uri")), uri, folder)
    return mlflow.MlflowRunInfo(
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
            raise invalid_value_error("tracking.uri", recorded, invalid, file=folder / STATE_FILE) from None
        if file is not None:
            raise_all(path_error("tracking.uri", recorded, Path(file), {}, [folder]))
    return recorded


def _tags(run: TrackedRun, folder: Path) -> dict[str, str]:
    """Metadata of a run besides its config: its folder, and its job in a sweep."""
    tags = {"folder": str(folder), "experiment": run.experiment, "overrides": " ".join(run.overrides)}
    for sweep in folder.parents[:MAX_LEVELS]:
        if (sweep / SWEEP_FILE).exists():
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

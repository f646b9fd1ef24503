"""Attaches TensorBoard or MLflow to a run: from the config to the thread that follows the files of the run."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.config.containment import path_error
from runner.config.groups.tracking import MlflowTracking, address, address_of, database_file
from runner.config.schema import RunRequest
from runner.errors import ConfigError, MismatchError, RunnerError, StorageError, raise_all
from runner.experiment.sweep.journal import NAME as SWEEP_FILE
from runner.experiment.sweep.state import SweepState
from runner.experiment.tracking import mlflow
from runner.experiment.tracking.follower import Follower, Tracker
from runner.experiment.tracking.tensorboard import EventFile
from runner.host.files import write_json
from runner.host.json_file import read_object
from runner.validation.validate import Invalid, invalid_value_error

STATE_FILE, SUMMARY_FILE = "tracking.json", "summary.json"
MAX_LEVELS = 4  # folders between a job and its sweep

Run = Callable[[RunRequest], dict[str, Any]]


def with_tracking(run: Run) -> Run:
    """The function `run` with the tracker of its config; the summary gets the tracker's status as `tracking`.

    It raises the errors of `run`, and ConfigError before the run starts when the tracker cannot start.
    """

    def tracked(request: RunRequest) -> dict[str, Any]:
        tracking = request.config.tracking
        tracker = _tracker(request)
        write_json(request.folder / STATE_FILE, _state(tracker, "running", None))
        follower = Follower(tracker, request.folder, tracking.every_seconds)  # type: ignore[union-attr]
        try:
            summary = run(request)
        except BaseException as error:
            # A run that does not meet its expectations has a summary, too.
            _end(
                follower, error, read_object(request.folder / SUMMARY_FILE) if isinstance(error, MismatchError) else {}
            )
            raise
        summary = {**summary, "tracking": _end(follower, None, summary)}
        write_json(request.folder / SUMMARY_FILE, summary)
        return summary

    return tracked


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


def _tracker(request: RunRequest) -> Tracker:
    if isinstance(request.config.tracking, MlflowTracking):
        return mlflow.MlflowRun(_run_info(request, request.config.tracking))
    folder = request.folder.absolute() / "tensorboard"
    try:
        return EventFile(folder, {"config": request.resolved, "run": _tags(request, request.folder.absolute())})
    except ImportError as reason:
        hint = 'pip install "runner[tensorboard]"'
        raise ConfigError("tensorboardX cannot be loaded", key="tracking", reason=reason, hint=hint) from reason
    except OSError as reason:
        raise StorageError("no event file can be written", path=folder, reason=reason) from reason


def _run_info(request: RunRequest, tracking: MlflowTracking) -> Any:
    folder, uri = request.folder.absolute(), address_of(tracking)
    before = read_object(folder / STATE_FILE) if request.resume else {}
    same = (before.get("name"), before.get("uri")) == ("mlflow", uri)
    if before.get("name") == "mlflow" and tracking.uri is None:  # a resumed run keeps its database
        same, uri = True, _recorded_address(str(before.get("uri")), uri, folder)
    return mlflow.MlflowRunInfo(
        uri=uri,
        experiment=tracking.experiment or request.experiment or request.config.network.name,
        run_name=tracking.run_name or "/".join(folder.parts[-2:]),
        run_id=before.get("run_id") if same else None,
        config=request.resolved,
        tags=_tags(request, folder),
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


def _tags(request: RunRequest, folder: Path) -> dict[str, str]:
    """Metadata of a run besides its config: its folder, and its job in a sweep."""
    tags = {"folder": str(folder), "experiment": request.experiment, "overrides": " ".join(request.overrides)}
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
    return next((str(number) for number, row in rows if (sweep / row["folder"]).resolve() == folder.resolve()), None)

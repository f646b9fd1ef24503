"""A process that dies at a file operation, played inside of the process of the test or killed; what a run leaves."""

import hashlib
import json
import os
import signal
from pathlib import Path

from runner.host import files

TIMES = ("init_seconds", "compile_seconds", "first_loss_seconds", "train_seconds", "steps_per_second", "peak_rss_mb")
OF_THE_PROCESS = (*TIMES, "run_dir", "host_interactions")


class Dead(BaseException):
    """The process is gone: nothing may be written any more, not by any cleanup either."""


def die_at(monkeypatch, number: int, only: str = ""):
    """Let the operations from number `number` (from 1) on fail; `only` counts those on one file name."""
    count, unlink = 0, Path.unlink

    def before(operation: str, path: Path) -> None:
        nonlocal count
        count += not only or (operation == "write" and path.name == only)
        if count >= number:
            raise Dead

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        if count >= number:  # a temporary file stays
            raise Dead
        unlink(path, missing_ok)

    monkeypatch.setattr(files, "before_operation", before)
    monkeypatch.setattr(Path, "unlink", unlinked)


def kill_before(number: int) -> list[str]:
    """Kill this process, a fork of the test, before its operation of this number (from 1); returns those so far."""
    operations: list[str] = []

    def before(operation: str, path: Path) -> None:
        operations.append(operation)
        if len(operations) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    files.before_operation = before
    return operations


def traces(folder: Path) -> dict[str, object]:
    """What must not depend on where a run was killed: every file, and the summary without times."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith((".hydra", ".lock", "status.json", "manifest.json")):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    summary = json.loads((folder / "summary.json").read_text())
    found["summary.json"] = {key: value for key, value in summary.items() if key not in OF_THE_PROCESS}
    return found


def status_of(folder: Path) -> str:
    return json.loads((folder / "status.json").read_text())["status"]

"""Records a killed run in `status.json`: a process beside the first rank, which waits for the end of that process.

When one rank is killed, mpirun kills the others (SIGKILL), and none of them can record it. The guardian is in another
session, so it is not one of the processes that are killed. It keeps the standard error of the rank open, so mpirun
usually returns after the status is written; a run that is resumed before has the lock of the folder and keeps it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from runner import rundir
from runner.errors import BusyError, StorageError, TrainingError
from runner.host import files, json
from runner.host.console import now

ATTEMPTS, PAUSE_SECONDS = 600, 0.1


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Context in which a guardian watches this process, which executes the run in `folder`.

    `-P`: files of the working directory do not replace modules.
    """
    command = [sys.executable, "-P", "-m", __name__, str(folder.absolute()), str(os.getpid())]
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command, start_new_session=True, **how) as guardian:  # type: ignore[call-overload]
        try:
            yield
        finally:
            with suppress(OSError):  # it may have been killed itself
                guardian.stdin.write(b"ended")
                guardian.stdin.close()


def record_if_killed(folder: Path, pid: int) -> None:
    """Complete the status of a run that process `pid` was executing; nothing if it has ended in another way.

    The system closes the files of a killed process one after the other, so its lock may remain for a moment.
    """
    with suppress(StorageError, OSError, ValueError):
        for _ in range(ATTEMPTS):
            if _running(folder, pid) is None:
                return
            with suppress(BusyError), files.locked(folder / rundir.LOCK):
                return _record(folder, pid)
            time.sleep(PAUSE_SECONDS)


def _running(folder: Path, pid: int) -> dict[str, Any] | None:
    """The status of the run if it says that process `pid` is executing it."""
    status = json.read_object(folder / rundir.STATUS)
    return status if (status.get("status"), status.get("pid")) == ("running", pid) else None


def _record(folder: Path, pid: int) -> None:
    if _running(folder, pid) is None:  # it has been resumed
        return
    reason = "mpirun ends all ranks when one of them is killed; its output names that process"
    repair = f"runner resume {folder}" if rundir.can_be_resumed(folder) else None
    error = TrainingError("the run was killed", reason=reason, repair=repair)
    rundir.record_failure(folder, 128 + signal.SIGKILL, str(error), finished=now())


if __name__ == "__main__" and not sys.stdin.read():  # the other end was closed by a process that could write nothing
    record_if_killed(Path(sys.argv[1]), int(sys.argv[2]))

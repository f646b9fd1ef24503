"""Runs in processes of their own: started, killed, resumed, and what they leave."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 600  # ends only what would never end
# The Python of an environment in which a wheel is installed: what is tested is that, without this checkout.
INSTALLED = os.environ.get("RUNNER_PYTHON")


def started(words: Sequence[str], cwd: Path, launcher: Sequence[str] = ()) -> subprocess.Popen[str]:
    """`runner` with these words, in a group of processes of its own."""
    environment = {**os.environ, "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1"}
    if not INSTALLED:
        environment["PYTHONPATH"] = str(ROOT)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*launcher, INSTALLED or sys.executable, "-m", "runner", *words]
    return subprocess.Popen(command, cwd=cwd, env=environment, text=True, start_new_session=True, **pipes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code and outputs; nothing of its group remains."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        kill_group(process)
    return process.returncode, out, err


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill (-9) everything that the process has started in its group, and itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def called(words: Sequence[str], cwd: Path, launcher: Sequence[str] = ()) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `runner` with these words."""
    return ended(started(words, cwd, launcher))


def plain_error(code: int, err: str) -> bool:
    """Whether a command ended with a code of the contract, and neither a traceback nor an internal error."""
    return code in (0, 1, 2, 3, 4, 5, 6, 7, 8, 130, 143) and "Traceback" not in err and "InternalError" not in err

"""mpirun for tests, and a world of several ranks inside of one process."""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from patience import PATIENCE

from runner.communication.world import World

MPIRUN = Path(sys.executable).parent / "mpirun"
ROOT = Path(__file__).parents[2]
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not MPIRUN.exists(),
    reason='needs mpi4py and the wheel of MPICH: pip install ".[mpi]"',
)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def start(ranks: int, *words: object, **options: object) -> "subprocess.Popen[str]":
    """`mpirun -n ranks python ...`."""
    return start_each(["-n", str(ranks), sys.executable, *map(str, words)], **options)


def start_each(*groups: list[str], **options: object) -> "subprocess.Popen[str]":
    """`mpirun GROUP : GROUP ...`: the processes of each group have their own program and directory."""
    command = [str(MPIRUN), *groups[0], *(word for group in groups[1:] for word in (":", *group))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, "env": environment(), **options})  # type: ignore[call-overload]


def mpirun(ranks: int, *words: object, **options: object) -> tuple[int, str, str]:
    """Exit code, what was printed, and the errors."""
    return finished(start(ranks, *words, **options))


def finished(started: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, what was printed, and the errors; what does not end is ended with all of its ranks."""
    with started as process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except BaseException:
            process.terminate()  # mpirun passes it to the ranks, which are in other sessions
            try:
                process.wait(timeout=30)
            finally:
                kill_all(process)
            raise
    return process.returncode, out, err


def kill_all(process: "subprocess.Popen[str]") -> None:
    """End mpirun and all that it has started: its own processes can wait busily for ever."""
    with suppress(psutil.NoSuchProcess):
        for started in psutil.Process(process.pid).children(recursive=True):
            started.kill()
    process.kill()


def losses(folder: Path) -> list[float]:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row["loss"] for row in rows if row["event"] == "step"]


class Several(World):
    """Rank 1 of `size`, in a test: what the other ranks have is `others`, one number more than this rank has, each."""

    def __init__(self, size: int = 3) -> None:
        self.rank, self.size = 1, size
        self.told: list[str] = []

    def begin(self, arrays):
        self.told.append(f"begin {len(arrays)}")

    def summed(self, arrays):
        """Rank r has this rank's arrays plus r - 1."""
        self.told.append(f"sum {len(arrays)}")
        return [sum(array + np.float32(r - 1) for r in range(self.size)) for array in arrays]

"""Processes that choose their class of machines themselves, on this processor or on one that `qemu-user` emulates."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from runner.host.arithmetic import CORE_VARIABLE, FEATURES_VARIABLE

CHOSEN = CORE_VARIABLE, FEATURES_VARIABLE
ROOT = Path(__file__).parents[2]
QEMU = shutil.which("qemu-x86_64")
needs_emulator = pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed, which emulates other processors")


def python(*words: str, processor: str | None = None, cwd: Path = ROOT, **variables: str) -> str:
    """The output of Python with these words, on a processor by its name for qemu; without what was chosen here."""
    emulator = [str(QEMU), "-cpu", processor] if processor else []
    paths = map(str, (ROOT, ROOT / "tests/support", sysconfig.get_path("purelib")))
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), **variables}
    command = [*emulator, os.path.realpath(sys.executable), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=cwd)
    assert processor or not done.stderr, done.stderr
    return done.stdout

"""Processes that choose their class of machines themselves, on this processor or on one that `qemu-user` emulates."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from runner.host.arithmetic import CORE_VARIABLE, EXACT_VARIABLE, FEATURES_VARIABLE

CHOSEN = CORE_VARIABLE, FEATURES_VARIABLE
ROOT = Path(__file__).parents[2]
QEMU = shutil.which("qemu-x86_64")
needs_emulator = pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed, which emulates other processors")


def started(
    *words: str, processor: str | None = None, cwd: Path = ROOT, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Python with these words, when it has ended, on a processor by its name for qemu; without what was chosen here."""
    emulator = [str(QEMU), "-cpu", processor] if processor else []
    paths = map(str, (ROOT, ROOT / "tests/support", sysconfig.get_path("purelib")))
    environment = {name: value for name, value in os.environ.items() if name not in (*CHOSEN, EXACT_VARIABLE)}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), **variables}
    command = [*emulator, os.path.realpath(sys.executable), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)


def python(*words: str, processor: str | None = None, cwd: Path = ROOT, **variables: str) -> str:
    """What it prints. It succeeds, and without a warning where nothing is emulated."""
    done = started(*words, processor=processor, cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    assert processor or not done.stderr, done.stderr
    return done.stdout

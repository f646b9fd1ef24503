"""`manifest.json`: everything that the numbers of a run depend on."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.files import write_json
from runner.machine import cpu_model
from runner.train.callback import Callback, RunContext


class ManifestWriter(Callback):
    """Writes the manifest after the first step: by then it is known which provider runs, and nobody waits for it."""

    def __init__(self, path: Path, facts: Callable[[], dict[str, Any]]) -> None:
        self.path, self.facts = path, facts
        self.written = False

    def step_end(self, run_context: RunContext) -> None:
        if not self.written:
            write_json(self.path, {**self.facts(), "cpu": cpu_model(), "git": git_state()})
            self.written = True


def config_hash(config: dict[str, Any]) -> str:
    """sha256 (hex) of a resolved config, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def git_state() -> dict[str, Any] | None:
    """Commit of the folder that the command runs in, and whether its files differ from it; None outside of git."""
    commit = _git("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "dirty": bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

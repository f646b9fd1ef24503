"""Scripts in Node, which may import the modules of `examples/web`."""

import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "examples" / "web"


def node(*words: str | Path, folder: Path) -> str:
    """What a script prints. Skips where Node is missing."""
    if shutil.which("node") is None:
        pytest.skip("no Node here")
    done = subprocess.run(["node", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def module(script: str, folder: Path) -> str:
    """What JavaScript prints that imports the modules of the page."""
    return node("--input-type=module", "-e", f"const web = {WEB.as_uri()!r};\n{script}", folder=folder)

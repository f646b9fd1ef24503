"""An exported run on the digits, as the examples use it, and what Python makes of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from exported_steps import losses_of
from javascript import WEB

ROOT = Path(__file__).parents[2]
ADAM = ("optimizer=adam", "optimizer.learning_rate=0.001")  # learns within 200 steps


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a short run of LeNet."""
    folder = tmp_path_factory.mktemp("run") / "trained"
    words = ["+experiment=lenet_seed", *ADAM, "mode=graph", "max_steps=2", "callbacks=quiet", f"hydra.run.dir={folder}"]
    subprocess.run([sys.executable, "-m", "runner", *words], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="session")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as `runner export` writes it."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    subprocess.run([sys.executable, "-m", "runner", "export", run, "--to", folder], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="session")
def site(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the page with all that it needs, as far as it is installed."""
    folder = tmp_path_factory.mktemp("page") / "site"
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("node_modules", "model"))
    subprocess.run([sys.executable, folder / "digits.py"], cwd=ROOT, check=True)
    (folder / "model").symlink_to(exported)
    return folder


@pytest.fixture(scope="session")
def losses(exported: Path) -> list[float]:
    """Of 200 steps in Python."""
    return losses_of(exported)

"""300 hostile config files: refused with exit code 2 or harmless, and nothing happens outside of the working directory.

Each is composed once with its memory measured, and given to a whole run. `make soak` takes all of them, the suite some.
"""

import os
import tracemalloc

import pytest
from hostile_files import Attack, Place, attacks
from soak import thinned
from tables import check_rows

from runner import register
from runner.cli import main
from runner.config.compose import CommandLine, compose
from runner.errors import collect_errors

PEAK = 100 << 20  # bytes; a bomb of 25 lines would take a hundred times as much
LONGEST = 50_000  # characters of all messages
SHORT = ("dataset=synthetic", "dataset.num_samples=32", "max_steps=1", "callbacks=quiet", "eval.every=never")
ARGUMENTS = ("+experiment=evil", "runner.debug=false")
PROJECT = ("pyproject.toml", "own.py", "__pycache__")
OWN = """
import runner
from runner import nn

@runner.register.network("own")
class Own(nn.Cell):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Variables that files may read, and none that allows a place."""
    monkeypatch.delenv("RUNNER_WRITABLE", raising=False)
    monkeypatch.delenv("RUNNER_NOT_SET", raising=False)
    compose(CommandLine(SHORT))  # imports are not part of the memory


def contents(place: Place) -> dict[str, bytes | str | None]:
    """All files, links and folders that must stay as they are."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(place.root.rglob("*")):
        if path == place.here or place.here in path.parents:
            continue
        readable = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20
        found[str(path)] = path.read_bytes() if readable else os.readlink(path) if path.is_symlink() else None
    return found


def create_project(place: Place) -> None:
    """A project of the user in the working directory, whose code is trusted, unlike the config."""
    (place.here / "pyproject.toml").write_text('[tool.runner]\ncode = ["own.py"]\n')
    (place.here / "own.py").write_text(OWN)


def check(attack: Attack, place: Place, monkeypatch, capfd, in_project: bool = False) -> None:
    place.create()
    if in_project:
        create_project(place)
    attack.write(place)
    monkeypatch.setenv("HOME", str(place.root / "home"))
    monkeypatch.setenv("PWD", str(place.here))
    monkeypatch.chdir(place.here)
    before = contents(place)
    words = (*ARGUMENTS, *(word for word in SHORT if not (word.startswith("dataset") and "data_dir" in attack.name)))
    tracemalloc.start()
    _, errors = collect_errors(compose, CommandLine(words, config_dir=place.experiment.parent))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < PEAK
    assert sum(len(str(error)) for error in errors) < LONGEST
    capfd.readouterr()
    code = main([*words, "--config-dir", str(place.experiment.parent)])
    err = capfd.readouterr().err
    assert code in attack.codes, err
    assert "Traceback" not in err
    assert "InternalError" not in err
    assert contents(place) == before
    if errors:
        assert {path.name for path in place.here.iterdir()} - {*PROJECT} == {"link"}
        assert (code, "ConfigError" in err) == (2, True)


@pytest.mark.parametrize("in_project", [False, True], ids=["alone", "in_project"])
def test_hostile_files(in_project, tmp_path, monkeypatch, capfd):
    found = attacks()
    assert len(found) >= 300
    rows = list(thinned(enumerate(found), 36 if in_project else 18))

    def one(row):
        number, attack = row
        check(attack, Place(tmp_path / str(number)), monkeypatch, capfd, in_project)
        register.network.discard("own")

    check_rows(rows, one, name=lambda row: f"{row[0]} {row[1].name}")

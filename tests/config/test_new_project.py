"""`runner new DIR`: the project trains and tests itself; what is refused; kills at every write."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from runner import cli
from runner.config.new_project import create
from runner.errors import BusyError, ConfigError, StorageError
from runner.host import files

ROOT = Path(__file__).parents[2]
FILES = {
    *(".gitignore", "README.md", "pyproject.toml", ".github/workflows/ci.yml", "tests/test_orchard.py"),
    *("conf/experiment/first.yaml", "conf/experiment/second.yaml"),
    *("orchard/__init__.py", "orchard/callbacks.py", "orchard/data.py", "orchard/networks.py"),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_project_works(place):
    """The words that the command prints, in other processes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def call(*words: str, cwd: Path = place) -> str:
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=cwd, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert call("runner", "new", "demo") == "project: demo\nnext: cd demo && runner +experiment=first && pytest\n"
    assert "accuracy" in call("runner", "+experiment=first", "callbacks=quiet", cwd=place / "demo")
    assert "accuracy" in call("runner", "+experiment=second", "epochs=1", "callbacks=quiet", cwd=place / "demo")
    assert "4 passed" in call("pytest", "-q", "-p", "no:randomly", "-p", "no:xdist", cwd=place / "demo")
    (run, *_) = sorted((place / "demo" / "outputs").glob("*/*"))
    assert "accuracy" in call("runner", "eval", str(run), "eval.split=train", cwd=place / "demo")
    environment["COMP_LINE"] = "runner dataset=sp"  # the project's dataset, as its runs have registered it
    assert call("runner", "-sc", "query=bash", cwd=place / "demo") == "dataset=spirals\n"


def test_the_files_have_the_name(place, capsys):
    assert cli.main(["new", "a/Fruit-Trees", "--name", "orchard"]) == 0
    assert capsys.readouterr().out.startswith("project: a/Fruit-Trees\n")
    found = written(place / "a" / "Fruit-Trees")
    assert found.keys() == FILES
    assert not [name for name, text in found.items() if "my_project" in text]
    project = tomllib.loads(found["pyproject.toml"])
    assert (project["project"]["name"], project["tool"]["runner"]["code"]) == ("orchard", ["orchard"])
    assert project["project"]["dependencies"] == [
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    ]
    assert cli.main(["new", "Fruit-Trees"]) == 0
    assert (place / "Fruit-Trees" / "fruit_trees" / "data.py").exists()


def test_the_files_are_in_the_distribution():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"]["template"] == "runner/template"
    assert "template" in build["sdist"]["include"]
    assert files.folder("template") == ROOT / "template"


def test_an_empty_directory_and_a_repository_are_filled(place):
    (place / ".git").mkdir()
    (place / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert cli.main(["new", ".", "--name", "orchard"]) == 0
    assert written(place).keys() == FILES | {".git/HEAD"}


NOT_EMPTY = {
    "file": lambda folder: (folder / "notes.txt").write_text("mine"),
    "other content": lambda folder: (folder / "README.md").write_text("mine"),
    "hidden": lambda folder: (folder / ".env").write_text("mine"),
    "folder": lambda folder: (folder / "data").mkdir(),
    "link": lambda folder: (folder / "orchard").symlink_to("/tmp"),
    "link of a file": lambda folder: (folder / "README.md").symlink_to(ROOT / "README.md"),
    "project": lambda folder: create(folder, "orchard"),
}


@pytest.mark.parametrize("case", NOT_EMPTY)
def test_other_files_are_left_alone(place, case):
    (place / "taken").mkdir()
    NOT_EMPTY[case](place / "taken")
    before = written(place / "taken")
    with pytest.raises(BusyError, match="the directory is not empty") as caught:
        create(place / "taken", "orchard")
    assert caught.value.exit_code == 4
    assert "runner new" in caught.value.rows["hint"]
    assert written(place / "taken") == before


@pytest.mark.parametrize("name", ["numpy", "json", "runner", "class", "3d", "Größe", "a.b", "a/b", "", "x" * 41])
def test_names_that_no_package_can_have(place, name, capsys):
    assert cli.main(["new", "demo", "--name", name]) == 2
    err = capsys.readouterr().err
    assert err.startswith("ConfigError: ")
    assert "hint     runner new DIR --name NAME" in err
    assert not list(place.iterdir())


def test_a_file_is_no_directory(place):
    (place / "demo").write_text("mine")
    with pytest.raises(StorageError):
        create(place / "demo", "orchard")
    with pytest.raises(ConfigError):
        cli.run_command("new", ["a\0b"])


class Killed(BaseException):
    """In place of SIGKILL: no handler of `files` catches it in time to write."""


def test_a_second_call_finishes_what_a_kill_has_left(place, monkeypatch):
    """A kill before each operation that changes something; no reader sees a project file without all other files."""
    operations: list[str] = []
    monkeypatch.setattr(files, "before_operation", lambda operation, path: operations.append(operation))
    create(place / "whole", "orchard")
    whole = written(place / "whole")
    for last in range(len(operations)):
        left = iter(range(last))

        def kill(operation: str, path: Path, left=left) -> None:
            if next(left, None) is None:
                raise Killed

        folder = place / f"killed_{last}"
        monkeypatch.setattr(files, "before_operation", kill)
        with pytest.raises(Killed):
            create(folder, "orchard")
        monkeypatch.setattr(files, "before_operation", lambda operation, path: None)
        if "pyproject.toml" in (found := written(folder)):
            assert found == whole
        else:
            create(folder, "orchard")
        assert written(folder) == whole


def test_temporary_files_of_a_kill_do_not_matter(place):
    create(place / "demo", "orchard")
    (place / "demo" / "pyproject.toml").unlink()
    (place / "demo" / "orchard" / ".data.py.0123456789ab.tmp").write_text("half")
    create(place / "demo", "orchard")
    assert written(place / "demo").keys() >= FILES

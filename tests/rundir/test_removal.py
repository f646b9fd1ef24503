"""Directories vanish at once: whatever is interrupted, a reader sees all of it or nothing, and the rest is removed."""

import os
from contextlib import closing, suppress
from pathlib import Path

import pytest

from runner import rundir
from runner.errors import StorageError
from runner.host import files


def fill(folder: Path) -> Path:
    (folder / "a" / "deep").mkdir(parents=True)
    (folder / ".lock").touch()
    for name in ("one", "a/two", "a/deep/three"):
        (folder / name).write_text(name)
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


class Fails:
    """For `files.before_operation`: from the n-th operation on, each one raises."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, operation: str, path: Path) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError("no more")


def test_a_directory_is_whole_or_gone_whichever_operation_fails(tmp_path, monkeypatch):
    count = 0
    while True:
        folder = fill(tmp_path / str(count) / "run")
        before = content(folder)
        monkeypatch.setattr(files, "before_operation", Fails(count))
        with suppress(StorageError):
            rundir.remove_directory(folder)
            break
        assert not folder.exists() or content(folder) == before
        left = [name for name in os.listdir(folder.parent) if name != "run"]
        assert all(map(rundir.is_removed, left))
        monkeypatch.undo()
        rundir.remove_leftovers(folder.parent)
        assert os.listdir(folder.parent) == (["run"] if folder.exists() else [])
        count += 1
    assert count > 8  # each file and folder
    assert os.listdir(folder.parent) == []


def test_a_folder_that_becomes_a_link_during_its_removal_is_not_followed(tmp_path, monkeypatch):
    """Another process exchanges it after it was listed."""
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    for place in (kept, folder / "a", folder / "b"):
        place.mkdir(parents=True)
        (place / "one").write_text("mine")

    def exchange(operation, path):
        if path == folder / "a" / "one":
            (folder / "b").rename(tmp_path / "aside")
            (folder / "b").symlink_to(kept)

    monkeypatch.setattr(files, "before_operation", exchange)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        files.remove(folder)
    assert (kept / "one").read_text() == "mine"


@pytest.mark.parametrize("opened", [files.locked, lambda path: closing(files.Journal(path))])
def test_locks_and_journals_are_not_written_through_links(tmp_path, opened):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StorageError, match="symbolic link, which is not followed"), opened(tmp_path / "link"):
        pass
    assert not (tmp_path / "target").exists()


def test_links_are_removed_and_not_followed(tmp_path):
    kept = fill(tmp_path / "kept")
    folder = fill(tmp_path / "run")
    (folder / "folder").symlink_to(kept)
    (folder / "file").symlink_to(kept / "one")
    (folder / "loop").symlink_to("loop")
    before = content(kept)
    rundir.remove_directory(folder)
    assert content(kept) == before
    assert os.listdir(tmp_path) == ["kept"]


def test_what_another_process_is_removing_stays_its_own(tmp_path):
    left = fill(tmp_path / ".run.0123456789ab.removed")
    with files.locked(left / ".lock"):
        rundir.remove_leftovers(tmp_path)
        assert content(left)
    rundir.remove_leftovers(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize("name", [".removed", "run.removed", ".run.0123.removed", ".run.0123456789ab.removed.txt"])
def test_other_names_are_not_left_by_a_removal(tmp_path, name):
    fill(tmp_path / name)
    (tmp_path / ".x.0123456789ab.removed").symlink_to(tmp_path / name)
    rundir.remove_leftovers(tmp_path)
    assert content(tmp_path / name)


def test_a_folder_that_cannot_be_changed(tmp_path, monkeypatch):
    folder = fill(tmp_path / "run")

    def refuse(operation: str, path: Path) -> None:
        if operation == "rename":
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "before_operation", refuse)
    with pytest.raises(StorageError, match="cannot remove a directory"):
        rundir.remove_directory(folder)
    assert len(content(folder)) == 4


def test_a_folder_of_another_user_inside_is_found_before_anything_is_removed(tmp_path, monkeypatch):
    folder, usual = fill(tmp_path / "run"), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: usual(path, mode) and not str(path).endswith("deep"))
    with pytest.raises(StorageError, match=r"Permission denied: .*/run/a/deep"):
        rundir.remove_directory(folder)
    assert len(content(folder)) == 4


def test_what_cannot_be_removed_has_its_name_again(tmp_path, monkeypatch):
    """A file that the system protects shows only when it is removed."""
    folder = fill(tmp_path / "run")

    def refuse(operation: str, path: Path) -> None:
        if operation == "unlink" and path.name == "two":
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files, "before_operation", refuse)
    with pytest.raises(StorageError, match="Operation not permitted"):
        rundir.remove_directory(folder)
    assert content(folder)["a/two"] == "a/two"
    assert os.listdir(tmp_path) == ["run"]

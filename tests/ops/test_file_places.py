"""Where print files go, and what they are when the disk does not want."""

from pathlib import Path

import numpy as np
import pytest

from runner import context, parse_print
from runner.errors import StorageError
from runner.host import files
from runner.ops import effects
from runner.ops.effects import PrintFile


def test_a_name_that_is_free_is_kept(tmp_path):
    assert effects.unused_path(tmp_path / "print.pb") == tmp_path / "print.pb"
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken_gets_the_time(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(effects.time, "time", lambda: 1618000000.9)
    path = tmp_path / "print.pb"
    for name in ("print.pb", "print.pb.1618000000", "print.pb.1618000001"):
        context.set_context(print_file_path=str(path))
        assert context.get_context("print_file_path") == str(tmp_path / name)
        effects.write([name])
    context.set_context(print_file_path="")
    assert {p.name: parse_print(p) for p in tmp_path.iterdir()} == {
        name: [name] for name in ("print.pb", "print.pb.1618000000", "print.pb.1618000001")
    }
    assert [record.message for record in caplog.records] == [
        f"{path} exists: prints go to print.pb.1618000000",
        f"{path} exists: prints go to print.pb.1618000001",
    ]


def test_nothing_is_made_before_something_is_printed(tmp_path):
    context.set_context(print_file_path=str(tmp_path / "print.pb"))
    context.set_context(print_file_path="")
    assert not list(tmp_path.iterdir())


def test_another_process_may_be_quicker(tmp_path, monkeypatch):
    monkeypatch.setattr(effects.time, "time", lambda: 1618000000.0)
    grows = PrintFile(tmp_path / "print.pb")
    (tmp_path / "print.pb").write_bytes(b"theirs")
    grows.append(["ours"])
    grows.close()
    assert (tmp_path / "print.pb").read_bytes() == b"theirs"
    assert grows.path == tmp_path / "print.pb.1618000000"
    assert parse_print(grows.path) == ["ours"]


def test_a_file_is_continued_when_its_settings_come_back(tmp_path, capsys):
    context.set_context(print_file_path=str(tmp_path / "a"))
    effects.write(["one"])
    with context.preserved():
        context.set_context(print_file_path=str(tmp_path / "b"))
        effects.write(["two"])
        context.set_context(print_file_path="")
        effects.write(["three"])
    effects.write(["four"])
    context.set_context(mode=context.GRAPH_MODE)
    effects.write(["five"])
    context.reset_context()
    effects.write(["six"])
    assert parse_print(tmp_path / "a") == ["one", "four", "five"]
    assert parse_print(tmp_path / "b") == ["two"]
    assert capsys.readouterr().out == "three\nsix\n"


def test_a_relative_path_is_that_of_the_moment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context.set_context(print_file_path="print.pb")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    effects.write(["here"])
    context.reset_context()
    assert parse_print(tmp_path / "print.pb") == ["here"]


# When the disk does not want


def test_a_print_that_does_not_fit_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "print.pb"
    grows = PrintFile(path)
    grows.append(["first"])
    before = path.read_bytes()
    journal = grows._journal

    class Small:
        """A disk that takes half of it."""

        def write(self, content):
            path.write_bytes(path.read_bytes() + content[: len(content) // 2])
            return len(content) // 2

    with monkeypatch.context() as patch:
        real = journal._file
        small = Small()
        small.truncate, small.fileno = real.truncate, real.fileno
        patch.setattr(journal, "_file", small)
        with pytest.raises(StorageError, match="cannot append"):
            grows.append(["second", np.zeros(100)])
    assert path.read_bytes() == before
    grows.append(["third"])
    grows.close()
    assert parse_print(path) == ["first", "third"]


@pytest.mark.parametrize("operation", ["open", "write"])
def test_a_disk_that_fails(tmp_path, monkeypatch, operation):
    def fails(name: str, path: Path) -> None:
        if name == operation:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "before_operation", fails)
    with pytest.raises(StorageError, match="No space left") as caught:
        PrintFile(tmp_path / "print.pb").append(["x"])
    assert caught.value.exit_code == 5
    assert caught.value.rows["path"] == str(tmp_path / "print.pb")

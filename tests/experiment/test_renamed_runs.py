"""A run directory that is renamed, removed or replaced while its run works: the next write is an error."""

import shutil
from pathlib import Path

import pytest
from deaths import status_of, traces
from tables import table

import runner
from runner import cli
from runner.errors import StorageError
from runner.experiment import callbacks
from runner.experiment.resume import resume
from runner.host import files
from runner.host.files import Journal, locked

WORDS = ("dataset=synthetic", "dataset.num_samples=160", "callbacks=quiet", "device.threads=1", "mode=pynative")
STEPS = ("dataset_sink_mode=false", "epochs=2", "checkpoint.every_steps=3", "eval.every=never")
ROW = 5  # the journal row at which the directory is renamed


def renamed(folder: Path, other: Path, how: str) -> None:
    folder.rename(other)
    if how == "replaced":
        shutil.copytree(other, folder)
    elif how == "empty":
        folder.mkdir()


@table("how", ["renamed", "replaced", "empty"])
def test_a_run_directory_that_is_renamed_is_not_split_in_two(tmp_path, monkeypatch, capsys, how):
    words = [*WORDS, *STEPS]
    place = tmp_path / how
    runner.run([*words, f"hydra.run.dir={place / 'whole'}"])
    run, other, rows = place / "run", place / "other", list[object]()
    number = callbacks.number

    def at_row(loss: object) -> float:
        rows.append(loss)
        if len(rows) == ROW:
            renamed(run, other, how)
        return number(loss)

    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "number", at_row)
        assert cli.main([*words, f"hydra.run.dir={run}"]) == 5
    shown = capsys.readouterr().err
    assert "was renamed, removed or replaced" in shown
    assert str(run) in shown
    assert len(rows) == ROW
    assert run.exists() == (how != "renamed")
    if how == "empty":
        assert not [*run.iterdir()]
    elif how == "replaced":
        for path in (path for path in run.iterdir() if path.is_file() and path.name != ".lock"):
            assert path.read_bytes() == (other / path.name).read_bytes()
    assert status_of(other) == "running"
    resume(other)
    assert traces(other) == traces(place / "whole")


OPERATIONS = {
    "write_atomically": lambda folder: files.write_atomically(folder / "a.json", "{}"),
    "write_whole": lambda folder: files.write_whole(folder / "a.npy", [b"x"]),
    "write_exclusively": lambda folder: files.write_exclusively(folder / "b.json", "{}"),
    "make_directory": lambda folder: files.make_directory(folder / "dump" / "0"),
    "claim_directory": lambda folder: files.claim_directory(folder / "taken" / "0"),
}


@pytest.mark.parametrize("place", ["absolute", "relative"])
@table("name", OPERATIONS)
def test_no_operation_writes_beside_a_renamed_directory(tmp_path, monkeypatch, name, place):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run" if place == "absolute" else Path("run")
    folder.mkdir()
    with locked(folder / ".lock"):
        files.make_directory(folder / "dump")
        Path("run").rename("other")
        with pytest.raises(StorageError) as caught:
            OPERATIONS[name](tmp_path / "run")
        assert "was renamed, removed or replaced" in str(caught.value)
        assert not Path("run").exists()
    files.make_directory(tmp_path / "run/free")  # nobody holds it
    shutil.rmtree("run")
    shutil.rmtree("other")


def test_a_journal_of_a_renamed_directory(tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run/.lock"):
        journal = Journal(tmp_path / "run/metrics.jsonl")
        journal.append({"a": 1})
        (tmp_path / "run").rename(tmp_path / "other")
        for operation in (lambda: journal.append({"a": 2}), journal.sync, lambda: journal.cut(0)):
            with pytest.raises(StorageError) as caught:
                operation()
            assert "was renamed, removed or replaced" in str(caught.value)
        with pytest.raises(StorageError):
            journal.close()
    assert (tmp_path / "other/metrics.jsonl").read_text() == '{"a": 1}\n'

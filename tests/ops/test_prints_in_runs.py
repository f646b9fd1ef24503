"""Whole runs that print: to the screen, to a file, resumed, in a sweep, and with paths that cannot work."""

from pathlib import Path

import numpy as np
import pytest
from deaths import Dead, die_at

import runner
from models.lenet import LeNet5
from runner import cli, ops, parse_print
from runner.experiment.resume import resume
from runner.ops import effects

SMALL = (
    "dataset=synthetic",
    "dataset.num_samples=96",
    "dataset.batch_size=32",
    "callbacks=quiet",
    "callbacks.time_monitor=false",
    "device.threads=1",
    "eval.every=never",
)


SILENT = LeNet5.construct


@pytest.fixture(autouse=True)
def printing(monkeypatch, tmp_path):
    """LeNet prints whether it trains, and the logits of the first image."""
    show, construct = ops.Print(), LeNet5.construct

    def printed(self, x):
        logits = construct(self, x)
        show("training" if self.training else "evaluation", ops.Slice()(logits, (0, 0), (1, 10)))
        return logits

    monkeypatch.setattr(LeNet5, "construct", printed)
    monkeypatch.chdir(tmp_path)


def plain(parts):
    return [part if isinstance(part, str) else part.asnumpy().tolist() for part in parts]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("sunk", [True, False])
def test_a_run_prints_to_its_file_and_not_to_the_screen(mode, sunk, capsys):
    words = [*SMALL, f"mode={mode}", f"dataset_sink_mode={str(sunk).lower()}", "epochs=2", "eval.every=epoch"]
    runner.run([*words, "print_file_path=print.pb"])
    quiet = capsys.readouterr().out
    assert "Tensor(" not in quiet
    parts = plain(parse_print("print.pb"))
    evaluations = len(parts) // 2 - 6
    batches = evaluations // 2
    assert batches > 0
    assert parts[::2] == (["training"] * 3 + ["evaluation"] * batches) * 2
    assert all(np.shape(part) == (1, 10) for part in parts[1::2])
    assert effects._FILE.get() == ""  # what follows goes to the screen again


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_file_without_prints_is_reported(mode, caplog, monkeypatch):
    words = [*SMALL, f"mode={mode}"]
    warning = "print_file_path has no effect: no operator Print was executed"
    runner.run([*words, "print_file_path=print.pb"])
    assert warning not in caplog.messages
    monkeypatch.setattr(LeNet5, "construct", SILENT)
    runner.run([*words, "print_file_path=other.pb"])
    assert warning in caplog.messages
    assert not Path("other.pb").exists()


def test_file_and_screen_say_the_same(capsys):
    runner.run([*SMALL, "mode=graph", "epochs=2", "print_file_path=print.pb"])
    capsys.readouterr()
    assert cli.main(["parse-print", "print.pb"]) == 0
    from_file = capsys.readouterr().out
    runner.run([*SMALL, "mode=graph", "epochs=2"])
    assert capsys.readouterr().out.startswith(from_file)
    assert from_file.count("training\nTensor(shape=[1, 10], dtype=Float32, value=\n") == 6


PARTS = {"graph": ("sink_size=2", "checkpoint.every_steps=4"), "pynative": ("checkpoint.every_steps=2",)}


@pytest.mark.parametrize("mode", PARTS)
def test_a_resumed_run_continues_its_file(mode, caplog):
    """Prints of steps after the checkpoint are replaced, as dumps are."""
    words = [*SMALL, f"mode={mode}", "epochs=3", *PARTS[mode]]
    Path("print.pb").write_bytes(b"of the user")
    runner.run([*words, "print_file_path=whole.pb", "hydra.run.dir=whole"])
    runner.run([*words, "print_file_path=print.pb", "hydra.run.dir=part", "max_steps=4"])
    (file,) = Path().glob("print.pb.*")  # since the other one exists
    with file.open("ab") as prints:
        prints.write(b"what a killed run has printed after its checkpoint")
    caplog.clear()
    resume("part", ["max_steps=null"])
    assert "prints go to" not in caplog.text
    assert file.read_bytes() == Path("whole.pb").read_bytes()
    assert sorted(Path().glob("*.pb*")) == [Path("print.pb"), file, Path("whole.pb")]
    assert Path("print.pb").read_bytes() == b"of the user"


@pytest.mark.parametrize("event", [1, 2, 5, 7])
def test_a_killed_run_that_prints_ends_with_the_same_bytes(monkeypatch, event):
    words = [*SMALL, "mode=pynative", "epochs=3", "checkpoint.every_steps=2", "eval.every=epoch"]
    runner.run([*words, "print_file_path=whole.pb", "hydra.run.dir=whole"])
    with monkeypatch.context() as patch:
        die_at(patch, event, "metrics.jsonl")
        with pytest.raises(Dead):
            runner.run([*words, "print_file_path=print.pb", "hydra.run.dir=part"])
    resume("part")
    assert Path("print.pb").read_bytes() == Path("whole.pb").read_bytes()
    assert {path.name for path in Path().glob("*.pb*")} == {"print.pb", "whole.pb"}


def test_a_print_file_that_is_not_that_of_the_checkpoint_is_not_cut(capsys):
    words = [*SMALL, "mode=pynative", "epochs=3", "max_steps=4", "print_file_path=print.pb", "hydra.run.dir=part"]
    runner.run(words)
    Path("print.pb").write_bytes(b"x" * 100_000)
    assert cli.main(["resume", "part", "max_steps=6"]) == 7
    assert "the print file is not that of the run" in capsys.readouterr().err
    assert Path("print.pb").read_bytes() == b"x" * 100_000
    Path("part/print.json").write_text('{"path": "/etc/passwd"}')  # which a foreign run directory may say
    assert cli.main(["resume", "part", "max_steps=6"]) == 0
    assert Path("print.pb").read_bytes() == b"x" * 100_000
    assert cli.main(["resume", "part", "max_steps=7", "print_file_path=other.pb"]) == 0
    assert len(parse_print("other.pb")) == 2


def test_the_file_does_not_decide_whether_a_run_may_go_on():
    runner.run([*SMALL, "hydra.run.dir=part", "max_steps=1"])
    resume("part", ["max_steps=2", "print_file_path=other.pb"])
    assert plain(parse_print("other.pb"))[0] == "training"


def test_the_jobs_of_a_sweep_have_their_files():
    assert cli.main(["-m", *SMALL, "max_steps=1", "print_file_path=print.pb", "seed=1,2,3"]) == 0
    found = sorted(Path().glob("print.pb*"))
    assert len(found) == 3
    assert len({str(plain(parse_print(path))) for path in found}) == 3


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("nowhere/print.pb", "the folder of the print file does not exist"),
        (".", "the print file is a folder"),
    ],
)
def test_paths_that_cannot_work(path, what, capsys):
    assert cli.main([*SMALL, f"print_file_path={path}", "hydra.run.dir=run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"ConfigError: {what}\n  key ")
    assert f"  {path}\n" in error
    assert not (Path("run") / "metrics.jsonl").exists()


def test_a_path_must_be_a_text(capsys):
    assert cli.main([*SMALL, "print_file_path=[1]"]) == 2
    assert "print_file_path" in capsys.readouterr().err


def test_what_cannot_be_printed_ends_the_run(monkeypatch, capsys):
    def construct(self, x):
        ops.Print()("shapes", {1: 2})
        return x

    monkeypatch.setattr(LeNet5, "construct", construct)
    for mode in ("graph", "pynative"):
        assert cli.main([*SMALL, f"mode={mode}", f"hydra.run.dir={mode}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("ConfigError: Print: a value of this type cannot be printed\n  given       dict\n")
        assert 'ops.Print()("shapes", {1: 2})' in error


def test_a_full_disk_ends_the_run(monkeypatch, capsys):
    def fails(operation, path):
        if operation == "write" and path.suffix == ".pb":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner.host.files, "before_operation", fails)
    for mode in ("graph", "pynative"):
        assert cli.main([*SMALL, f"mode={mode}", f"print_file_path={mode}.pb", f"hydra.run.dir={mode}"]) == 5
        assert "No space left on device" in capsys.readouterr().err

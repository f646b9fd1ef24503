"""Whole runs that print: to the screen, to a file, resumed, in a sweep, and with paths that cannot work."""

from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_resumed_run_prints_the_rest_to_a_file_of_its_own(mode):
    words = [*SMALL, f"mode={mode}", "epochs=3", "sink_size=2"]
    runner.run([*words, "print_file_path=whole.pb", "hydra.run.dir=whole"])
    runner.run([*words, "print_file_path=print.pb", "hydra.run.dir=part", "max_steps=4"])
    resume("part", ["max_steps=null"])
    (second,) = Path().glob("print.pb.*")
    assert plain(parse_print("print.pb")) + plain(parse_print(second)) == plain(parse_print("whole.pb"))
    assert len(parse_print(second)) == 4


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

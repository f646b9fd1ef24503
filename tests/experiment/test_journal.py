"""Resuming, and reading, a run whose journal or progress is not what its checkpoints say."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from deaths import status_of, traces
from soak import thinned
from tables import table

import runner
from runner import cli, nn, ops
from runner.errors import DataError
from runner.experiment.resume import resume
from runner.train.checkpoint import state

WORDS = ("dataset=synthetic", "dataset.num_samples=160", "callbacks=quiet", "device.threads=1", "mode=pynative")
STEPS = ("dataset_sink_mode=false", "epochs=2", "checkpoint.every_steps=3")  # 10 steps: CKP-1_3, 2_1, 2_4, 2_5
JOURNAL = "metrics.jsonl"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run, as it is at the end."""
    folder = tmp_path_factory.mktemp("journal") / "whole"
    runner.run([*WORDS, *STEPS, f"hydra.run.dir={folder}"])
    return folder


def interrupted(whole: Path, folder: Path) -> Path:
    """A copy of the run that says it has failed, so it can be resumed."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    status = folder / "status.json"
    status.write_text(status.read_text().replace('"ok"', '"failed"'))
    return folder


def lines_of(path: Path, count: int) -> bytes:
    """The first lines of a file."""
    return b"".join(path.read_bytes().splitlines(keepends=True)[:count])


def zeros_in(path: Path) -> None:
    path.write_bytes(bytes(40) + path.read_bytes()[40:])


def other_digit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = content.index(b'"loss": ') + 10
    content[place] ^= 1  # another digit
    path.write_bytes(content)


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "two rows": lambda path: path.write_bytes(lines_of(path, 2)),
    "zeros": zeros_in,
    "a digit in the first row": other_digit,
    "rows in another order": lambda path: path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(True)))),
}


@table("name", UNUSABLE)
def test_a_run_whose_journal_fits_no_checkpoint_is_not_resumed(whole, tmp_path, name):
    run = interrupted(whole, tmp_path / "run")
    UNUSABLE[name](run / JOURNAL)
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    journal = (run / JOURNAL).read_bytes() if (run / JOURNAL).exists() else b""
    with pytest.raises(DataError, match="no checkpoint of the run can be used") as caught:
        resume(run)
    assert "metrics.jsonl" in str(caught.value)
    assert status_of(run) == "failed"
    assert {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()} == before
    assert (run / JOURNAL).read_bytes() == journal


@table("rows", [3, 5, 8])
def test_an_older_checkpoint_whose_journal_fits_is_used(whole, tmp_path, caplog, rows):
    """As in a copy that was made while the run was living: its journal was copied before the newest checkpoint."""
    run = interrupted(whole, tmp_path / "run")
    (run / JOURNAL).write_bytes(lines_of(run / JOURNAL, rows))
    caplog.clear()
    resume(run, ["checkpoint.keep_max=1"])
    assert "CKP-2_5: the journal is shorter than the checkpoint says (metrics.jsonl)" in caplog.text
    assert (run / JOURNAL).read_bytes() == (whole / JOURNAL).read_bytes()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["CKP-2_5"]
    for name in ("MANIFEST.json", "state.safetensors"):
        last = Path("checkpoints/CKP-2_5", name)
        assert (run / last).read_bytes() == (whole / last).read_bytes()


def test_a_longer_journal_is_cut(whole, tmp_path):
    """What a killed run leaves."""
    run = interrupted(whole, tmp_path / "run")
    (run / JOURNAL).write_bytes((run / JOURNAL).read_bytes() + b'{"event": "step", "epo')
    resume(run)
    assert traces(run) == traces(whole)


def test_a_journal_that_another_process_shortens_is_an_error(tmp_path, monkeypatch):
    """The next checkpoint would hold the hash of what is left."""
    run = tmp_path / "run"
    number = runner.experiment.callbacks.number
    rows = []

    def shortened(loss: object) -> float:
        rows.append(loss)
        if len(rows) == 3:
            (run / JOURNAL).write_bytes(b"")
        return number(loss)

    monkeypatch.setattr("runner.experiment.callbacks.number", shortened)
    assert cli.main([*WORDS, *STEPS, f"hydra.run.dir={run}"]) == 5
    assert not list((run / "checkpoints").iterdir())


@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_the_loss_may_be_an_array_of_one_number(tmp_path, mode):
    class One(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.loss, self.reshape = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), ops.Reshape()

        def construct(self, logits, labels):
            return self.reshape(self.loss(logits, labels), (1,))

    runner.register.loss("one")(lambda: One())
    words = [*WORDS[:-1], f"mode={mode}", *STEPS, "loss=one", "eval.every=never"]
    runner.run([*words, f"hydra.run.dir={tmp_path / 'whole'}"])
    runner.run([*words, "max_steps=4", f"hydra.run.dir={tmp_path / 'run'}"])
    resume(tmp_path / "run", ["max_steps=null"])
    assert (tmp_path / "run" / JOURNAL).read_bytes() == (tmp_path / "whole" / JOURNAL).read_bytes()


# The readers of a finished run.


@table("command", ["golden", "report", "two"])
def test_a_journal_with_zeros_is_refused(whole, tmp_path, capsys, command):
    run = interrupted(whole, tmp_path / "run")
    (run / "status.json").write_bytes((whole / "status.json").read_bytes())
    zeros_in(run / JOURNAL)
    target = tmp_path / command
    words = {
        "golden": ["golden", "--update", str(target), str(run)],
        "report": ["report", str(run), "-o", str(target)],
        "two": ["report", str(whole), str(run), "-o", str(target)],
    }
    assert cli.main(words[command]) == 7
    assert "the journal of the run has NUL bytes" in capsys.readouterr().err
    assert not target.exists()


def test_no_golden_file_of_a_damaged_journal(whole, tmp_path, capsys):
    run = interrupted(whole, tmp_path / "run")
    (run / "status.json").write_bytes((whole / "status.json").read_bytes())
    (run / JOURNAL).write_bytes((run / JOURNAL).read_bytes().replace(b'"step", "epoch": 2', b'"stop", "epoch": 2'))
    assert cli.main(["golden", "--update", str(tmp_path / "golden.json"), str(run)]) == 7
    assert "damaged lines" in capsys.readouterr().err


# Progress that a correct hash protects, and that is wrong.


def change(checkpoint: Path, **values: object) -> None:
    """Change the progress of a checkpoint, and its hash with it; None... removes a value."""
    found = state.load(checkpoint)
    progress = {name: value for name, value in {**found.progress, **values}.items() if value is not ...}
    path = checkpoint / state.MANIFEST
    known = json.loads(path.read_text())
    values = {**{name: known[name] for name in ("format", "version", "files", "identity")}, "progress": progress}
    digest = state._digest(values)
    path.write_text(json.dumps({**values, "sha256": digest}))


EVERY: tuple[object, ...] = (
    *(..., None, True, False, -1, 0, 3, 7, 10**6, 10**10, 2**62, 0.5, 1e308, "", "x", "nan", "1e999", "10", "0x1"),
    *([], ["x", 1], [""], [[]], {}, {"x": 1}, {"$array": "x"}, "\u202e", "0" * 64, "a" * 100_000),
)
VALID = {
    "global_step": [10],
    "epoch": [2],
    "step": [5],
    "providers": [],
    "loss": [],
    "journal_bytes": [],
    "journal_sha256": [],
    "callbacks": [..., {}],  # of no callback
    "has_ended": [..., True],  # all steps are made
    "prints": [...],
    "more": [...],
}
WRONG = [(field, value) for field in VALID for value in EVERY if repr(value) not in map(repr, VALID[field])]


@table(("field", "value"), thinned(WRONG, every=5))
def test_every_field_of_the_progress_is_checked(whole, tmp_path, capsys, field, value):
    """Wrong types, extreme values, and values that contradict the others."""
    run = interrupted(whole, tmp_path / "run")
    for path in (run / "checkpoints").iterdir():
        if path.name != "CKP-2_5":
            shutil.rmtree(path)
    change(run / "checkpoints/CKP-2_5", **{field: value})
    code = cli.main(["resume", str(run)])
    shown = capsys.readouterr().err
    assert (code, "InternalError" in shown) == (7, False), shown
    assert field.partition("_")[0] in shown
    assert len(shown) < 2000


@table("name", ["missing", "surplus", "shape", "type"])
def test_the_parameters_of_a_checkpoint_are_those_of_the_run(whole, tmp_path, name):
    run = interrupted(whole, tmp_path / "run")
    found = state.load(run / "checkpoints/CKP-2_5")
    first = next(iter(sorted(found.arrays)))
    arrays = {
        "missing": {key: array for key, array in found.arrays.items() if key != first},
        "surplus": {**found.arrays, "surplus": np.zeros(3)},
        "shape": {**found.arrays, first: np.zeros((7, 7), np.float32)},
        "type": {**found.arrays, first: found.arrays[first].astype(np.float64)},
    }
    state.save(found.folder, arrays[name], found.progress, found.identity)
    with pytest.raises(DataError, match="the parameters of the checkpoint are not those of the run") as caught:
        resume(run)
    assert (first if name != "surplus" else "surplus") in caught.value.rows


def test_progress_that_is_wrong_falls_back_to_the_checkpoint_before(whole, tmp_path, caplog):
    run = interrupted(whole, tmp_path / "run")
    change(run / "checkpoints/CKP-2_5", global_step=10**6)
    resume(run)
    assert "CKP-2_5: the progress of the checkpoint contradicts the journal" in caplog.text
    assert traces(run) == traces(whole)


@table("losses", [np.zeros(0), np.zeros((2, 2)), np.full(3, np.nan), np.zeros(3, np.int32), np.zeros(9), np.zeros(3)])
def test_the_losses_of_a_sink_are_those_of_its_steps(tmp_path, losses):
    run = tmp_path / "run"
    runner.run([*WORDS[:-1], "mode=graph", "sink_size=5", "epochs=1", *STEPS[2:], f"hydra.run.dir={run}"])
    shutil.rmtree(run / "checkpoints/CKP-1_5")
    found = state.load(run / "checkpoints/CKP-1_3")
    assert found.callbacks["losses"].shape == (3,)
    status = run / "status.json"
    status.write_text(status.read_text().replace('"ok"', '"failed"'))
    state.save(found.folder, found.arrays, found.progress, found.identity, {"losses": losses})
    with pytest.raises(DataError, match="no checkpoint of the run can be used") as caught:
        resume(run)
    assert "losses" in str(caught.value)
    shutil.rmtree(run)

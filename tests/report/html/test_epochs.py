"""The table of epochs has the lines that the console had."""

import json
import re

from pages import cells, page
from run_folders import leave

from runner.experiment import launch
from runner.report.html.run import MAX_EPOCHS, epoch_table
from runner.report.record import RunRecord

WORDS = ("dataset=synthetic", "dataset.num_samples=64", "dataset.batch_size=16", "epochs=3", "eval.every=epoch")


def test_the_means_are_those_of_the_console(tmp_path, capsys):
    launch.run([*WORDS, f"hydra.run.dir={tmp_path / 'a'}"])
    printed = re.findall(r"epoch (\d) of 3: loss (\S+),", capsys.readouterr().out)
    run = RunRecord(tmp_path / "a")
    (table,) = page(epoch_table(run)).all("table")
    rows = cells(table)
    assert [(row[0], row[2]) for row in rows] == printed
    assert [row[1] for row in rows] == ["4", "8", "12"]
    names = [head.text for head in table.all("th")]
    last = dict(zip(names, rows[-1], strict=True))
    assert last["accuracy"] == f"{run.results['accuracy']:.4f}"
    assert last["test loss"] == f"{run.results['eval.loss']:.4f}"


def test_steps_that_do_not_say_their_epoch(tmp_path):
    place = leave(tmp_path / "a", [2.0, 1.0])
    assert epoch_table(RunRecord(place)) is not None
    for epoch in (None, "1", -1, 1.5, True, 1 << 70):
        rows = [{"event": "step", "epoch": epoch, "global_step": k, "loss": 1.0} for k in (1, 2)]
        (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert epoch_table(RunRecord(place)) is None


def test_of_many_epochs_the_last_ones(tmp_path):
    place = leave(tmp_path / "a")
    rows = [{"event": "step", "epoch": k, "global_step": k, "loss": 1.0} for k in range(1, 301)]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    root = page(epoch_table(RunRecord(place)))
    assert "The last 200 of 300." in root.text
    assert [cells(root.all("table")[0])[k][0] for k in (0, -1)] == ["101", "300"]
    assert MAX_EPOCHS == 200

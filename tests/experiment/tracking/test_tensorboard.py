"""`tracking=tensorboard`: event files that say what the files of the run say, each row once."""

import json
import logging
import os
from collections import Counter
from importlib.util import find_spec

import event_records
import numpy as np
import pytest
from tracking_runs import killed, points, said, words

import runner
from runner.errors import MismatchError, TrainingError
from runner.experiment.callbacks import MetricsJournal
from runner.experiment.resume import resume
from runner.experiment.tracking import tracking
from runner.host import files

pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")


def scalars(folder) -> list[tuple[str, int, float]]:
    """What event files say of the rows of a run."""
    found, _ = event_records.read(folder / "tensorboard")
    return [one for one in found if not one[0].startswith("summary/")]


def single(found) -> list[tuple[str, int, float]]:
    """The same points with values of Float32, as event files have them."""
    return [(name, step, float(np.float32(value))) for name, step, value in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was not disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    runner.run(words(folder, "tensorboard", "mode=graph", "eval.every=epoch"))
    return folder


def test_the_files_say_what_the_metrics_say(whole):
    assert len(points(whole)) == 20 + 4 * 2
    assert scalars(whole) == single(points(whole))


def test_the_end_is_told_with_the_last_step(whole):
    found, _ = event_records.read(whole / "tensorboard")
    ends = {name: (step, value) for name, step, value in found if name.startswith("summary/")}
    summary = said(whole)
    for name, value in {"loss": summary["loss"], "metrics.accuracy": summary["metrics"]["accuracy"]}.items():
        assert ends[f"summary/{name}"] == (20, float(np.float32(value)))
    assert ends["summary/steps"] == (20, 20.0)


def test_config_and_manifest_are_texts(whole):
    _, texts = event_records.read(whole / "tensorboard")
    plain = {tag: json.loads(text) for tag, text in texts.items()}
    assert plain["config/text_summary"] == said(whole, "config")
    assert plain["manifest/text_summary"] == said(whole, "manifest")
    assert plain["run/text_summary"]["runner.folder"] == str(whole)
    assert plain["status/text_summary"] == {"status": "ok"}


def test_the_run_says_where_it_is_tracked(whole):
    place = {"name": "tensorboard", "status": "ok", "reason": None, "path": str(whole / "tensorboard")}
    assert said(whole, "tracking") == said(whole)["tracking"] == place


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="TensorBoard is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_the_same(whole):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(whole / "tensorboard"), size_guidance={"scalars": 0})
    reader.Reload()
    found = [(tag, one.step, one.value) for tag in reader.Tags()["scalars"] for one in reader.Scalars(tag)]
    assert Counter(one for one in found if not one[0].startswith("summary/")) == Counter(single(points(whole)))
    assert "config/text_summary" in reader.Tags()["tensors"]


def test_the_steps_of_a_sink_are_rows(tmp_path):
    folder = tmp_path / "run"
    runner.run(words(folder, "tensorboard", "mode=graph", "dataset_sink_mode=true"))
    assert [step for name, step, _ in scalars(folder) if name == "loss"] == list(range(1, 21))
    assert scalars(folder) == single(points(folder))


# Before the first checkpoint; and behind the second one, with a last event that is torn.
@pytest.mark.parametrize(("row", "torn"), [(3, 0), (13, 5)])
def test_a_killed_run_goes_on_and_writes_no_step_twice(tmp_path, row, torn):
    folder = tmp_path / "run"
    killed(folder, "tensorboard", row)
    assert scalars(folder) == single(points(folder))[: row - 1]
    assert said(folder, "tracking")["status"] == "running"
    (path,) = (folder / "tensorboard").iterdir()
    os.truncate(path, path.stat().st_size - torn)
    resume(folder)
    assert len(list((folder / "tensorboard").iterdir())) == 2
    assert len(points(folder)) == 22
    assert scalars(folder) == single(points(folder))


def test_a_finished_run_that_goes_on_keeps_its_evaluation(tmp_path):
    """`metrics.jsonl` forgets the evaluation at the old end; what was told stays told."""
    folder = tmp_path / "run"
    runner.run(words(folder, "tensorboard"))
    before = set(scalars(folder))
    resume(folder, ["epochs=5"])
    now = single(points(folder))
    assert Counter(scalars(folder)) == Counter({*now, *before})
    assert {name for name, _, _ in before - set(now)} == {"eval/accuracy", "eval/loss"}


@pytest.mark.parametrize(
    ("error", "caught", "status"),
    [(KeyboardInterrupt, KeyboardInterrupt, "interrupted"), (TrainingError("broken"), TrainingError, "failed")],
)
def test_a_run_that_ends_early_tells_why(tmp_path, monkeypatch, error, caught, status):
    folder, usual = tmp_path / "run", MetricsJournal.step_end

    def step_end(self, run_context):
        usual(self, run_context)
        if run_context.original_args().cur_step_num == 7:
            raise error

    monkeypatch.setattr(MetricsJournal, "step_end", step_end)
    with pytest.raises(caught):
        runner.run(words(folder, "tensorboard"))
    assert len(points(folder)) == 7
    assert scalars(folder) == single(points(folder))
    assert json.loads(event_records.read(folder / "tensorboard")[1]["status/text_summary"]) == {"status": status}
    assert said(folder, "tracking")["status"] == "ok"  # it has all that there is


def test_a_run_that_disappoints_has_a_summary(tmp_path):
    with pytest.raises(MismatchError):
        runner.run(words(tmp_path / "run", "tensorboard", "expect.accuracy.min=0.999"))
    names = {name for name, _, _ in event_records.read(tmp_path / "run" / "tensorboard")[0]}
    assert {"loss", "eval/accuracy", "summary/loss"} <= names


def test_a_full_disk_does_not_end_the_run(whole, tmp_path, monkeypatch, caplog):
    from tensorboardX.record_writer import RecordWriter

    folder, usual, count = tmp_path / "run", RecordWriter.write, [0]

    def write(self, data):
        count[0] += 1
        if count[0] == 10:
            self._writer.write(data[:9])
            raise OSError(28, "No space left on device")
        usual(self, data)

    monkeypatch.setattr(RecordWriter, "write", write)
    with caplog.at_level(logging.WARNING, "runner"):
        summary = runner.run(words(folder, "tensorboard", "mode=graph", "eval.every=epoch"))
    told = [record.getMessage() for record in caplog.records if "tracking" in record.getMessage()]
    reason = "OSError: [Errno 28] No space left on device"
    assert len(told) == 1
    assert f"tracking=tensorboard has failed ({reason})" in told[0]
    assert summary["tracking"]["status"] == said(folder, "tracking")["status"] == "incomplete"
    assert said(folder)["tracking"]["reason"] == reason
    assert (folder / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert said(folder, "status")["status"] == "ok"


@pytest.mark.parametrize("replaced", [False, True])
def test_files_that_are_removed_while_the_run_writes(tmp_path, monkeypatch, caplog, replaced):
    """What is written into a removed file is lost without an error of the system."""
    folder = tmp_path / "run"

    def removed(self):
        for path in (folder / "tensorboard").iterdir():
            path.unlink()
            if replaced:
                path.write_bytes(b"")
        return {}

    monkeypatch.setattr(tracking.EventFile, "last_steps", removed)
    with caplog.at_level(logging.WARNING, "runner"):
        summary = runner.run(words(folder, "tensorboard", "mode=graph"))
    assert summary["tracking"]["status"] == said(folder, "tracking")["status"] == "incomplete"
    assert said(folder, "status")["status"] == "ok"
    assert sum("tracking=tensorboard has failed" in message for message in caplog.messages) == 1


def test_no_folder_for_event_files(tmp_path, monkeypatch):
    def before(operation, path):
        if operation == "mkdir" and path.name == "tensorboard":
            raise OSError(30, "Read-only file system")

    monkeypatch.setattr(files, "before_operation", before)
    with pytest.raises(runner.errors.StorageError) as caught:
        runner.run(words(tmp_path / "run", "tensorboard"))
    assert "Read-only file system" in str(caught.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()

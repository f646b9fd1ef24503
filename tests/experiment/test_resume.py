"""A run that is killed anywhere and resumed ends with the bytes of one that was not."""

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from deaths import Dead, die_at, status_of, traces
from patience import PATIENCE, wait_until
from soak import SOAK, thinned

import runner
from runner import cli, nn, ops
from runner.compile.session import Session
from runner.errors import BusyError, ConfigError, DataError
from runner.experiment.resume import resume
from runner.host import files, machine
from runner.train.checkpoint import state

# 160 samples are 5 batches: 40 steps are 8 epochs.
SMALL = (
    "dataset=synthetic",
    "dataset.num_samples=160",
    "callbacks=quiet",
    "device.threads=1",
    "optimizer.learning_rate=0.05",
)
BRAKE = Path(__file__).parents[1] / "support/brake.py"
UNSUNK = ("dataset_sink_mode=false", "epochs=8")
# Some places to die at: no period of a run (5 steps, 7 steps) divides their distance. `make soak` takes all.
EVERY = 1 if SOAK else 31
SINKS = {"off": UNSUNK, "-1": ("epochs=8",), "7": ("sink_size=7", "epochs=6")}
AUGMENTED = (("graph", "7"), ("graph", "off"), ("graph", "-1"), ("pynative", "off"))


def run(folder: Path, *overrides: str) -> None:
    runner.run([*SMALL, *overrides, f"hydra.run.dir={folder}"])


def killed_and_resumed(monkeypatch, folder: Path, overrides: tuple[str, ...], number: int, only: str = "") -> bool:
    """Run, die, resume; False when the run ended before its death, or had not yet begun."""
    with monkeypatch.context() as patch:
        die_at(patch, number, only)
        try:
            run(folder, *overrides)
        except Dead:
            pass
        else:
            return False
    begun = (folder / "config.json").exists()
    if begun and status_of(folder) != "ok":  # the very last operation comes after the new status
        resume(folder)
    return begun


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_run_that_dies_at_any_step_ends_with_the_same_bytes(tmp_path, monkeypatch, mode, sink):
    overrides = (f"mode={mode}", *SINKS[sink], "checkpoint.every_steps=5")
    run(tmp_path / "whole", *overrides)
    expected = traces(tmp_path / "whole")
    events = sum('"step"' in line for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines())
    assert events == (42 if sink == "7" else 40)
    for number in range(1, events + 1, EVERY):
        folder = tmp_path / str(number)
        assert killed_and_resumed(monkeypatch, folder, overrides, number, only="metrics.jsonl")
        assert traces(folder) == expected


def test_a_sink_is_saved_at_the_steps_that_are_due(tmp_path):
    """The same checkpoints as without sinks, and the same metrics as without checkpoints."""
    sink = ("mode=graph", "sink_size=7", "epochs=2")
    every = ("checkpoint.every_steps=3", "checkpoint.keep_max=9")
    run(tmp_path / "unsunk", "mode=graph", "dataset_sink_mode=false", "epochs=9", "max_steps=14", *every)
    run(tmp_path / "sunk", *sink, *every)
    run(tmp_path / "rare", *sink)
    names = [path.name for path in sorted((tmp_path / "sunk" / "checkpoints").iterdir())]
    assert names == ["CKP-1_3", "CKP-1_6", "CKP-2_2", "CKP-2_5", "CKP-2_7"]
    unsunk = ["CKP-1_3", "CKP-2_1", "CKP-2_4", "CKP-3_2", "CKP-3_4"]  # an epoch has 5 steps there
    assert sorted(path.name for path in (tmp_path / "unsunk" / "checkpoints").iterdir()) == unsunk
    for sunk, other in zip(names, unsunk, strict=True):
        one, two = (tmp_path / "sunk/checkpoints" / sunk, tmp_path / "unsunk/checkpoints" / other)
        assert (one / "state.safetensors").read_bytes() == (two / "state.safetensors").read_bytes()
    for file in ("metrics.jsonl", "checkpoints/CKP-2_7/state.safetensors"):
        assert (tmp_path / "sunk" / file).read_bytes() == (tmp_path / "rare" / file).read_bytes()


def test_a_long_sink_is_saved_when_the_seconds_are_over(tmp_path, monkeypatch):
    """Here after every step: each is a call to the device, and takes longer than the interval."""
    monkeypatch.setattr("runner.train.sink.CALL_SECONDS", 1e-9)
    every = ("checkpoint.every_seconds=1e-9", "checkpoint.keep_max=9")
    run(tmp_path / "run", "mode=graph", "sink_size=4", "epochs=1", *every)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["CKP-1_1", "CKP-1_2", "CKP-1_3", "CKP-1_4"]


@pytest.mark.parametrize(("sink", "steps"), [("-1", 40), ("7", 42)])
def test_a_run_that_dies_inside_of_a_sink_ends_with_the_same_bytes(tmp_path, monkeypatch, sink, steps):
    """Every step is a call of its own here, so that a run can die between any two steps of a sink."""
    overrides = ("mode=graph", *SINKS[sink], "checkpoint.every_steps=5")
    monkeypatch.setattr("runner.train.sink.CALL_SECONDS", 1e-9)
    run(tmp_path / "whole", *overrides)
    expected = traces(tmp_path / "whole")
    assert json.loads((tmp_path / "whole/summary.json").read_text())["host_interactions"] == steps
    for number in range(1, steps + 1, EVERY):
        folder, calls, call = tmp_path / str(number), [0], Session.step

        def step(self, values, calls=calls, number=number, call=call):
            calls[0] += 1
            if calls[0] >= number:
                raise Dead
            return call(self, values)

        with monkeypatch.context() as patch:
            patch.setattr(Session, "step", step)
            patch.setattr(files, "before_operation", lambda *_, calls=calls, number=number: dead_from(calls, number))
            with pytest.raises(Dead):
                run(folder, *overrides)
        resume(folder)
        assert traces(folder) == expected, f"died in step {number}"


@pytest.mark.parametrize(("mode", "sink"), [*thinned(AUGMENTED, every=3)])
def test_augmented_data_go_on_with_the_same_bytes(tmp_path, monkeypatch, mode, sink):
    """With threads that prepare batches, or sunk in chunks; in the first event and in one behind an epoch's end."""
    augmented = ("dataset.augment=true", "dataset.image_size=32", "checkpoint.every_steps=3")
    overrides = (f"mode={mode}", *SINKS[sink], *augmented, "dataset.num_parallel_workers=2")
    run(tmp_path / "whole", *overrides)
    expected = traces(tmp_path / "whole")
    run(tmp_path / "plain", *(word for word in overrides if "augment" not in word))
    assert traces(tmp_path / "plain")["metrics.jsonl"] != expected["metrics.jsonl"]
    for number in (1, 6):
        folder = tmp_path / str(number)
        assert killed_and_resumed(monkeypatch, folder, overrides, number, only="metrics.jsonl")
        assert traces(folder) == expected, f"died at step {number}"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("runner-dataset", "sink"))]


class Noisy(nn.Cell):
    """Draws in training and in evaluation."""

    def __init__(self, num_classes: int, num_channels: int) -> None:
        super().__init__()
        self.flatten, self.dense = nn.Flatten(), nn.Dense(1024 * num_channels, num_classes)
        self.dropout, self.normal = ops.Dropout(0.8), ops.StandardNormal(2)

    def construct(self, x):
        x = self.dropout(self.dense(self.flatten(x)))[0]
        return x + self.normal(x.shape)


@pytest.fixture
def noisy():
    runner.register.network("noisy")(Noisy)


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize(("mode", "sink"), [("graph", "off"), ("graph", "-1"), ("graph", "7"), ("pynative", "off")])
def test_random_operators_go_on_with_the_same_bytes(tmp_path, monkeypatch, mode, sink):
    overrides = ("network=noisy", f"mode={mode}", *SINKS[sink], "checkpoint.every_steps=3", "eval.every=epoch")
    run(tmp_path / "whole", *overrides)
    expected = traces(tmp_path / "whole")
    ops.StandardNormal()((5,))
    for number in (1, 8):
        folder = tmp_path / str(number)
        assert killed_and_resumed(monkeypatch, folder, overrides, number, only="metrics.jsonl")
        assert traces(folder) == expected, f"died at event {number}"


def dead_from(calls: list[int], number: int) -> None:
    if calls[0] >= number:
        raise Dead


def test_a_run_that_dies_at_any_file_operation_ends_with_the_same_bytes(tmp_path, monkeypatch):
    overrides = ("mode=pynative", "dataset_sink_mode=false", "epochs=4", "checkpoint.every_steps=8", "eval.every=epoch")
    run(tmp_path / "whole", *overrides)
    expected = traces(tmp_path / "whole")
    resumed = 0
    for number in itertools.count(1, EVERY):
        folder = tmp_path / str(number)
        if not killed_and_resumed(monkeypatch, folder, overrides, number):
            if (folder / "config.json").exists():
                break
            continue
        resumed += 1
        assert traces(folder) == expected, f"died at operation {number}"
    assert resumed > 60 // EVERY


def error_of(folder: Path, overrides: tuple[str, ...]) -> runner.RunnerError | None:
    try:
        run(folder, *overrides)
    except runner.RunnerError as error:
        return error
    return None


@pytest.mark.parametrize("reason", [*thinned([errno.ENOSPC, errno.EIO], every=2)])
def test_a_disk_that_fails_at_any_operation_leaves_a_run_that_resumes(tmp_path, monkeypatch, reason):
    overrides = ("mode=pynative", "dataset_sink_mode=false", "epochs=2", "checkpoint.every_steps=4")
    run(tmp_path / "whole", *overrides)
    expected = traces(tmp_path / "whole")
    for number in itertools.count(1, EVERY):
        folder = tmp_path / f"{number}"
        count = 0

        def before(operation: str, path: Path) -> None:
            nonlocal count
            count += 1
            if count == number:  # noqa: B023  it is used before the next turn
                raise OSError(reason, os.strerror(reason))

        with monkeypatch.context() as patch:
            patch.setattr(files, "before_operation", before)
            error = error_of(folder, overrides)
        if error is None and count < number:
            break
        if error is None:  # the end of its claim could not be written, which changes nothing
            assert (status_of(folder), traces(folder)) == ("ok", expected)
            continue
        assert error.exit_code == 5, error
        assert os.strerror(reason) in str(error)
        if (folder / "config.json").exists() and status_of(folder) != "ok":
            resume(folder)
            assert traces(folder) == expected, f"failed at operation {number}"


def start(folder: Path, *overrides: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "runner", *SMALL, *overrides, f"hydra.run.dir={folder}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("number", "code", "status"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "interrupted"), (signal.SIGKILL, -9, "running")],
)
def test_real_signals(tmp_path, number, code, status):
    """At some moment of a run that would go on for days; it ends some epochs behind that moment, as one that was not
    interrupted."""
    overrides = ("mode=pynative", "dataset_sink_mode=false", "checkpoint.every_steps=10")
    journal = tmp_path / "killed/metrics.jsonl"
    process = start(tmp_path / "killed", *overrides, "epochs=1000000")
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 60, lambda: process.poll() is None)
    with pytest.raises(BusyError, match="another process is using this directory"):
        resume(tmp_path / "killed")
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert status_of(tmp_path / "killed") == status
    steps = journal.read_text().count('"step", "epoch"')
    assert steps >= 60
    epochs = steps // 5 + 12  # until the checkpoint of the interruption is one of those that are deleted
    summary = resume(tmp_path / "killed", [f"epochs={epochs}"])
    assert summary["steps"] == 5 * epochs
    run(tmp_path / "whole", *overrides, f"epochs={epochs}")
    assert traces(tmp_path / "killed") == traces(tmp_path / "whole")


def test_sigint_stays_ignored(tmp_path):
    """A run that was started in the background is not interrupted by what is meant for the job in the foreground."""
    command = [sys.executable, BRAKE, "3", *SMALL, "mode=pynative", "dataset_sink_mode=false"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a child inherits
    try:
        process = subprocess.Popen([*command, f"hydra.run.dir={tmp_path / 'run'}"], stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    journal = tmp_path / "run/metrics.jsonl"
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") == 3, lambda: process.poll() is None)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    assert "Traceback" not in errors
    assert status_of(tmp_path / "run") == "interrupted"
    assert (tmp_path / "run/checkpoints/CKP-1_3").is_dir()  # SIGTERM was the first signal: a second one saves nothing


def test_more_epochs_go_on_with_a_finished_run(tmp_path):
    run(tmp_path / "whole", *UNSUNK, "checkpoint.keep_max=1")
    run(tmp_path / "part", "dataset_sink_mode=false", "epochs=3", "checkpoint.keep_max=1")
    with pytest.raises(ConfigError, match="the run is finished"):
        resume(tmp_path / "part")
    resume(tmp_path / "part", ["epochs=8"])
    whole, part = (
        next((tmp_path / name / "checkpoints").glob("*/state.safetensors")).read_bytes() for name in ("whole", "part")
    )
    assert whole == part


def on_cores(monkeypatch, number: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(number)), raising=False)
    monkeypatch.setattr(machine, "cpu_limit", lambda root=None: None)


# A batch whose parts keep several threads busy.
BUSY = ("mode=graph", "dataset=synthetic", "dataset.num_samples=1024", "dataset.batch_size=256", "epochs=4")
BUSY_STEPS = (*BUSY, "callbacks=quiet", "checkpoint.every_steps=4", "eval.every=epoch")


@pytest.mark.parametrize("sink", ["dataset_sink_mode=false", "sink_size=-1"])
@pytest.mark.parametrize(("first", "then"), [(2, 1), (1, 3)])
def test_a_run_that_is_resumed_on_other_cores_ends_with_the_same_bytes(tmp_path, monkeypatch, first, then, sink):
    def execute(folder: str) -> None:
        runner.run([*BUSY_STEPS, sink, f"hydra.run.dir={tmp_path / folder}"])

    on_cores(monkeypatch, first)
    execute("whole")
    expected = traces(tmp_path / "whole")
    on_cores(monkeypatch, then)
    execute("others")
    assert traces(tmp_path / "others") == expected
    on_cores(monkeypatch, first)
    with monkeypatch.context() as patch:
        die_at(patch, 6, "metrics.jsonl")
        with pytest.raises(Dead):
            execute("killed")
    on_cores(monkeypatch, then)
    resume(tmp_path / "killed")
    assert traces(tmp_path / "killed") == expected
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("whole", "killed")]
    assert [found["threads"] for found in manifests] == [first, then]


def test_a_resumed_run_may_have_other_threads(tmp_path, monkeypatch):
    on_cores(monkeypatch, 2)
    runner.run([*BUSY_STEPS, "max_steps=6", f"hydra.run.dir={tmp_path / 'whole'}"])
    runner.run([*BUSY_STEPS, "max_steps=4", f"hydra.run.dir={tmp_path / 'run'}"])
    resume(tmp_path / "run", ["max_steps=6", "device.threads=3"])
    assert json.loads((tmp_path / "run/manifest.json").read_text())["threads"] == 3
    arrays = [state.newest(tmp_path / name / "checkpoints", "CKP")[0].arrays for name in ("run", "whole")]
    assert all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path, caplog):
    overrides = (*UNSUNK, "checkpoint.every_steps=10")
    run(tmp_path / "whole", *overrides)
    run(tmp_path / "part", *overrides)
    newest = tmp_path / "part/checkpoints/CKP-8_5/state.safetensors"
    damaged = bytearray(newest.read_bytes())
    damaged[-3] ^= 1
    newest.write_bytes(damaged)
    status = tmp_path / "part/status.json"
    status.write_text(status.read_text().replace('"ok"', '"failed"'))
    resume(tmp_path / "part")
    assert "CKP-8_5" in caplog.text
    assert traces(tmp_path / "part") == traces(tmp_path / "whole")


def test_what_the_numbers_depend_on_must_be_as_it_was(tmp_path):
    run(tmp_path / "run", "dataset_sink_mode=false", "epochs=1")
    with pytest.raises(ConfigError) as caught:
        resume(tmp_path / "run", ["epochs=2", "optimizer.momentum=0.5", "dataset.num_samples=128"])
    assert "optimizer.momentum" in str(caught.value)
    assert "dataset.num_samples" in str(caught.value)
    assert "--force" in str(caught.value)
    assert resume(tmp_path / "run", ["epochs=2", "optimizer.momentum=0.5"], force=True)["steps"] == 10


def test_data_may_move_but_not_change(tmp_path):
    """Where the data lie and who reads them changes no number; what they are is known by their sha256."""
    data, moved = tmp_path / "data", tmp_path / "moved"
    data.mkdir()
    records = np.random.default_rng(0).integers(0, 10, (64, 3073), dtype=np.uint8)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (data / name).write_bytes(records.tobytes())
    words = ("dataset=cifar10", f"dataset.data_dir={data}", "dataset_sink_mode=false")
    run(tmp_path / "whole", *words, "epochs=2")
    run(tmp_path / "part", *words, "epochs=1")
    data.rename(moved)
    with pytest.raises(DataError, match="a data file is missing"):
        resume(tmp_path / "part", ["epochs=2"])
    changed = ["epochs=2", f"dataset.data_dir={moved}", "dataset.num_parallel_workers=2", "dataset.url=https://a.b/"]
    assert resume(tmp_path / "part", changed)["steps"] == 4
    for name in ("metrics.jsonl", "checkpoints/CKP-2_2/state.safetensors"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    records[5, 7] += 1
    (moved / "data_batch_1.bin").write_bytes(records.tobytes())
    with pytest.raises(ConfigError, match=r"data\.train") as caught:
        resume(tmp_path / "part", ["epochs=3"])
    assert "data.test" not in caught.value.rows


def test_overrides_of_a_resumed_run(tmp_path):
    run(tmp_path / "run", "max_steps=1", "epochs=2")
    summary = resume(tmp_path / "run", ["~max_steps", "epochs=${checkpoint.keep_max}", "checkpoint.keep_max=3"])
    known = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (summary["epochs"], known["epochs"], known["max_steps"]) == (3, 3, None)
    for wrong, what in (
        ("seed=1,2", "several values for one run"),
        ("~nothing", "unknown key"),
        ("epochs=${nothing}", "cannot be composed"),
        ("print_file_path=${oc.env:PATH}", "environment variable"),
    ):
        with pytest.raises(ConfigError, match=what):
            resume(tmp_path / "run", [wrong])


def test_a_foreign_config_is_not_resolved(tmp_path, monkeypatch):
    """Text of the file is only data, also when an override has an interpolation."""
    monkeypatch.setenv("SECRET", "do-not-show")
    run(tmp_path / "run", "max_steps=1")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "print_file_path": "${oc.env:SECRET}"}))
    with pytest.raises(ConfigError, match="environment variable") as caught:
        resume(tmp_path / "run", ["max_steps=${epochs}"])
    assert "do-not-show" not in str(caught.value)


def test_folders_that_hold_no_run(tmp_path):
    with pytest.raises(ConfigError, match="not a run directory"):
        resume(tmp_path)


@pytest.mark.parametrize("synchronous", [False, True])
def test_the_identity_of_a_data_parallel_run(tmp_path, synchronous):
    """Checkpoints of versions without `sync_batch_norm` are those of runs in which it was false."""
    words = ["+experiment=lenet_seed", *SMALL, *UNSUNK, "max_steps=1", "eval.every=never", "parallel=data_parallel"]
    runner.run([*words, f"parallel.sync_batch_norm={str(synchronous).lower()}", f"hydra.run.dir={tmp_path / 'run'}"])
    identity = state.newest(tmp_path / "run" / "checkpoints", "CKP")[0].identity
    expected = {"name": "data_parallel", "gradients_mean": False, "parameter_broadcast": False}
    expected |= {"device_num": None, "global_rank": None, "all_reduce_fusion_config": None}
    expected |= {"sync_batch_norm": True} if synchronous else {}
    assert {k.partition(".")[2]: v for k, v in identity.items() if k.startswith("parallel.")} == expected


@pytest.mark.parametrize("place", ["", "runs/"])
def test_the_name_of_a_directory_may_have_an_equals_sign(tmp_path, monkeypatch, capsys, place):
    """As each job of `hydra.sweep.subdir='${hydra.job.override_dirname}'` has."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path if place else tmp_path / "runs")
    where = (f"hydra.sweep.dir={tmp_path / 'runs'}", "hydra.sweep.subdir='${hydra.job.override_dirname}'")
    assert cli.main(["-m", *SMALL, "epochs=1", "eval.every=never", "seed=1,2", *where]) == 0
    (job,) = (path.name for path in (tmp_path / "runs").iterdir() if path.name.endswith("seed=1"))
    assert cli.main(["resume", f"{place}{job}", "epochs=2"]) == 0
    assert status_of(tmp_path / "runs" / job) == "ok"
    assert cli.main(["eval", "eval.split=train", f"{place}{job}", "hydra.run.dir='e=1'"]) == 0
    assert Path("e=1/summary.json").exists()
    assert cli.main(["rm", "e=1", "--force"]) == 0  # it may be beside the jobs
    Path("epochs=3").mkdir()  # beside a directory that is no override, a word with = is one
    plain = Path("plain")
    Path(place, job).rename(plain)
    assert cli.main(["resume", "plain", "epochs=3"]) == 0
    capsys.readouterr()
    assert cli.main(["resume", "seed=5", "epochs=7"]) == 2
    assert "one directory is needed, and none given" in capsys.readouterr().err

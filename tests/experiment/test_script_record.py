"""`runner.record` in this process: what it refuses, and what it writes. `runner resume` of what must not be started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import recorded_script
from patience import PATIENCE
from tables import table

import runner
from runner import cli, rundir
from runner.errors import BusyError, ConfigError, DataError, RunnerError, StorageError, TrainingError
from runner.experiment import script as command
from runner.host import files
from runner.train.checkpoint import state

ROOT = Path(__file__).parents[2]


def model_of(metrics=frozenset({"accuracy"}), rate=0.01):
    net = recorded_script.Net()
    loss = runner.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return runner.Model(net, loss, runner.nn.Momentum(net.trainable_params(), rate, 0.9), set(metrics))


def train(folder: Path, config=None, epochs=1, **how) -> None:
    with runner.record(folder, config, **how) as run:
        run.train(model_of(), epochs, recorded_script.points(1), dataset_sink_mode=False)


def unfinished(folder: Path, config=None) -> None:
    with pytest.raises(KeyboardInterrupt), runner.record(folder, config):
        raise KeyboardInterrupt


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


INVALID = [
    ({"config": 3}, "config must be a mapping"),
    ({"config": {"a": {"b": np.float32(1)}}}, r"config\.a"),
    ({"config": {"a": float("nan")}}, r"config\.a"),
    ({"config": {"a": 1 << 70}}, r"config\.a"),
    ({"checkpoint": {"every_steps": 0}}, r"checkpoint\.every_steps"),
    ({"checkpoint": {"every_step": 1}}, "every_steps"),
    ({"checkpoint": {"load": "a.ckpt"}}, r"checkpoint\.load"),
    ({"checkpoint": 5}, "not a group of keys"),
    ({"tracking": "tensorbord"}, "tensorboard"),
    ({"tracking": {"name": "mlflow", "uri": "nowhere"}}, "tracking.uri"),
]


@table(("arguments", "text"), INVALID)
def test_invalid_arguments_write_nothing(tmp_path, arguments, text):
    with pytest.raises(ConfigError, match=text), runner.record(tmp_path / "run", **arguments):
        raise AssertionError
    assert not (tmp_path / "run").exists()


@table("folder", ["", "a\0b", "x" * 300, None])
def test_invalid_directories(folder):
    with pytest.raises(ConfigError), runner.record(folder):
        raise AssertionError


def refused(error: type[RunnerError], text: str, folder: Path, *arguments, **how) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(error, match=text), runner.record(folder, *arguments, **how):
        raise AssertionError
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    assert after == before


def test_directories_that_are_refused(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "thesis.txt").write_text("years")
    refused(BusyError, "thesis.txt", tmp_path / "files")
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["thesis.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError), runner.record(tmp_path / "file"):
        raise AssertionError
    words = ["dataset=synthetic", "dataset.num_samples=64", "max_steps=1", "callbacks=quiet"]
    runner.run([*words, f"hydra.run.dir={tmp_path / 'config'}"])
    refused(BusyError, "no script records", tmp_path / "config")
    train(tmp_path / "ok", {"a": 1})
    refused(BusyError, "resume=True", tmp_path / "ok", {"a": 1})
    refused(ConfigError, r"config\.a +was 1, is 2", tmp_path / "ok", {"a": 2}, resume=True)
    unfinished(tmp_path / "part", {"a": 1, "b": [1]})
    refused(BusyError, "resume=False", tmp_path / "part", {"a": 1, "b": [1]}, resume=False)
    refused(ConfigError, r"config\.b +was \[1\], is None", tmp_path / "part", {"a": 1})
    with runner.record(tmp_path / "part", {"a": 1, "b": (1,)}) as run:
        assert run.resumed
        refused(BusyError, "another process", tmp_path / "part", {"a": 1, "b": [1]})
        run.train(model_of(), 1, recorded_script.points(1))
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / rundir.SCRIPT).write_text("{}")
    (tmp_path / "link" / "metrics.jsonl").symlink_to(tmp_path / "files" / "thesis.txt")
    refused(ConfigError, "symbolic links", tmp_path / "link")
    assert (tmp_path / "files" / "thesis.txt").read_text() == "years"


def test_a_changed_training_does_not_continue(tmp_path):
    train(tmp_path / "run")
    with (
        pytest.raises(ConfigError, match=r"data\.train") as caught,
        runner.record(tmp_path / "run", resume=True) as run,
    ):
        run.train(model_of(), 2, recorded_script.points(2).repeat(1), dataset_sink_mode=False)
    assert "seed" not in caught.value.rows
    assert read(tmp_path / "run", "status")["status"] == "ok"
    runner.set_seed(5)
    with pytest.raises(ConfigError, match="seed"), runner.record(tmp_path / "run", resume=True) as run:
        run.train(model_of(), 2, recorded_script.points(1), dataset_sink_mode=False)
    train(tmp_path / "run", epochs=2, resume=True, force=True)
    assert read(tmp_path / "run", "summary")["steps"] == 10


def test_wrong_use_of_a_run(tmp_path):
    data = recorded_script.points(1)
    with pytest.raises(ConfigError, match="nothing was recorded"), runner.record(tmp_path / "nothing"):
        pass
    assert read(tmp_path / "nothing", "status")["status"] == "failed"
    with runner.record(tmp_path / "two") as run:
        run.train(model_of(), 1, data)
        with pytest.raises(ConfigError, match="a run has one training"):
            run.train(model_of(), 1, data)
    with pytest.raises(ConfigError, match="needs metrics"), runner.record(tmp_path / "metrics") as run:
        run.evaluate(model_of(()), data)
    with pytest.raises(ConfigError, match="epoch"), runner.record(tmp_path / "epoch") as run:
        run.train(model_of(), 0, data)
    with pytest.raises(TrainingError, match="finite"), runner.record(tmp_path / "nan") as run:
        run.train(model_of(rate=1e38), 9, data, dataset_sink_mode=False)
    assert read(tmp_path / "nan", "status")["exit_code"] == 1


def test_ranks_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(ConfigError, match="2 processes"), runner.record(tmp_path / "run"):
        raise AssertionError


def test_names_and_defaults(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--rate", "0.1"])
    train(tmp_path / "run", experiment="first", network="small", dataset="points")
    assert read(tmp_path / "run", "config") == {"arguments": ["--rate", "0.1"]}
    for file in ("status", "summary"):
        named = read(tmp_path / "run", file)
        found = [named[name] for name in ("experiment", "network", "dataset", "mode", "device")]
        assert found == ["first", "small", "points", "pynative", "CPU"]
    manifest = read(tmp_path / "run", "manifest")
    assert list(manifest["data_sha256"]) == ["train"]
    assert manifest["script_sha256"] == read(tmp_path / "run", "script")["sha256"]
    train(tmp_path / "other")
    assert read(tmp_path / "other", "status")["network"] == "Net"


def test_a_run_that_only_evaluates(tmp_path):
    with runner.record(tmp_path / "run") as run:
        values = run.evaluate(model_of({"accuracy", "loss"}), recorded_script.points(2))
    summary = read(tmp_path / "run", "summary")
    assert (summary["steps"], summary["metrics"]) == (0, values)
    assert summary["loss"] == values["loss"]
    (row,) = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert row == {"event": "eval", "epoch": 0, "global_step": 0, **values}
    assert (tmp_path / "run/model/network.onnx").exists()
    assert list(read(tmp_path / "run", "manifest")["data_sha256"]) == ["test"]


def test_the_metrics_of_a_run_are_those_of_the_model(tmp_path):
    """A recorded training has the losses and parameters of one that is not recorded."""
    runner.set_seed(1)
    losses: list[float] = []
    observer = runner.train.callback.LambdaCallback(
        step_end=lambda context: losses.append(float(str(context.original_args().net_outputs)))
    )
    plain = model_of()
    plain.train(2, recorded_script.points(1), observer, dataset_sink_mode=False)
    runner.set_seed(1)
    train(tmp_path / "run", epochs=2)
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows] == losses
    saved = state.newest(tmp_path / "run/checkpoints", "CKP")[0].arrays
    for name, parameter in plain.train_network.parameters_dict().items():
        np.testing.assert_array_equal(saved[name], parameter.asnumpy())


def test_a_network_that_cannot_be_traced_is_a_warning(tmp_path, caplog):
    class Branching(recorded_script.Net):
        def construct(self, x):
            return super().construct(x) if float(x.asnumpy().sum()) < 1e9 else x

    net = Branching()
    loss = runner.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = runner.Model(net, loss, runner.nn.Momentum(net.trainable_params(), 0.01, 0.9))
    with runner.record(tmp_path / "run") as run:
        run.train(model, 1, recorded_script.points(1), dataset_sink_mode=False)
    assert "model/network.onnx is not written" in caplog.text
    assert read(tmp_path / "run", "status")["status"] == "ok"


def test_tracking(tmp_path):
    pytest.importorskip("tensorboardX")
    train(tmp_path / "run", {"rate": 0.5}, tracking="tensorboard", experiment="tracked")
    assert read(tmp_path / "run", "summary")["tracking"]["status"] == "ok"
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    (file,) = (tmp_path / "run/tensorboard").iterdir()
    assert [b"rate" in file.read_bytes(), len(rows)] == [True, 5]


def test_code_without_a_file(tmp_path):
    """As in `python -c` and in notebooks: the run is complete, and it cannot be started again."""
    code = "import sys; sys.path.insert(0, 'SUPPORT'); import recorded_script as s; s.main('pynative', 'off', 1, 'run')"
    code = code.replace("SUPPORT", str(ROOT / "tests/support"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "run", "script")["script"] is None
    (tmp_path / "run/status.json").unlink()
    assert not_resumed(tmp_path / "run", "none: not a file") == 2


# What `runner resume` must not start


def not_resumed(folder: Path, text: str, *words: str) -> int:
    from runner.experiment import script as resume

    with pytest.raises(ConfigError) as caught:
        resume.startable(folder, words, force=False)
    assert text in str(caught.value)
    return caught.value.exit_code


@pytest.fixture
def recorded(tmp_path) -> Path:
    """The unfinished run of a script that would leave a mark if it was started."""
    (tmp_path / "train.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    (tmp_path / "run").mkdir()
    script = str(tmp_path / "train.py")
    own = command.ScriptCommand(script, command.sha256_of(script), (script, "--rate", "0.1"), str(tmp_path))
    command.write(tmp_path / "run", own)
    return tmp_path / "run"


def edited(folder: Path, **values) -> None:
    path = folder / rundir.SCRIPT
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_only_what_this_user_recorded_is_started(recorded, monkeypatch, tmp_path):
    from runner.experiment import script as resume

    assert resume.startable(recorded, [], force=False).words[1:] == ("--rate", "0.1")
    original = (recorded / rundir.SCRIPT).read_text()
    script = str(tmp_path / "train.py")
    for values in (
        {"words": [script, "--rate", "0.2"]},
        {"words": ["-c", "import os"]},
        {"directory": "/"},
        {"script": "/bin/sh"},
        {"sha256": "0" * 64},
        {"signature": None},
        {"signature": "0" * 64},
        {"signature": "\u00e9"},
    ):
        edited(recorded, **values)
        assert not_resumed(recorded, "if you trust the script, type the command") == 2
        (recorded / rundir.SCRIPT).write_text(original)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # another user
    not_resumed(recorded, f"cd {tmp_path} && python {script} --rate 0.1")
    assert cli.main(["resume", str(recorded)]) == 2
    assert not (tmp_path / "mark").exists()


def test_a_run_that_is_not_started(recorded, tmp_path):
    not_resumed(recorded, "has no overrides", "epochs=3")
    (tmp_path / "train.py").write_text("open('mark', 'w')\n")
    not_resumed(recorded, "the script of the run has changed")
    (tmp_path / "train.py").unlink()
    not_resumed(recorded, "does not exist")
    files.write_json(recorded / "status.json", {"status": "ok"})
    not_resumed(recorded, "the run is finished")
    for text in ("", "[]", "{}", '{"words": 3}', '{"words": ["a", 3], "directory": "/"}', "{" * 5000):
        (recorded / rundir.SCRIPT).write_text(text)
        not_resumed(recorded, "not a run directory")
    with pytest.raises(DataError):
        command.read(recorded)
    assert not (tmp_path / "mark").exists()


def test_the_key_belongs_to_the_user(recorded, monkeypatch, tmp_path):
    key = Path(os.environ["XDG_STATE_HOME"]) / "runner" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "train.py" / "no-folder"))
    command.write(recorded, command.read(recorded)[0])  # no place for a key
    assert json.loads((recorded / rundir.SCRIPT).read_text())["signature"] is None
    not_resumed(recorded, "type the command")


class TwoInputs(runner.nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = runner.nn.Dense(4, 2), runner.nn.Dense(3, 2)

    def construct(self, x, z):
        return self.first(x) + self.second(z)


@pytest.mark.parametrize("mode", [runner.context.GRAPH_MODE, runner.context.PYNATIVE_MODE])
def test_a_network_with_two_inputs(tmp_path, mode):
    runner.context.set_context(mode=mode)
    rng = np.random.default_rng(1)
    columns = {"x": rng.random((20, 4), np.float32), "z": rng.random((20, 3), np.float32)}
    columns["label"] = np.arange(20, dtype=np.int32) % 2
    net = TwoInputs()
    loss = runner.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = runner.Model(net, loss, runner.nn.Momentum(net.trainable_params(), 0.1, 0.9), {"accuracy"})
    with runner.record(tmp_path / "run") as run:
        run.train(model, 2, runner.dataset.NumpySlicesDataset(columns).batch(5))
    assert read(tmp_path / "run", "summary")["steps"] == 8
    assert (tmp_path / "run/model/network.onnx").exists()
    assert (tmp_path / "run/model/train_step.onnx").exists() == (mode == runner.context.GRAPH_MODE)

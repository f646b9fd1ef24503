"""`session.graph_run_mode=0`: runs that evaluate given weights and train nothing; weights that a run begins with."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import runner
from models.lenet import LeNet5
from runner import cli
from runner.config.compose import CommandLine, compose
from runner.errors import ConfigError, ConfigErrors, DataError, MismatchError

LENET = ("+experiment=lenet_seed", "callbacks=quiet", "device.threads=1")
ONLINE = (*LENET, "session.graph_run_mode=0")
RESNET = ("network=resnet18", "dataset=synthetic", "dataset.num_samples=8", "dataset.batch_size=4", "callbacks=quiet")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict:
    """The summary of a short training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("trained"))
        summary = runner.run([*LENET, "mode=graph", "max_steps=30", "optimizer.learning_rate=0.1"])
        return summary | {"run_dir": str(Path(summary["run_dir"]).absolute())}


def rows(summary: dict) -> list[dict]:
    return [json.loads(line) for line in (Path(summary["run_dir"]) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_run_evaluates_the_weights_of_another(mode, trained):
    summary = runner.run([*ONLINE, f"mode={mode}", f"checkpoint.load={trained['run_dir']}"])
    assert summary["metrics"] == pytest.approx(trained["metrics"], rel=1e-5)
    assert summary["loss"] == summary["metrics"]["loss"]
    assert (summary["steps"], summary["epochs"], summary["train_seconds"]) == (0, 0, 0.0)
    assert summary["eval_seconds"] > 0
    assert summary["providers"] == (["CPUExecutionProvider"] if mode == "graph" else ["numpy"])
    assert rows(summary) == [{"event": "eval", "epoch": 0, "global_step": 0, **summary["metrics"]}]
    folder = Path(summary["run_dir"])
    assert {file.name for file in (folder / "model").iterdir()} == {"network.onnx", "predict.onnx"}
    assert not (folder / "checkpoints").exists()
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert json.loads((folder / "manifest.json").read_text())["mode"] == mode


@pytest.mark.parametrize("kind", ["run", "checkpoint", "file"])
def test_where_weights_come_from(kind, trained, place):
    run = Path(trained["run_dir"])
    where = {"run": run, "checkpoint": next((run / "checkpoints").iterdir()), "file": place / "mine.ckpt"}[kind]
    if kind == "file":
        network = LeNet5(num_classes=10, num_channels=1)
        runner.load_param_into_net(network, runner.load_checkpoint(next((run / "checkpoints").iterdir())))
        runner.save_checkpoint(network, str(where))
    summary = runner.run([*ONLINE, "mode=graph", f"checkpoint.load={where}"])
    assert summary["metrics"] == pytest.approx(trained["metrics"], rel=1e-5)


def test_a_training_begins_with_weights_too(trained):
    lines = (*LENET, "max_steps=1", "eval.every=never", "optimizer.learning_rate=0.0", "dataset.shuffle=false")
    fresh, tuned = (runner.run([*lines, *more])["loss"] for more in ((), (f"checkpoint.load={trained['run_dir']}",)))
    assert tuned < fresh


def test_no_gradients_and_no_normalisation_are_left():
    summary = runner.run([*RESNET, "session.graph_run_mode=0", "mode=graph", "session.op_debug_level=3"])
    folder = Path(summary["run_dir"]) / "kernel_meta"
    assert {file.name.split(".")[0] for file in folder.iterdir()} == {"eval_step"}
    operators = json.loads((folder / "eval_step.json").read_text())["operators"]
    kinds = {one["op_type"] for one in operators}
    assert "Conv2D" in kinds
    assert "BatchNorm" not in kinds
    assert not [one for one in operators if one["full_name"].startswith("Gradients/")]
    model = onnx.load(folder / "eval_step.onnx")
    assert [value.name for value in model.graph.input] == ["image", "label"]  # weights are constants
    usual = runner.run([*RESNET, "session.graph_run_mode=0", "mode=pynative"])
    np.testing.assert_allclose(summary["loss"], usual["loss"], rtol=1e-4)


def test_weights_that_nobody_gave_are_told(caplog):
    runner.run([*ONLINE, "mode=graph"])
    assert "the network is evaluated with its initial weights" in caplog.text


def test_expectations_are_kept(trained):
    with pytest.raises(MismatchError):
        runner.run([*ONLINE, f"checkpoint.load={trained['run_dir']}", "expect.accuracy.min=1.0"])


def test_weights_of_another_network(trained):
    with pytest.raises(ConfigError) as caught:
        runner.run([*RESNET, "session.graph_run_mode=0", f"checkpoint.load={trained['run_dir']}"])
    assert caught.value.what == "the checkpoint is of another network"
    assert caught.value.rows["key"] == "checkpoint.load"


def weights_of(trained: dict, place: Path, without: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> str:
    """A file with the weights of LeNet, except some, and with others."""
    network = LeNet5(num_classes=10, num_channels=1)
    runner.load_param_into_net(
        network, runner.load_checkpoint(next((Path(trained["run_dir"]) / "checkpoints").iterdir()))
    )
    kept = [{"name": p.name, "data": p} for p in network.get_parameters() if p.name not in without]
    path = place / "some.ckpt"
    runner.save_checkpoint(kept + [{"name": name, "data": runner.Tensor(np.ones(2))} for name in more], str(path))
    return str(path)


NOT_EXACT = {
    "missing": ((("fc3.bias",), ()), {"missing": "fc3.bias"}),
    "unexpected": (((), ("fc4.weight", "fc4.bias")), {"surplus": "fc4.weight\nfc4.bias"}),
    "renamed": (
        (("fc3.bias",), ("fc3.beta",)),
        {"missing": "fc3.bias (nearest: fc3.beta)", "surplus": "fc3.beta (nearest: fc3.bias)"},
    ),
}


@pytest.mark.parametrize("case", NOT_EXACT)
def test_an_evaluation_needs_exactly_the_parameters_of_the_network(trained, place, case, caplog):
    change, found = NOT_EXACT[case]
    path = weights_of(trained, place, *change)
    with pytest.raises(ConfigError) as caught:
        runner.run([*ONLINE, f"checkpoint.load={path}"])
    rows = {
        "network": "LeNet5",
        **found,
        "repair": "the network of the checkpoint, or checkpoint.strict=false to load the parameters that both have",
        "key": "checkpoint.load",
        "value": path,
    }
    assert (caught.value.what, caught.value.rows) == ("the checkpoint is of another network", rows)
    caplog.clear()
    runner.run([*ONLINE, f"checkpoint.load={path}", "checkpoint.strict=false"])
    lost, more = change
    assert [text for text in caplog.messages if path in text] == [
        *([f"{path} does not have {', '.join(lost)}"] if lost else []),
        *([f"{path} has {', '.join(more)}, which the network does not have"] if more else []),
    ]


def test_a_training_may_begin_with_some_weights(trained, place, caplog):
    path = weights_of(trained, place, ("fc3.bias",), ("fc4.bias",))
    lines = (*LENET, "max_steps=1", "eval.every=never", f"checkpoint.load={path}")
    runner.run([*lines])
    assert f"{path} does not have fc3.bias" in caplog.messages
    with pytest.raises(ConfigError) as caught:
        runner.run([*lines, "checkpoint.strict=true"])
    assert caught.value.rows["missing"] == "fc3.bias (nearest: fc4.bias)"


def test_the_state_of_another_optimizer_is_not_unexpected(trained, place):
    state = ("moment1.fc3.bias", "moment2.fc3.bias", "accum.fc1.weight")
    network = LeNet5(num_classes=10, num_channels=1)
    saved = [{"name": p.name, "data": p} for p in network.get_parameters()]
    saved += [{"name": name, "data": runner.Tensor(np.ones(3))} for name in state]
    saved += [{"name": name, "data": runner.Tensor(7)} for name in ("beta1_power", "epoch_num", "scale_sense")]
    runner.save_checkpoint(saved, str(place / "adam.ckpt"))
    runner.run([*ONLINE, "checkpoint.load=adam.ckpt"])


def test_an_evaluation_of_a_damaged_file(trained, place):
    path = Path(weights_of(trained, place))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.unlink()
    path.write_bytes(content)
    assert cli.main([*ONLINE, f"checkpoint.load={path}"]) == 7


def test_a_run_without_a_good_checkpoint(place):
    (place / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        runner.run([*ONLINE, "checkpoint.load=empty"])
    assert (caught.value.what, caught.value.rows["key"]) == ("the run has no good checkpoint", "checkpoint.load")


@pytest.mark.parametrize(
    ("line", "key", "what"),
    [
        ("eval.every=never", "eval.every", "a run without training and evaluation"),
        ("dump=async", "session.graph_run_mode", "dump needs training steps"),
        ("profiling=trace", "session.graph_run_mode", "profiling needs training steps"),
        ("checkpoint.load=nowhere", "checkpoint.load", "no such file or folder"),
        ("checkpoint.load=7", "checkpoint.load", "not text"),
    ],
)
def test_what_does_not_fit(line, key, what):
    with pytest.raises(ConfigError) as caught:
        compose(CommandLine((*ONLINE, line)))
    assert not isinstance(caught.value, ConfigErrors)
    assert (caught.value.rows["key"], caught.value.what) == (key, what)


def test_the_command_says_what_came_out(trained, capsys):
    words = [*ONLINE, f"checkpoint.load={trained['run_dir']}"]
    assert cli.main(words) == 0
    assert "on the test split\n" in capsys.readouterr().out

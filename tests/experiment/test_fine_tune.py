"""`network.freeze`, `network.head` and `checkpoint.names` in runs: what is trained, stored, resumed and refused."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

import runner
from runner import cli, nn, register
from runner.errors import ConfigError, ConfigErrors
from runner.experiment.evaluate import evaluate
from runner.experiment.resume import resume
from runner.train.checkpoint import state

QUIET = ("callbacks=quiet", "device.threads=1")
DATA = ("dataset=synthetic", "dataset.num_samples=64", "dataset.batch_size=16", "optimizer.learning_rate=0.05")
RESNET = ("network=resnet18", "network.width=4", *DATA, *QUIET, "epochs=2")
BACKBONE = "network.freeze=[conv1.*,bn1.*,layer*]"
MODES = pytest.mark.parametrize("mode", ["graph", "pynative"])


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weights(folder: str | Path) -> dict[str, np.ndarray]:
    found, damaged = state.newest(Path(folder) / "checkpoints", "CKP")
    assert damaged == []
    return found.arrays


def initial(*overrides: str) -> dict[str, np.ndarray]:
    """The parameters that a run begins with: a rate of 0 changes moving statistics alone."""
    return weights(
        runner.run([*overrides, "max_steps=1", "eval.every=never", "optimizer.learning_rate=0.0"])["run_dir"]
    )


@MODES
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_frozen_parameters_keep_their_bits(mode, optimizer):
    lines = (*RESNET, f"mode={mode}", f"optimizer={optimizer}", "optimizer.weight_decay=0.01")
    summary = runner.run([*lines, BACKBONE])
    before, after = initial(*lines, BACKBONE), weights(summary["run_dir"])
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert {name for name in changed if name in ("linear.weight", "linear.bias")} == {"linear.weight", "linear.bias"}
    assert [name for name in changed if name.startswith(("conv1.", "bn1.", "layer"))] == []
    slots = [name for name in after if name.endswith((".conv1.weight", ".gamma")) and name.partition(".")[0] in SLOTS]
    assert slots == []
    trained = 32 * 10 + 10
    assert (summary["trainable"], summary["parameters"]) == (trained, whole(*lines))


SLOTS = ("moments", "moment1", "moment2", "accum", "v", "m")


def whole(*lines: str) -> int:
    """The size of all weights: the numbers that a run without frozen ones trains."""
    summary = runner.run([*lines, "max_steps=1", "eval.every=never"])
    assert summary["trainable"] == summary["parameters"]
    return int(summary["parameters"])


def test_the_number_of_parameters():
    summary = runner.run(
        ["+experiment=lenet_seed", *QUIET, "max_steps=1", "eval.every=never", "network.freeze=[conv*]"]
    )
    convolutions = 6 * 25 + 16 * 6 * 25
    dense = 400 * 120 + 120 + 120 * 84 + 84 + 84 * 10 + 10
    assert (summary["parameters"], summary["trainable"]) == (convolutions + dense, dense)


@MODES
def test_a_run_without_these_keys_is_not_changed_by_patterns_of_others(mode):
    """Freezing a layer leaves the first step of the others as it is: gradients do not depend on it."""
    lines = ("+experiment=lenet_seed", *QUIET, f"mode={mode}", "max_steps=1", "eval.every=never")
    free, frozen = (weights(runner.run([*lines, *more])["run_dir"]) for more in ((), ("network.freeze=[conv1.*]",)))
    for name in ("conv2.weight", "fc1.weight", "fc3.bias"):
        np.testing.assert_allclose(free[name], frozen[name], rtol=1e-5, atol=1e-7)
    assert not np.array_equal(free["conv1.weight"], frozen["conv1.weight"])


def test_the_graph_has_no_gradients_of_frozen_parameters():
    lines = (*RESNET, "mode=graph", "max_steps=1", "eval.every=never", "save_graphs=true")
    folder = Path(runner.run([*lines, BACKBONE])["run_dir"])
    model = onnx.load(folder / "model" / "train_step.onnx")
    backward = [node.name for node in model.graph.node if "Gradients/" in node.name]
    assert backward
    assert [name for name in backward if "layer" in name or "conv1" in name or "bn1" in name] == []
    executed = max((folder / "graphs").glob("trace_code_graph_*.ir")).read_text()
    assert "Conv2DBackprop" not in executed
    assert "BatchNormGrad" not in executed


@MODES
def test_part_of_a_backbone(mode):
    """The gradient passes frozen layers between trained ones; their normalizations keep their statistics."""
    lines = (*RESNET, f"mode={mode}", "network.freeze=[layer2.*]")
    before, after = initial(*lines), weights(runner.run([*lines])["run_dir"])
    names = [name for name in before if name.startswith(("conv1.", "bn1.", "layer", "linear."))]
    kept = {name for name in names if np.array_equal(before[name], after[name])}
    assert kept == {name for name in names if name.startswith("layer2.")}


@MODES
def test_a_resumed_run_ends_with_the_same_bytes(mode, place):
    lines = (*RESNET, f"mode={mode}", BACKBONE, "network.head=replace", "checkpoint.every_steps=1", "eval.every=never")
    runner.run([*lines, f"hydra.run.dir={place / 'whole'}"])
    runner.run([*lines, "epochs=1", f"hydra.run.dir={place / 'part'}"])
    resume(place / "part", ["epochs=2"])
    one, other = (max((place / name / "checkpoints").iterdir()) / "state.safetensors" for name in ("whole", "part"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("change", ["network.freeze=[layer1.*]", "network.head=replace", "network.freeze=[]"])
def test_a_resume_with_other_keys_is_refused(change, place):
    runner.run([*RESNET, BACKBONE, "epochs=1", "eval.every=never", f"hydra.run.dir={place / 'run'}"])
    with pytest.raises(ConfigError) as caught:
        resume(place / "run", ["epochs=2", change])
    assert caught.value.what == "the config of the run has changed"
    assert change.partition("=")[0] in caught.value.rows


def test_a_run_of_an_older_version_can_be_resumed(place):
    """Its config has neither key."""
    runner.run([*RESNET, "epochs=1", "eval.every=never", f"hydra.run.dir={place / 'run'}"])
    path = place / "run" / "config.json"
    config = json.loads(path.read_text())
    del config["network"]["freeze"], config["network"]["head"], config["checkpoint"]["names"]
    path.write_text(json.dumps(config))
    assert resume(place / "run", ["epochs=2"])["epochs"] == 2


def test_a_sweep_over_patterns(place, capsys):
    words = ["-m", *RESNET, "max_steps=1", "eval.every=never", "hydra.sweep.dir=sweep"]
    assert cli.main([*words, "network.freeze=[layer1.*],[layer2.*,layer3.*]"]) == 0
    configs = [json.loads(path.read_text())["network"]["freeze"] for path in sorted(place.glob("sweep/*/config.json"))]
    assert sorted(configs) == [["layer1.*"], ["layer2.*", "layer3.*"]]


# The head


@pytest.fixture
def fixed_network():
    """A network with five outputs, whatever the dataset has."""

    @register.network("five_outputs")
    class FiveOutputs(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.flatten, self.classifier, self.body = nn.Flatten(), nn.Dense(16, 5), nn.Dense(32 * 32, 16)

        def construct(self, x):
            return self.classifier(nn.ReLU()(self.body(self.flatten(x))))


@MODES
def test_a_network_gets_as_many_outputs_as_the_data_have_classes(mode, fixed_network):
    lines = ("network=five_outputs", *DATA, *QUIET, f"mode={mode}", "network.head=replace", "network.freeze=[body.*]")
    summary = runner.run([*lines, "max_steps=2"])
    arrays = weights(summary["run_dir"])
    assert arrays["classifier.weight"].shape == (10, 16)
    assert (summary["parameters"], summary["trainable"]) == (32 * 32 * 16 + 16 + 170, 170)
    again = evaluate(summary["run_dir"])
    assert again["metrics"] == summary["metrics"]
    model = onnx.load(Path(summary["run_dir"]) / "model" / "network.onnx")
    assert model.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 10


def test_predictions_of_a_run_with_a_new_head(fixed_network, place, capsys):
    lines = ("network=five_outputs", *DATA, *QUIET, "network.head=replace", "max_steps=2", "hydra.run.dir=run")
    runner.run([*lines])
    np.save("image.npy", np.zeros((32, 32), np.uint8))
    capsys.readouterr()
    assert cli.main(["predict", "run", "image.npy", "--top", "3", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) >= 1


@MODES
def test_a_new_head_is_not_loaded(mode):
    source = runner.run([*RESNET, "network.num_classes=12", "eval.every=never", "max_steps=2"])["run_dir"]
    lines = (*RESNET, f"mode={mode}", f"checkpoint.load={source}")
    with pytest.raises(ConfigError, match=r"linear.weight: Float32\[10, 32\], in the checkpoint Float32\[12, 32\]"):
        runner.run([*lines])
    loaded, begun = weights(source), initial(*lines, "network.head=replace", "network.freeze=[bn*,layer*,conv1*]")
    assert begun["linear.weight"].shape == (10, 32)
    for name in ("conv1.weight", "layer4.1.bn2.gamma", "layer3.0.bn1.moving_mean"):
        assert np.array_equal(begun[name], loaded[name]), name


def test_the_head_of_an_equal_size_is_not_loaded_either():
    source = runner.run([*RESNET, "eval.every=never", "max_steps=2"])["run_dir"]
    kept, replaced = (initial(*RESNET, f"checkpoint.load={source}", f"network.head={h}") for h in ("keep", "replace"))
    assert np.array_equal(kept["linear.weight"], weights(source)["linear.weight"])
    assert not np.array_equal(replaced["linear.weight"], kept["linear.weight"])
    assert np.array_equal(replaced["conv1.weight"], kept["conv1.weight"])


def test_all_but_a_new_head_can_be_frozen():
    summary = runner.run([*RESNET, "network.freeze=[*]", "network.head=replace", "max_steps=1", "eval.every=never"])
    assert summary["trainable"] == 330


def test_the_head_depends_on_the_seed_alone():
    lines = (*RESNET, "network.head=replace")
    one, again, other = (initial(*lines, f"seed={n}")["linear.weight"] for n in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_errors_of_both_keys_are_reported(fixed_network):
    @register.network("two_heads")
    class TwoHeads(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.flatten, self.a, self.b = nn.Flatten(), nn.Dense(1024, 5), nn.Dense(1024, 5)

        def construct(self, x):
            return self.a(self.flatten(x)) + self.b(self.flatten(x))

    with pytest.raises(ConfigErrors) as caught:
        runner.run(["network=two_heads", *DATA, *QUIET, "network.head=replace", "network.freeze=[c.*,a.*,d]"])
    found = [(error.rows["key"], error.rows.get("value")) for error in caught.value.errors]
    assert found == [("network.head", None), ("network.freeze", "c.*"), ("network.freeze", "d")]
    assert "a.weight Float32[5, 1024]" in caught.value.errors[0].rows["candidates"]


def test_the_command_ends_with_exit_code_2(capsys):
    assert cli.main([*RESNET, "network.freeze=[layr1.*]"]) == 2
    shown = capsys.readouterr().err
    assert "a pattern matches no parameter" in shown
    assert "layer1.*" in shown


# Names


def test_a_run_begins_with_weights_of_torch(place):
    own = initial(*RESNET)
    names = {"linear.weight": "fc.weight", "linear.bias": "fc.bias"}
    (place / "names.json").write_text(json.dumps({"linear.*": "fc.*", "*.gamma": "*.scale"}))
    given = {
        names.get(name, name.replace(".gamma", ".scale")): np.full_like(array, 0.5)
        for name, array in own.items()
        if name.startswith(("conv1.", "bn1.", "layer", "linear."))
    }
    save_file(given, "theirs.safetensors")
    lines = (*RESNET, "checkpoint.load=theirs.safetensors", "checkpoint.names=names.json")
    begun = initial(*lines)
    assert (begun["linear.weight"] == 0.5).all()
    assert (begun["layer2.0.bn1.gamma"] == 0.5).all()
    with pytest.raises(ConfigError) as caught:
        runner.run([*RESNET, "checkpoint.load=theirs.safetensors", "checkpoint.names=torchvision"])
    assert "layer1.0.bn1.gamma (layer1.0.bn1.weight)" in caught.value.rows["missing"]
    assert "layer1.0.bn1.scale" in caught.value.rows["surplus"]


def test_an_evaluation_of_weights_from_elsewhere(place):
    """As a program that has trained the exported step saves them: with our names."""
    summary = runner.run([*RESNET, "mode=graph", "hydra.run.dir=run"])
    saved = load_file(max((place / "run" / "checkpoints").iterdir()) / "state.safetensors")
    save_file(saved, "copy.safetensors")
    assert evaluate("run", ["checkpoint.load=copy.safetensors"])["metrics"] == summary["metrics"]
    save_file({name: np.zeros_like(array) for name, array in saved.items()}, "zeros.safetensors")
    assert evaluate("run", ["checkpoint.load=zeros.safetensors"])["metrics"]["loss"] == pytest.approx(np.log(10))


def test_an_evaluation_of_a_run_that_began_with_weights_of_torch(place):
    own = initial(*RESNET)
    save_file({name.replace("linear.", "fc."): own[name] for name in own if "." in name}, "theirs.safetensors")
    (place / "names.yaml").write_text('"linear.*": "fc.*"\n')
    words = ("checkpoint.load=theirs.safetensors", "checkpoint.names=names.yaml", "checkpoint.strict=false")
    summary = runner.run([*RESNET, *words, "hydra.run.dir=run"])
    assert evaluate("run")["metrics"] == summary["metrics"]

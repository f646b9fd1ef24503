"""ResNets: their structure, both modes alike, sunk and unsunk alike, and moving statistics that outlive a run."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from both_modes import MODES, relative, step_of

import runner
from models.resnet import BasicBlock, ResidualBlock, ResNet, resnet18, resnet34, resnet50, resnet101, resnet152
from runner import nn
from runner.core.values import Tensor
from runner.errors import ConfigError
from runner.experiment.resume import resume
from runner.host import files, seed
from runner.train.checkpoint import state

SMALL = {
    "cifar": partial(ResNet, BasicBlock, (1, 1, 1, 1), width=4),
    "imagenet": partial(ResNet, ResidualBlock, (1, 1, 1, 1), width=4, stem="imagenet", weight_init="he"),
}
RUN = (
    *("network=resnet18", "network.num_channels=1", "network.width=2", "network.stem=imagenet"),
    *(
        "dataset.batch_size=8",
        "dataset.num_samples=40",
        "callbacks=quiet",
        "device.threads=1",
    ),
)


# Structure


@pytest.mark.parametrize(
    ("make", "convolutions", "parameters"),
    [  # of the networks for small images with ten classes, as published in many places
        (resnet18, 20, 11_173_962),
        (resnet34, 36, 21_282_122),
        (resnet50, 53, 23_520_842),
    ],
)
def test_sizes(make, convolutions, parameters):
    network = make()
    assert sum(isinstance(cell, nn.Conv2d) for _, cell in network.cells_and_names()) == convolutions
    assert sum(isinstance(cell, nn.BatchNorm2d) for _, cell in network.cells_and_names()) == convolutions
    assert sum(p.size for p in network.trainable_params()) == parameters


@pytest.mark.parametrize(("make", "convolutions"), [(resnet101, 104), (resnet152, 155)])
def test_depths(make, convolutions):
    network = make(width=1)
    assert sum(isinstance(cell, nn.Conv2d) for _, cell in network.cells_and_names()) == convolutions


def test_names_of_parameters():
    names = resnet50(width=1).parameters_dict()
    assert list(names)[:3] == ["conv1.weight", "bn1.moving_mean", "bn1.moving_variance"]
    assert {"layer1.0.down_sample_layer.0.weight", "layer4.2.bn3.gamma", "linear.weight", "linear.bias"} <= set(names)
    assert "layer1.1.down_sample_layer.0.weight" not in names
    assert "layer1.0.down_sample_layer.0.weight" not in resnet18(width=1).parameters_dict()


@pytest.mark.parametrize(
    ("make", "side", "classes"),
    [
        (resnet18, 32, 7),
        (resnet50, 32, 7),
        (partial(resnet18, stem="imagenet"), 224, 3),
        (partial(resnet50, stem="imagenet"), 65, 3),
    ],
)
def test_shapes(make, side, classes):
    network = make(num_classes=classes, num_channels=2, width=2)
    assert network(Tensor(np.zeros((2, 2, side, side), np.float32))).shape == (2, classes)


def test_first_weights():
    seed.set_seed(1)
    for kind in ("uniform", "he"):
        network = resnet18(weight_init=kind)
        weight = network.layer3[0].conv2.weight.asnumpy()
        fan = 256 * 3 * 3  # in and out
        expected = np.sqrt(1 / fan / 3) if kind == "uniform" else np.sqrt(2 / fan)
        assert weight.std() == pytest.approx(expected, rel=0.01)
        assert (np.abs(weight).max() <= np.sqrt(1 / fan)) == (kind == "uniform")
        assert np.abs(network.linear.weight.asnumpy()).max() <= np.sqrt(1 / 512)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"width": -1}, "width must be a whole number of at least 1"),
        ({"num_channels": 0}, "num_channels must be a whole number of at least 1"),
        ({"stem": "resnet"}, "stem is not one of the choices"),
        ({"weight_init": "normal"}, "weight_init is not one of the choices"),
    ],
)
def test_bad_arguments(arguments, what):
    with pytest.raises(ConfigError) as caught:
        resnet18(**arguments)
    ((name, value),) = arguments.items()
    assert caught.value.what == what
    assert (caught.value.rows["key"], caught.value.rows["given"]) == (f"network.{name}", repr(value))


# Training


def trained(stem: str, mode: str, steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    seed.set_seed(1)
    network = SMALL[stem]()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9, weight_decay=1e-3)
    cell = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer).set_train()
    rng, run = np.random.default_rng(0), step_of(cell.construct, mode)
    label = rng.integers(0, 10, (steps, 8)).astype(np.int32)
    image = rng.normal(size=(steps, 8, 3, 32, 32)).astype(np.float32) + label[..., None, None, None] / 3
    losses = [float(run(a.astype(np.float32), b)[0]) for a, b in zip(image, label, strict=True)]
    network.set_train(False)
    losses.append(float(step_of(lambda x: network(x), mode)(image[0].astype(np.float32))[0].sum()))
    return losses, {name: p.asnumpy().copy() for name, p in cell.parameters_dict().items()}


@pytest.mark.parametrize("stem", SMALL)
def test_both_modes_train_and_predict_alike(stem):
    (losses, eager), (graph_losses, graph) = (trained(stem, mode, 3) for mode in MODES)
    assert max(abs(a - b) / abs(a) for a, b in zip(losses, graph_losses, strict=True)) <= 1e-4
    assert list(eager) == list(graph)
    differences = {name: relative(graph[name], value) for name, value in eager.items()}
    assert {name: d for name, d in differences.items() if d > 1e-3} == {}
    moving = [name for name in eager if name.endswith(("moving_mean", "moving_variance"))]
    assert len(moving) == 2 * (12 if stem == "cifar" else 17)
    assert all(np.ptp(eager[name]) > 0 for name in moving)


# Whole runs


def run(folder: Path, *words: str) -> dict:
    return runner.run([*RUN, *words, f"hydra.run.dir={folder}"])


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def newest(folder: Path) -> dict[str, np.ndarray]:
    found, damaged = state.newest(folder / "checkpoints", "CKP")
    assert found is not None
    assert damaged == []
    return found.arrays


def test_a_sunk_run_equals_the_unsunk_one_bit_for_bit(tmp_path):
    for sink in ("true", "false"):
        run(tmp_path / sink, "mode=graph", "epochs=2", f"dataset_sink_mode={sink}")
    sunk, unsunk = newest(tmp_path / "true"), newest(tmp_path / "false")
    assert {name: array.tobytes() for name, array in sunk.items()} == {n: a.tobytes() for n, a in unsunk.items()}
    assert rows(tmp_path / "true")[-1] == rows(tmp_path / "false")[-1]  # the evaluation


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_goes_on_with_its_moving_statistics(tmp_path, monkeypatch, mode):
    words = (f"mode={mode}", "epochs=2", "dataset_sink_mode=false", "checkpoint.every_steps=2")
    run(tmp_path / "whole", *words)

    class Dead(BaseException):
        """The process is gone."""

    def before(operation: str, path: Path) -> None:
        if operation == "write" and path.name == "metrics.jsonl" and len(rows(path.parent)) >= 7:
            raise Dead

    with monkeypatch.context() as patch:
        patch.setattr(files, "before_operation", before)
        with pytest.raises(Dead):
            run(tmp_path / "killed", *words)
    before_the_end = newest(tmp_path / "killed")
    resume(tmp_path / "killed")
    whole, resumed = newest(tmp_path / "whole"), newest(tmp_path / "killed")
    assert {name: array.tobytes() for name, array in resumed.items()} == {n: a.tobytes() for n, a in whole.items()}
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    moving = "layer2.1.bn2.moving_variance"
    assert not np.array_equal(before_the_end[moving], resumed[moving])

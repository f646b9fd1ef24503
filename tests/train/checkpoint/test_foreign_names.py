"""Weights under the names of other programs: tables of names, types, and what does not fit."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file
from tables import table

import runner
from models.lenet import LeNet5
from models.resnet import resnet18, resnet50
from runner import nn
from runner.config.schema import SCHEMES, names_of
from runner.core.values import Parameter
from runner.errors import ConfigError, DataError
from runner.train.checkpoint.initial_weights import InitialWeights, renamed
from runner.validation.rules import Names


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@table(
    ("rules", "name", "theirs"),
    [
        ({}, "conv1.weight", "conv1.weight"),
        ({"a.b": "c"}, "a.b", "c"),
        ({"a.b": "c"}, "a.bc", "a.bc"),
        ({"a*": "b*"}, "a.weight", "b.weight"),
        ({"*.gamma": "*.weight"}, "x.y.gamma", "x.y.weight"),
        ({"*.*.w": "net.*.layers.*.kernel"}, "a.1.w", "net.a.layers.1.kernel"),
        ({"a.*": None}, "a.b", None),
        ({"a.b": "first", "a.*": "*"}, "a.b", "first"),
        ({"a.*": "second.*", "a.b": "never"}, "a.b", "second.b"),
        ({"a.*": "b.*", "b.*": "a.*"}, "a.x", "b.x"),
        ({"model/x:0": "x"}, "model/x:0", "x"),
    ],
)
def test_rules(rules, name, theirs):
    assert Names(rules=tuple(rules.items())).theirs(name) == theirs


def torchvision_names(blocks: tuple[int, ...], convolutions: int, plain_first: bool) -> set[str]:
    """The names in `torchvision.models.resnetN().state_dict()`, written down from its structure."""

    def norm(prefix: str) -> set[str]:
        parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        return {f"{prefix}.{part}" for part in parts}

    names = {"conv1.weight", "fc.weight", "fc.bias", *norm("bn1")}
    for layer, count in enumerate(blocks, 1):
        for block in range(count):
            prefix = f"layer{layer}.{block}"
            for number in range(1, convolutions + 1):
                names |= {f"{prefix}.conv{number}.weight", *norm(f"{prefix}.bn{number}")}
            if block == 0 and (layer > 1 or not plain_first):
                names |= {f"{prefix}.downsample.0.weight", *norm(f"{prefix}.downsample.1")}
    return names


@table(
    ("make", "names"),
    [
        (resnet18, torchvision_names((2, 2, 2, 2), 2, plain_first=True)),
        (resnet50, torchvision_names((3, 4, 6, 3), 3, plain_first=False)),
    ],
)
def test_the_names_of_torchvision(make, names):
    naming = names_of("torchvision")
    own = [naming.theirs(p.name) for p in make(width=4).get_parameters()]
    assert len(own) == len(set(own))
    assert {name for name in names if not name.endswith("num_batches_tracked")} == set(own)


@table("name", list(SCHEMES))
def test_linear_layers_have_the_names_of_torch(name):
    naming = names_of(name)
    own = {p.name for p in LeNet5().get_parameters()}
    assert {naming.theirs(one) for one in own} == own
    assert naming.theirs("block.1.bn.moving_variance") == "block.1.bn.running_var"


def of_torch(network: nn.Cell, naming: str = "torchvision", **changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Random weights by names of torch; `changes` replace some, or leave them out."""
    rng, names = np.random.default_rng(1), names_of(naming)
    arrays = {names.theirs(p.name): rng.normal(size=p.shape).astype(np.float32) for p in network.get_parameters()}
    arrays["bn1.num_batches_tracked"] = np.array(3, np.int64)
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def load(network: nn.Cell, names: str | None = "torchvision", strict: bool = True, kept=(), file="w.safetensors"):
    return InitialWeights(file, "CKP", strict, None if names is None else names_of(names), kept).load(network)


def test_weights_arrive_where_they_belong():
    network = resnet18(width=4)
    given = of_torch(network)
    save_file(given, "w.safetensors")
    load(network)
    for ours, theirs in {
        "conv1.weight": "conv1.weight",
        "bn1.gamma": "bn1.weight",
        "bn1.moving_variance": "bn1.running_var",
        "layer2.0.down_sample_layer.0.weight": "layer2.0.downsample.0.weight",
        "layer2.0.down_sample_layer.1.beta": "layer2.0.downsample.1.bias",
        "linear.bias": "fc.bias",
    }.items():
        assert np.array_equal(network.parameters_dict()[ours].asnumpy(), given[theirs]), ours


@table("dtype", [np.float16, np.float64])
def test_other_floats_are_converted(dtype):
    network = LeNet5()
    given = {p.name: np.full(p.shape, 0.1, dtype) for p in network.get_parameters()}
    save_file(given, "w.safetensors")
    load(network)
    assert network.fc1.weight.asnumpy().dtype == np.float32
    assert np.array_equal(network.fc1.weight.asnumpy(), given["fc1.weight"].astype(np.float32))


def test_weights_in_bfloat16():
    """The file is written by hand: numpy has no such type."""
    values = np.array([1.0, -2.5, 0.15625, 3.0e38, 0.0], np.float32)
    data = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"x": {"dtype": "BF16", "shape": [5], "data_offsets": [0, len(data)]}}).encode()
    with open("w.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    found = runner.load_checkpoint("w.safetensors")["x"].asnumpy()
    assert found.dtype == np.float32
    assert np.array_equal(found, (values.view(np.uint32) & 0xFFFF0000).view(np.float32))


def test_everything_that_does_not_fit_is_listed():
    network = resnet18(width=4)
    changes = {name: None for name in of_torch(network) if name.startswith("layer3.")}
    changes |= {"fc.weight": np.zeros((1000, 32), np.float32), "fc.bias": np.zeros(1000, np.float32)}
    changes |= {f"extra.{k}": np.zeros(1, np.float32) for k in range(20)}
    save_file(of_torch(network, **changes), "w.safetensors")
    before = {p.name: p.asnumpy().copy() for p in network.get_parameters()}
    with pytest.raises(ConfigError) as caught:
        load(network)
    rows = caught.value.rows
    assert (caught.value.exit_code, rows["key"], rows["value"]) == (2, "checkpoint.load", "w.safetensors")
    missing = [p.name for p in network.get_parameters() if p.name.startswith("layer3.")]
    assert [line.split()[0] for line in rows["missing"].splitlines()] == missing
    assert "layer3.0.down_sample_layer.1.gamma (layer3.0.downsample.1.weight)" in rows["missing"]
    assert [line.split()[0] for line in rows["surplus"].splitlines()] == sorted(f"extra.{k}" for k in range(20))
    assert rows["other type"].splitlines() == [
        "linear.weight: Float32[10, 32], in the checkpoint Float32[1000, 32]",
        "linear.bias: Float32[10], in the checkpoint Float32[1000]",
    ]
    for parameter in network.get_parameters():
        assert np.array_equal(parameter.asnumpy(), before[parameter.name])


def test_a_new_head_keeps_its_values():
    network = resnet18(width=4)
    save_file(of_torch(network, **{"fc.weight": np.zeros((1000, 32), np.float32), "fc.bias": None}), "w.safetensors")
    head = network.linear.weight.asnumpy().copy()
    load(network, kept=[network.linear.weight, network.linear.bias])
    assert np.array_equal(network.linear.weight.asnumpy(), head)


def test_part_of_the_weights(caplog):
    network = resnet18(width=4)
    save_file(of_torch(network, **{"conv1.weight": None, "more.weight": np.ones(2, np.float32)}), "w.safetensors")
    load(network, strict=False)
    assert "w.safetensors does not have conv1.weight" in caplog.text
    assert "w.safetensors has more.weight" in caplog.text


def test_names_of_torch_without_the_key():
    network = resnet18(width=4)
    save_file(of_torch(network), "w.safetensors")
    with pytest.raises(ConfigError) as caught:
        load(network, names=None)
    assert caught.value.rows["hint"] == "checkpoint.names=torchvision, torch, or a file with names"


def test_a_file_with_our_names_needs_no_key():
    network = LeNet5()
    given = {p.name: np.full(p.shape, 2.0, np.float32) for p in network.get_parameters()}
    given |= {"moments.fc1.weight": np.zeros((120, 400), np.float32), "learning_rate": np.array(0.1, np.float32)}
    save_file(given, "w.safetensors")
    load(network, names=None)
    assert (network.fc1.weight.asnumpy() == 2.0).all()


def test_a_rule_of_a_file_that_matches_nothing():
    own, given = {"fc.weight": Parameter(np.zeros(2, np.float32), "fc.weight")}, {}
    with pytest.raises(ConfigError) as caught:
        renamed(own, given, Names(rules=(("fc.wieght", "x"), ("fc.*", "y.*"), ("a*b", "c*d"))))
    assert caught.value.rows["rules"] == "fc.wieght (nearest: fc.weight)\na*b"


@table(
    ("content", "error"),
    [
        (b"", DataError),
        (b"\xff" * 100, DataError),
        (struct.pack("<Q", 2**60) + b"{}", DataError),
        (struct.pack("<Q", 2) + b"[]", DataError),
        (struct.pack("<Q", 2) + b"{}", DataError),
    ],
)
def test_damaged_files(place, content, error):
    (place / "w.safetensors").write_bytes(content)
    with pytest.raises(error):
        load(LeNet5())


@table("suffix", [".pt", ".pth", ".bin"])
def test_pickles_are_not_read(place, suffix):
    path = place / f"weights{suffix}"
    path.write_bytes(b"\x80\x04K\x07.")
    with pytest.raises(ConfigError) as caught:
        load(LeNet5(), file=str(path))
    assert "safetensors.torch.save_file" in caught.value.rows["repair"]

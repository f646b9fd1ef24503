"""Weights travel to MindSpore and back: LeNet in MindSpore 2 gives the logits of ours, with either one's weights.

python3.11 -m venv ms && ms/bin/pip install mindspore "numpy<2"
RUNNER_MINDSPORE_PYTHON=ms/bin/python pytest tests/train/checkpoint/test_mindspore.py
"""

import os
import subprocess

import numpy as np
import pytest
from patience import PATIENCE

from models.lenet import LeNet5
from runner import Tensor, context, dtype
from runner.core.values import Parameter
from runner.train.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint

PYTHON = os.environ.get("RUNNER_MINDSPORE_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="RUNNER_MINDSPORE_PYTHON names no Python that has MindSpore")
TOLERANCE = 1e-5

# The same structure, written for MindSpore. It loads `ours.ckpt`, and writes `theirs.ckpt` with weights of its own.
SCRIPT = """
import sys
import numpy as np
import mindspore as ms
from mindspore import nn
class LeNet5(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()
    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc3(self.relu(self.fc2(x)))
folder = sys.argv[1]
ms.set_seed(3)
image = ms.Tensor(np.load(folder + "/image.npy", allow_pickle=False))
net = LeNet5()
for name in ("plain", "ours"):
    weights = ms.load_checkpoint(f"{folder}/{name}.ckpt", crc_check=name == "ours")
    not_loaded, not_used = ms.load_param_into_net(net, weights, strict_load=True)
    assert not not_loaded and not not_used, (not_loaded, not_used)
try:
    ms.load_checkpoint(folder + "/flipped.ckpt", crc_check=True)
    raise AssertionError("a changed file was loaded")
except ValueError:
    pass
np.save(folder + "/ours.npy", net(image).asnumpy())
own = LeNet5()
ms.save_checkpoint(own, folder + "/theirs.ckpt")
ms.save_checkpoint(own, folder + "/checked.ckpt", append_dict={"epoch_num": 3, "note": "hello"}, crc_check=True)
np.save(folder + "/theirs.npy", own(image).asnumpy())
kinds = ms.load_checkpoint(folder + "/kinds.ckpt", crc_check=True)
for name, parameter in kinds.items():
    print(name, str(parameter.dtype), parameter.shape, parameter.asnumpy().tobytes().hex())
ms.save_checkpoint([{"name": k, "data": v} for k, v in kinds.items()], folder + "/kinds_back.ckpt")
"""
KINDS = {f"k.{kind}": np.array([1, 0, 1]).astype(kind.numpy).reshape(3, 1) for kind in dtype.ALL}
KINDS |= {"scalar": np.array(0.1, np.float32), "count": np.array(7, np.int64), "one": np.array([2.5])}


@pytest.fixture(scope="module")
def exchange(tmp_path_factory):
    """Our network and image, after MindSpore read and wrote its files in a folder."""
    context.set_context(mode=context.PYNATIVE_MODE)
    folder = tmp_path_factory.mktemp("exchange")
    image = np.random.default_rng(5).normal(size=(4, 1, 32, 32)).astype(np.float32)
    np.save(folder / "image.npy", image)
    net = LeNet5()
    for parameter in net.get_parameters():  # large enough that a wrong layout shows
        scaled = np.random.default_rng(parameter.size).normal(size=parameter.shape) * 0.1
        parameter.set_data(scaled.astype(np.float32))
    save_checkpoint(net, f"{folder}/ours.ckpt")
    save_checkpoint(net, f"{folder}/plain.ckpt", crc_check=False)
    flipped = bytearray((folder / "ours.ckpt").read_bytes())
    flipped[1000] ^= 1
    (folder / "flipped.ckpt").write_bytes(flipped)
    save_checkpoint([{"name": k, "data": Parameter(v)} for k, v in KINDS.items()], f"{folder}/kinds.ckpt")
    running = subprocess.run([str(PYTHON), "-c", SCRIPT, str(folder)], capture_output=True, text=True, timeout=PATIENCE)
    assert running.returncode == 0, running.stderr
    return folder, net, Tensor(image), running.stdout


def difference(net: LeNet5, image: Tensor, path) -> float:
    theirs = np.load(path)
    assert np.abs(theirs).max() > 0.01
    return float(np.abs(net(image).asnumpy() - theirs).max())


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_our_weights_there(exchange, mode):
    folder, net, image, _ = exchange
    context.set_context(mode=mode)
    found = difference(net, image, folder / "ours.npy")
    print(f"largest difference of logits: {found:.1e}")
    assert found <= TOLERANCE


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
@pytest.mark.parametrize("name", ["theirs", "checked"])
def test_their_weights_here(exchange, name, mode):
    """`checked` also has notes and a checksum."""
    folder, _, image, _ = exchange
    context.set_context(mode=mode)
    net, found = LeNet5(), load_checkpoint(f"{folder}/{name}.ckpt")
    assert load_param_into_net(net, found) == []
    assert set(found) - set(net.parameters_dict()) == ({"epoch_num"} if name == "checked" else set())
    apart = difference(net, image, folder / "theirs.npy")
    print(f"largest difference of logits: {apart:.1e}")
    assert apart <= TOLERANCE


def test_every_element_type_there_and_back(exchange):
    folder, _, _, lines = exchange
    seen = {line.split()[0]: line for line in lines.splitlines() if line.startswith(("k.", "scalar", "count", "one"))}
    assert seen == {
        name: f"{name} {dtype.of(array.dtype)} {array.shape} {array.tobytes().hex()}" for name, array in KINDS.items()
    }
    back = load_checkpoint(f"{folder}/kinds_back.ckpt")
    assert {name: (p.dtype, p.shape, p.asnumpy().tobytes()) for name, p in back.items()} == {
        name: (dtype.of(array.dtype), array.shape, array.tobytes()) for name, array in KINDS.items()
    }


def test_the_same_weights_have_the_same_bytes(exchange):
    """For a network without scalars, of which r1.2 writes the lengths in another way than MindSpore 2."""
    folder, _, _, _ = exchange
    net = LeNet5()
    load_checkpoint(f"{folder}/theirs.ckpt", net, strict_load=True)
    save_checkpoint(net, f"{folder}/again.ckpt", crc_check=False)
    assert (folder / "again.ckpt").read_bytes() == (folder / "theirs.ckpt").read_bytes()

"""The same bytes with any number of threads: losses and state of trainings whose batches are computed in parts."""

import json
from pathlib import Path

import numpy as np
import pytest
from soak import SOAK, thinned

import runner
from runner import Model, Tensor, context, nn, ops
from runner.compile.divided_session import DividedSession
from runner.core.parts import Parts
from runner.core.values import Value
from runner.device import Device
from runner.host import seed
from runner.host.threads import kernel_threads
from runner.importer.network import OnnxNetwork
from runner.ops.random import random_counter
from runner.train.checkpoint import state

MODELS = Path(__file__).parents[1] / "importer" / "models"
THREADS = (1, 2, 3, 4, 7)
QUIET = ("~expect", "callbacks=quiet", "eval.every=never", "seed=3")
LENET = ("+experiment=lenet", *QUIET, "max_steps=6")
RESNET18 = (
    *("+experiment=lenet", *QUIET, "max_steps=3", "network=resnet18", "network.width=8", "network.num_channels=1"),
    *("network.stem=cifar", "network.weight_init=he", "dataset.batch_size=32"),
)
RUNS = {
    "lenet": (*LENET, "dataset.batch_size=32", "dataset_sink_mode=false"),
    "sunk": (*LENET, "dataset.batch_size=32", "dataset_sink_mode=true"),
    "large batches": (*LENET, "dataset.batch_size=256", "dataset_sink_mode=false"),
    "large batches, sunk": (*LENET, "dataset.batch_size=256", "dataset_sink_mode=true"),
    "sgd": (*LENET, "optimizer=sgd"),
    "adam": (*LENET, "optimizer=adam", "dataset_sink_mode=true"),
    "loss scale": (*LENET, "session.precision_mode=allow_mix_precision", "dataset_sink_mode=false"),
    "evaluated": (*LENET[:2], "callbacks=quiet", "seed=3", "max_steps=4", "eval.every=epoch"),
    "pynative": (*LENET, "mode=pynative", "dataset_sink_mode=false"),
    "large batches, pynative": (*LENET, "mode=pynative", "dataset.batch_size=256", "optimizer=adam"),
    "resnet50_tiny": ("+experiment=resnet50_tiny", *QUIET, "max_steps=2"),
    "resnet50_tiny, pynative": ("+experiment=resnet50_tiny", *QUIET, "max_steps=2", "mode=pynative"),
    "resnet18": (*RESNET18, "mode=graph"),
    "resnet18, pynative": (*RESNET18, "mode=pynative"),
}


def trained(folder: Path, threads: int, words: tuple[str, ...]) -> dict[str, object]:
    """What a run leaves that has no time in it."""
    runner.run([*words, f"device.threads={threads}", f"hydra.run.dir={folder}"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in lines]
    return {"lines": losses} | {
        k: v.tobytes() for k, v in state.newest(folder / "checkpoints", "CKP")[0].arrays.items()
    }


@pytest.mark.parametrize("name", [*thinned(list(RUNS), every=2)])
def test_runs_end_with_the_same_bytes(tmp_path, name):
    first = trained(tmp_path / "1", 1, RUNS[name])
    assert len(first) > 5
    for threads in THREADS[1:] if SOAK else (2, 3):
        assert trained(tmp_path / str(threads), threads, RUNS[name]) == first, threads


# Networks that runner never saw.


class Own(nn.Cell):
    """A convolution, dropout, ELU, attention with normalised rows, and a hundred classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm2d = nn.Conv2d(1, 16, 5, pad_mode="valid"), nn.BatchNorm2d(16)
        self.dropout, self.elu, self.flatten = nn.Dropout(0.6), ops.Elu(), nn.Flatten()
        self.dense, self.norm, self.head = nn.Dense(16 * 24 * 24, 64), nn.LayerNorm((64,)), nn.Dense(64, 100)

    def construct(self, x: Value) -> Value:
        y = self.dropout(self.elu(self.norm2d(self.conv(x))))
        h = self.norm(self.elu(self.dense(self.flatten(y))))
        heads = ops.Reshape()(h, (-1, 8, 8))
        weights = ops.Softmax()(ops.BatchMatMul(transpose_b=True)(heads, heads))
        return self.head(self.dropout(h + ops.Reshape()(ops.BatchMatMul()(weights, heads), (-1, 64))))


class Mixing(Own):
    """Rows read other rows, so a part of the step needs the whole batch."""

    def construct(self, x: Value) -> Value:
        y = super().construct(x)
        near = ops.Softmax()(ops.MatMul(transpose_b=True)(y, y))
        return y + ops.MatMul()(near, y) - ops.ReduceMean(axis=0, keep_dims=True)(y)


def images(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(64, 1, 28, 28)).astype(np.float32), rng.integers(0, classes, 64).astype(np.int32)


def imported() -> tuple[nn.Cell, tuple[np.ndarray, np.ndarray]]:
    network = OnnxNetwork(str(MODELS / "vit-dynamo-18.onnx"))
    rng = np.random.default_rng(5)
    return network, (rng.normal(size=(64, 3, 32, 32)).astype(np.float32), rng.integers(0, 4, 64).astype(np.int32))


MAKES = {"own": lambda: (Own(), images(100)), "mixing": lambda: (Mixing(), images(100)), "imported": imported}


def steps(name: str, threads: int, mode: int = context.GRAPH_MODE, count: int = 3) -> tuple[list[bytes], Model]:
    """The losses and the parameters after some steps."""
    seed.set_seed(2)
    network, arrays = MAKES[name]()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    model = Model(network, loss, optimizer, mode=mode, device=Device(threads=threads))
    network.set_train()
    found = []
    with kernel_threads(threads):
        for number in range(count):
            random_counter().begin_step(number)
            found.append(np.asarray(model.train_step(arrays)[0]).tobytes())
    return found + [p.asnumpy().tobytes() for p in network.get_parameters()], model


@pytest.fixture
def small_parts(monkeypatch):
    """So that small networks have parts."""
    monkeypatch.setattr("runner.compile.parts.PART_FLOPS", 1000)


@pytest.mark.parametrize("name", MAKES)
def test_networks_that_runner_never_saw(small_parts, name):
    first, model = steps(name, 1)
    (program,) = model.train_step.programs.values()
    assert isinstance(program.session, DividedSession)
    assert program.session.division.parts == Parts(4, 64)
    for threads in THREADS[1:]:
        assert steps(name, threads)[0] == first
    by_operator, _ = steps(name, 1, context.PYNATIVE_MODE)
    for threads in (3, 4):
        assert steps(name, threads, context.PYNATIVE_MODE)[0] == by_operator
    for a, b in zip(first[:3], by_operator[:3], strict=True):
        assert abs(np.frombuffer(a, np.float32)[0] - np.frombuffer(b, np.float32)[0]) < 1e-3


@pytest.mark.parametrize("name", MAKES)
def test_predictions_have_the_rows_of_the_batch_in_their_order(small_parts, name):
    seed.set_seed(2)
    network, (x, _) = MAKES[name]()
    by_mode = [
        Model(network, mode=mode, device=Device(threads=threads)).predict(Tensor(x)).asnumpy()
        for mode, threads in ((context.GRAPH_MODE, 1), (context.GRAPH_MODE, 3), (context.PYNATIVE_MODE, 1))
    ]
    assert np.array_equal(by_mode[0], by_mode[1])
    np.testing.assert_allclose(by_mode[0], by_mode[2], rtol=1e-3, atol=1e-5)

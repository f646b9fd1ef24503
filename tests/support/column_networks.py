"""Networks with one, two and three inputs, with their data and their losses in Float64 numpy.

As a script (FOLDER NAME MODE SUNK [STEP]) it trains one of them with a checkpoint for every step or sink, from the
newest checkpoint in the folder on; at the end the folder has `weights.npz`. It kills itself (-9) after STEP.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner import Model, context, dtype, nn, ops, set_seed
from runner.core.values import Parameter, Tensor
from runner.dataset import Dataset, NumpySlicesDataset
from runner.device import Device
from runner.train.callback import Callback, CheckpointConfig, ModelCheckpoint
from runner.train.checkpoint import load_checkpoint, load_param_into_net

SEED, ROWS, BATCH, EPOCHS, RATE = 11, 22, 5, 3, 0.125  # four batches of 5, and one of 2
WORDS, LENGTH = 7, 4
MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
Arrays = Mapping[str, np.ndarray]


def weights(seed: int, *shape: int) -> Parameter:
    return Parameter(Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32)))


class Line(nn.Cell):
    """A regression with a target (N,)."""

    def __init__(self):
        super().__init__()
        self.slope, self.shift = weights(1, 3, 1), weights(2, 1)

    def construct(self, reading):
        return ops.Reshape()(ops.MatMul()(reading, self.slope) + self.shift, (reading.shape[0],))


class Words(nn.Cell):
    """Token numbers and a mask to three labels that exclude each other in no way."""

    def __init__(self):
        super().__init__()
        self.table, self.head = weights(3, WORDS, 2), weights(4, 2, 3)

    def construct(self, tokens, mask):
        kept = ops.ExpandDims()(ops.Cast(dtype.float32)(mask), -1)
        mean = ops.ReduceMean()(ops.Gather(0)(self.table, tokens) * kept, 1)
        return ops.Sigmoid()(ops.MatMul()(mean, self.head))


class Parts(nn.Cell):
    """An image, token numbers and a factor in Float16 to the scores of three classes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="valid", weight_init=Tensor(weights(5, 2, 1, 3, 3).asnumpy()))
        self.table, self.head = weights(6, WORDS, 2), weights(7, 2, 3)

    def construct(self, image, tokens, factor):
        seen = ops.ReduceMean()(ops.Tanh()(self.conv(image)), (2, 3))
        read = ops.ReduceMean()(ops.Gather(0)(self.table, tokens), 1)
        return ops.MatMul()(seen + read, self.head) * ops.Cast(dtype.float32)(factor)


def line_loss(p: Arrays, reading, target) -> float:
    return float(np.mean((reading @ p["slope"] + p["shift"] - target[:, None]) ** 2))


def words_loss(p: Arrays, tokens, mask, target) -> float:
    mean = (p["table"][tokens] * mask[..., None]).mean(axis=1)
    return float(np.mean((1 / (1 + np.exp(-(mean @ p["head"]))) - target) ** 2))


def parts_loss(p: Arrays, image, tokens, factor, target) -> float:
    windows = np.lib.stride_tricks.sliding_window_view(image[:, 0], (3, 3), axis=(1, 2))
    seen = np.tanh(np.einsum("nhwij,cij->nchw", windows, p["conv.weight"][:, 0])).mean(axis=(2, 3))
    scores = (seen + p["table"][tokens].mean(axis=1)) @ p["head"] * factor
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(target)), target]))


class Case(NamedTuple):
    """A network, its loss in runner and in numpy, and its columns as a user has them."""

    network: type[nn.Cell]
    loss: Callable[[], nn.Cell]
    oracle: Callable[..., float]
    columns: dict[str, np.ndarray]


def _columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "reading": rng.normal(size=(ROWS, 3)),
        "height": rng.normal(size=ROWS),
        "tokens": rng.integers(0, WORDS, (ROWS, LENGTH)),
        "mask": rng.random((ROWS, LENGTH)) > 0.3,
        "labels": (rng.random((ROWS, 3)) > 0.5).astype(np.float32),
        "image": rng.normal(size=(ROWS, 1, 5, 4)).astype(np.float32),
        "factor": rng.normal(size=(ROWS, 1)).astype(np.float16),
        "kind": rng.integers(0, 3, ROWS).astype(np.uint8).astype(np.int64),
    }


def _case(network: type[nn.Cell], loss: Callable[[], nn.Cell], oracle: Callable[..., float], *names: str) -> Case:
    columns = _columns()
    return Case(network, loss, oracle, {name: columns[name] for name in names})


def _cross_entropy() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


CASES = {
    "line": _case(Line, nn.MSELoss, line_loss, "reading", "height"),
    "words": _case(Words, nn.MSELoss, words_loss, "tokens", "mask", "labels"),
    "parts": _case(Parts, _cross_entropy, parts_loss, "image", "tokens", "factor", "kind"),
}


def dataset(name: str) -> Dataset:
    return NumpySlicesDataset(CASES[name].columns).shuffle(ROWS).batch(BATCH)


def model(name: str, mode: str, **more: object) -> Model:
    set_seed(SEED)
    network = CASES[name].network()
    optimizer = nn.SGD(network.trainable_params(), RATE)
    device = Device(threads=1)
    return Model(network, CASES[name].loss(), optimizer, {"loss"}, mode=MODES[mode], device=device, **more)


def bytes_of(trained: Model) -> dict[str, bytes]:
    return {p.name: p.asnumpy().tobytes() for p in trained.train_network.get_parameters()}


class Killer(Callback):
    """Kills the process after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def step_end(self, run_context) -> None:
        if run_context.original_args().cur_step_num == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, name: str, mode: str, sunk: bool, killed_after: int = 0) -> None:
    training, first = model(name, mode), 0
    saved = sorted(folder.glob("net-*.ckpt"), key=lambda path: path.stat().st_mtime_ns)
    if saved:
        epoch, step = map(int, saved[-1].stem.removeprefix("net-").split("_"))
        load_param_into_net(training.train_network, load_checkpoint(str(saved[-1])), strict_load=True)
        first = (epoch - 1) * dataset(name).get_dataset_size() + step
    print(first)
    checkpoint = ModelCheckpoint("net", folder, CheckpointConfig(save_checkpoint_steps=1, keep_checkpoint_max=100))
    training.train(EPOCHS, dataset(name), [checkpoint, Killer(killed_after)], sunk, first_step=first)
    np.savez(folder / "weights.npz", **{p.name: p.asnumpy() for p in training.train_network.get_parameters()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "sunk", *map(int, sys.argv[5:]))

"""Networks learn from the user's own files, in both modes, sunk and not; new files give the outputs of the split."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import runner.dataset as ds
from runner import Model, Tensor, context, nn, set_seed
from runner.device import Device
from runner.train.callback import Callback

STEPS = 24


class Losses(Callback):
    """Keeps the losses of all steps."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def step_end(self, run_context) -> None:
        self.losses += np.ravel(run_context.original_args().losses).tolist()


def images(folder: Path) -> tuple[ds.Dataset, ds.Dataset]:
    """Bright and dark images of several sizes."""
    draw = np.random.default_rng(0)
    for name, low in (("bright", 140), ("dark", 0)):
        (folder / name).mkdir()
        for k in range(20):
            drawn = draw.integers(low, low + 110, (9 + k % 3, 11, 3), np.uint8)
            Image.fromarray(drawn).save(folder / name / f"{k}.{'png' if k % 2 else 'jpg'}")
    keys = {"data_dir": folder, "image_size": 8, "test_fraction": 0.2, "augment": True}
    return ds.image_folder("train", **keys), ds.image_folder("test", **keys)


def arrays(folder: Path) -> tuple[ds.Dataset, ds.Dataset]:
    """Points on two sides of a plane, mapped into memory."""
    x = np.random.default_rng(0).normal(size=(40, 192))
    for name, values in (("x", x), ("y", (x[:, :96].sum(axis=1) > 0).astype(np.int64))):
        np.save(folder / f"{name}.npy", values)
    return tuple(ds.npz_arrays(split, data_dir=folder, test_fraction=0.2) for split in ("train", "test"))


def rows(folder: Path) -> tuple[ds.Dataset, ds.Dataset]:
    """A class that follows from a number and a category."""
    draw = np.random.default_rng(0)
    with open(folder / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "kind", "answer"])
        for k in range(40):
            x = draw.normal()
            writer.writerow([f"{x:.4f}", "ab"[k % 2], "yes" if x + (k % 2) > 0.5 else "no"])
    keys = {"data_file": folder / "rows.csv", "target": "answer", "test_fraction": 0.2}
    return ds.csv_table("train", **keys), ds.csv_table("test", **keys)


def train(data: ds.Dataset, mode: int, sunk: bool, workers: int = 1) -> tuple[list[float], nn.Cell]:
    set_seed(3)
    width = data.column_types()[0].size
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(width, 8, weight_init="he_uniform"), nn.ReLU(), nn.Dense(8, 2))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = Model(net, loss, optimizer, mode=mode, device=Device(threads=1))
    seen = Losses()
    batches = data.shuffle(50).batch(8, num_parallel_workers=workers)
    model.train(1 if sunk else 99, batches, seen, sunk, STEPS if sunk else -1, max_steps=STEPS)
    return seen.losses, net


@pytest.mark.parametrize("source", [images, arrays, rows])
def test_own_data(tmp_path: Path, source) -> None:
    data, test = source(tmp_path)
    expected, net = train(data, context.GRAPH_MODE, sunk=False)
    assert len(expected) == STEPS
    assert np.mean(expected[-4:]) < 0.7 * np.mean(expected[:4])
    for sunk, workers in ((True, 1), (True, 4), (False, 4)):
        assert train(data, context.GRAPH_MODE, sunk, workers)[0] == expected
    np.testing.assert_allclose(train(data, context.PYNATIVE_MODE, False)[0], expected, rtol=1e-4, atol=1e-5)
    stored = ds.stored_preprocessing(data.preprocessing.as_json())
    if source is images:
        (inputs,) = next(stored.read([Path(name) for name in test.row_names]).batch(8).read(0))
        outputs = net(Tensor(inputs)).asnumpy()
        assert outputs.tobytes() == net(Tensor(next(test.batch(8).read(0))[0])).asnumpy().tobytes()

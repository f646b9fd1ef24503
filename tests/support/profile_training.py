"""Helper: trainings of small networks that are profiled, and readers of the files that use none of our code."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.lenet import LeNet5
from models.resnet import BasicBlock, ResNet
from runner import Model, context, nn, set_seed
from runner.dataset import NumpySlicesDataset
from runner.dataset.pipeline import Dataset
from runner.dataset.stages import stages
from runner.device import Device
from runner.observe.profile import files
from runner.observe.profile.record import ProfileRecord
from runner.observe.profile.settings import ProfileSettings, ProfileTarget
from runner.train.profile.profiler import TrainingProfiler

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
WAYS = (("graph", False), ("graph", True), ("pynative", False))
BATCH = 8


class Training:
    """A profiled training: its model, its files, the lines of the summary and the record."""

    def __init__(
        self,
        folder: Path,
        mode: str,
        sunk: bool,
        steps: int = 24,
        net: str = "lenet",
        threads: int = 1,
        **settings: Any,
    ):
        self.settings = ProfileSettings(
            folder, **({"training_trace": True, "task_trace": True, "aicpu_trace": True} | settings)
        )
        self.folder, self.place, self.sunk, self.steps = folder, ProfileTarget(mode, "cpu"), sunk, steps
        self.lines: list[str] = []
        self.records: list[ProfileRecord] = []
        self.model = model_of(net, mode, threads)
        self.model.profiler = TrainingProfiler(self.settings, self._written)
        train(self.model, data_of(net), sunk, steps)

    def _written(self, record: ProfileRecord, data: Dataset) -> None:
        self.records.append(record)
        self.lines += files.write(record, self.settings, self.place, stages(data))

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of a CSV file."""
        with open(self.folder / name, newline="") as file:
            return list(csv.DictReader(file))

    def json(self, name: str) -> Any:
        """A JSON file."""
        return json.loads((self.folder / name).read_text())


def model_of(net: str, mode: str, threads: int = 1) -> Model:
    """LeNet-5, or a narrow ResNet-18, with Momentum."""
    set_seed(1)
    network = LeNet5() if net == "lenet" else ResNet(BasicBlock, (2, 2, 2, 2), width=4, stem="cifar")
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    return Model(network, loss, optimizer, mode=MODES[mode], device=Device(threads=threads))


def data_of(net: str) -> Dataset:
    """Four batches, always the same."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((4 * BATCH, 1 if net == "lenet" else 3, 32, 32), np.float32)
    return NumpySlicesDataset((images, rng.integers(0, 10, 4 * BATCH, np.int32))).batch(BATCH)


def train(model: Model, data: Dataset, sunk: bool, steps: int, callbacks: Sequence[Any] = ()) -> None:
    """So many steps."""
    sink_size, epochs = (steps, 1) if sunk else (-1, -(-steps // data.get_dataset_size()))
    model.train(epochs, data, callbacks, sunk, sink_size, max_steps=steps)

"""The training step that the benchmarks measure: a network, its loss and Momentum, in training mode."""

import argparse
from pathlib import Path

import numpy as np
from peers.timing import LEARNING_RATE, MOMENTUM, rows_of, shape_of

from runner import context, nn, set_seed
from runner.config.groups.entries import NETWORKS
from runner.device import Device
from runner.train import Model

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}


def model_of(net: str, mode: str, device: Device, onnx: Path | None = None) -> Model:
    """A model whose `train_step` trains: BatchNorm takes the statistics of the batch, as within `Model.train`.

    Its network is that of this name in `models/`, or in the folder `onnx`.
    """
    set_seed(0)
    network = NETWORKS.kind["onnx"].source(str(onnx / f"{net}.onnx")) if onnx else NETWORKS.kind[net].source()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), LEARNING_RATE, MOMENTUM)
    model = Model(network, loss, optimizer, mode=MODES[mode], device=device)
    model.train_network.set_train()
    return model


def data_of(o: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Random images and labels, always the same."""
    rng = np.random.default_rng(0)
    count = rows_of(o.net, o.batch)
    return rng.standard_normal((count, *shape_of(o.net)), np.float32), rng.integers(0, 10, count, np.int32)

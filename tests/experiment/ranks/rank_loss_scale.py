"""Run by mpirun: gradients that overflow on one rank only, under a loss scale, against the rule in plain Python.

With words it is `runner` with the first scale of MindSpore, which is too large for Float16 for some steps.
"""

import sys

import numpy as np

from runner import DynamicLossScaleManager, Model, Parameter, Tensor, cli, context, nn, ops
from runner.communication import get_rank, init
from runner.communication.world import world
from runner.dataset import NumpySlicesDataset
from runner.experiment import build
from runner.train.callback import Callback

HUGE = 2.0**120  # finite, and its product with the scale is not
MOST = 2.0**119  # the scaled gradients of both ranks are finite, and their sum is not
# Gradients of both ranks in each step; their sums, means and momenta are exact in Float32.
STEPS = [
    *((0.5, 0.25), (0.25, HUGE), (-0.5, 0.125), (np.nan, 0.5), (1.0, 0.5), (0.5, 0.75), (-0.25, 0.5)),
    *((np.inf, -np.inf), (0.75, 0.25), (MOST, MOST), (0.5, -0.5), (0.25, 0.125), (-0.125, 0.25), (0.5, 0.5)),
]
SCALE, WINDOW = 2.0**10, 3


class Product(nn.Cell):
    """A loss with the gradient of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(1, np.float32)), "weight")

    def construct(self, image, label):
        return ops.ReduceSum()(image * self.weight)


class History(Callback):
    """The state after every step: weight, moment, scale, skipped steps, those since a good one, good ones in a row."""

    def __init__(self) -> None:
        self.rows: list[list[float]] = []

    def step_end(self, run_context):
        cell = run_context.original_args().train_network
        moment = cell.optimizer.moments[0]
        counts = cell.overflow_steps, cell.bad_steps, cell.scale_update.good_steps
        self.rows.append(
            [float(p.array.reshape(-1)[0]) for p in (cell.network.weight, moment, cell.scale_sense, *counts)]
        )


def made(mean: bool) -> list[list[float]]:
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=mean)
    network, history = Product(), History()
    images = np.array([pair[get_rank()] for pair in STEPS], np.float32)[:, None]
    data = NumpySlicesDataset({"image": images, "label": np.zeros(len(images), np.int32)}, shuffle=False).batch(1)
    manager = DynamicLossScaleManager(SCALE, 2.0, WINDOW)
    optimizer = nn.Momentum(network.trainable_params(), 0.5, 0.5)
    Model(network, None, optimizer, loss_scale_manager=manager).train(1, data, history, dataset_sink_mode=False)
    return history.rows


def simulated(mean: bool) -> list[list[float]]:
    """The rule of one process, with the gradient of both ranks."""
    weight, moment, scale, skipped, bad, good = 1.0, 0.0, SCALE, 0, 0, 0
    rows = []
    for one, other in STEPS:
        scaled = [one * scale, other * scale]
        if not all(abs(value) < 2.0**128 for value in (*scaled, sum(scaled))):
            scale, skipped, bad, good = scale / 2.0, skipped + 1, bad + 1, 0
        else:
            moment = moment * 0.5 + (one + other) / (2.0 if mean else 1.0)
            weight, bad, good = weight - 0.5 * moment, 0, good + 1
            if good == WINDOW:
                scale, good = scale * 2.0, 0
        rows.append([weight, moment, scale, skipped, bad, good])
    return rows


if __name__ == "__main__":
    if sys.argv[1:]:
        build.FIRST_LOSS_SCALE = 2.0**24
        sys.exit(cli.main(sys.argv[1:]))
    init()
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        context.set_context(mode=mode)
        for mean in (True, False):
            assert (found := made(mean)) == (expected := simulated(mean)), (mode, mean, found, expected)
            assert expected[-1][3] == 4
    done = world().gathered(get_rank())
    if get_rank() == 0:
        print(f"done: {done}", flush=True)

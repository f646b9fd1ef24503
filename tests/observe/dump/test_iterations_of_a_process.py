"""Iterations count on over all trainings, evaluations and calls of a process, and each graph has its number."""

import os
from contextlib import closing

import numpy as np
import pytest

from runner import Tensor, context, nn
from runner.dataset import NumpySlicesDataset
from runner.observe.dump.dumper import Dumper
from runner.observe.dump.settings import DumpSettings, Iterations
from runner.train import Model

MODES = [context.GRAPH_MODE, context.PYNATIVE_MODE]


def model() -> Model:
    network = nn.Dense(6, 3)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(network, loss, nn.Momentum(network.trainable_params(), 0.1, 0.9), metrics={"accuracy"})


def data():
    return NumpySlicesDataset((np.ones((8, 6), np.float32), np.zeros(8, np.int32))).batch(4)


def work(sunk: bool) -> None:
    """Two steps, two batches of an evaluation, a prediction, a call, and two steps of another model."""
    first = model()
    first.train(1, data(), dataset_sink_mode=sunk)
    first.eval(data())
    first.predict(Tensor(np.ones((4, 6), np.float32)))
    nn.Dense(6, 3)(Tensor(np.ones((4, 6), np.float32)))
    model().train(1, data(), dataset_sink_mode=sunk)


@pytest.mark.parametrize("mode", MODES)
def test_a_synchronous_dump_has_all_iterations_of_a_process(tmp_path, mode):
    context.set_context(mode=mode)
    with closing(Dumper(DumpSettings("sync", tmp_path, "net"))) as dumper, context.observing(dumper):
        work(sunk=False)
    place = tmp_path / "net" / "0"
    assert sorted(p.name for p in place.glob("iteration_*")) == [f"iteration_{k}" for k in range(8)]
    operators = [len(list((place / f"iteration_{k}").iterdir())) for k in range(8)]
    assert operators[0] == operators[1] == operators[6] == operators[7] > operators[2] == operators[3] > operators[4]
    # training, evaluation, prediction, call, second training: inputs of equal types are no reason to be one graph
    assert sorted(os.listdir(place / "execution_order")) == [f"ms_execution_order_graph_{k}.csv" for k in range(5)]


@pytest.mark.parametrize("mode", MODES)
def test_an_asynchronous_dump_has_those_that_it_selects(tmp_path, mode):
    context.set_context(mode=mode)
    settings = DumpSettings("async", tmp_path, "net", Iterations.parse("1|3|5-7"))
    with closing(Dumper(settings)) as dumper, context.observing(dumper):
        work(sunk=True)
    found = {int(p.name): int(p.parent.name) for p in (tmp_path / "0").glob("net_graph_*/*/*")}
    assert found == {1: 0, 3: 1, 5: 2, 6: 3, 7: 3}  # graphs by iteration; that of the prediction is not selected


@pytest.mark.parametrize("mode", MODES)
def test_a_training_that_goes_on_keeps_the_numbers_of_its_steps(tmp_path, mode):
    context.set_context(mode=mode)
    with closing(Dumper(DumpSettings("sync", tmp_path, "net"))) as dumper, context.observing(dumper):
        model().train(3, data(), dataset_sink_mode=False, first_step=4)
    assert sorted(p.name for p in (tmp_path / "net" / "0").glob("iteration_*")) == ["iteration_4", "iteration_5"]

"""Pipelines of functions feed a training: the same numbers in both modes, sunk or not, and after a resume."""

import numpy as np
import pytest

import runner.dataset as ds
import runner.dataset.vision.c_transforms as CV
from runner import Model, context, nn, set_seed
from runner.device import Device
from runner.train.callback import Callback

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 6, 6, 1)).astype(np.uint8)


class Losses(Callback):
    def __init__(self):
        self.losses = []

    def step_end(self, run_context):
        self.losses += run_context.original_args().losses.tolist()


def of_rows():
    """Functions and random transforms of rows, batched last."""
    data = ds.NumpySlicesDataset({"image": IMAGES, "label": np.arange(24) % 3})
    data = data.map([CV.RandomCrop(4), lambda image: image / 255.0], "image", num_parallel_workers=2)
    return (
        data.filter(lambda label: label != 1, ["label"]).map(lambda x: x.astype(np.int64), "label").shuffle(16).batch(5)
    )


def of_batches():
    """Functions of whole batches, shuffled as batches; the last one is short."""
    data = ds.GeneratorDataset(list(zip(IMAGES, np.arange(24) % 3, strict=True)), ["image", "label"])
    data = data.map(CV.RandomCrop(4), "image").batch(5)
    return data.map(lambda images: images * (1 / 255.0), "image").shuffle(5).repeat(2)


def train(make, mode, sink, epochs=3, first_step=0, parameters=None):
    set_seed(3)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(16, 3, weight_init="he_uniform"))
    for parameter in net.get_parameters() if parameters else ():
        parameter.set_data(parameters[parameter.name])
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss, nn.SGD(net.trainable_params(), 0.05), mode=mode, device=Device(threads=1))
    seen = Losses()
    model.train(epochs, make(), seen, sink, first_step=first_step)
    return seen.losses, {p.name: p.asnumpy().copy() for p in net.get_parameters()}


@pytest.mark.parametrize("make", [of_rows, of_batches])
def test_modes_sinks_and_resumed_runs_agree(make):
    expected, final = train(make, context.PYNATIVE_MODE, False)
    assert len(expected) == 3 * make().get_dataset_size()
    for sink in (False, True):
        losses, parameters = train(make, context.GRAPH_MODE, sink)
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        for name, value in parameters.items():
            np.testing.assert_allclose(value, final[name], rtol=1e-4, atol=1e-6)
    steps = make().get_dataset_size()
    _, middle = train(make, context.PYNATIVE_MODE, False, epochs=1)
    rest, resumed = train(make, context.PYNATIVE_MODE, False, first_step=steps, parameters=middle)
    assert rest == expected[steps:]
    assert all((resumed[name] == final[name]).all() for name in final)

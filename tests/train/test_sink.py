"""Sinking changes how often host and device meet, and not one bit of the numbers."""

import threading

import numpy as np
import pytest

from runner import Model, context, dtype, nn, set_seed
from runner.core.trace import trace
from runner.dataset import DigitsDataset, NumpySlicesDataset, open_dataset
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision import c_transforms as CV
from runner.device import Device
from runner.train.callback import Callback
from runner.train.sink import CallLength, Sink, _stacked, on_device
from runner.types import TensorType


class Losses(Callback):
    """Keeps the losses of all steps, and how many steps each event told of."""

    def __init__(self):
        self.losses, self.events = [], []

    def step_end(self, run_context):
        seen = run_context.original_args()
        self.losses += seen.losses.tolist()
        self.events.append(len(seen.losses))


class Halved(Transform):
    """A user's transform that no operator does."""

    def infer(self, sample):
        return sample.with_dtype(dtype.float32)

    def __call__(self, batch):
        return batch / np.float32(2)


def small_network():
    convolution = nn.Conv2d(1, 4, 3, weight_init="he_uniform")
    dense = nn.Dense(4 * 4 * 4, 10, weight_init="he_uniform")
    return nn.SequentialCell(convolution, nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dropout(0.8), dense)


def digits(one_hot=None, **settings):
    return open_dataset(image_size=8, **settings, train=True, one_hot=one_hot)


def train(dataset, sink, sink_size, epochs, max_steps=None):
    set_seed(3)
    net = small_network()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = Model(net, loss, optimizer, mode=context.GRAPH_MODE, device=Device(threads=1))
    seen = Losses()
    model.train(epochs, dataset, seen, sink, sink_size, max_steps=max_steps)
    parameters = {p.name: p.array.tobytes() for p in model.train_network.get_parameters()}
    return seen, parameters, model


@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize(("sink_size", "epochs"), [(-1, 3), (7, 13), (44, 2), (50, 2), (1, 20)])
def test_a_sunk_run_equals_the_unsunk_one_bit_for_bit(sink_size, epochs, drop_remainder):
    dataset = digits(drop_remainder=drop_remainder)
    steps = epochs * (dataset.get_dataset_size() if sink_size == -1 else sink_size)
    unsunk, expected, _ = train(dataset, False, -1, 99, max_steps=steps)
    sunk, made, model = train(dataset, True, sink_size, epochs)
    assert len(sunk.losses) == steps
    assert sunk.losses == unsunk.losses
    assert made == expected
    assert unsunk.events == [1] * steps
    assert len(sunk.events) == epochs
    if drop_remainder:
        assert model.steps.interactions == epochs  # host and device meet once per epoch


def test_the_batches_of_a_sink_continue_where_the_last_one_ended():
    dataset = digits()
    visited = []
    sink = Sink(small_network(), Device(threads=1), dataset)
    for _ in range(10):
        visited.append(next(sink._visits))
    sink.rewind(4)
    assert np.array_equal(next(sink._visits), visited[4])
    sink.rewind(dataset.get_dataset_size() + 2)
    assert np.array_equal(next(sink._visits), dataset.visits(1)[2])


def test_transforms_without_operators_are_fed_in_stacked_batches(monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 9, (100, 1, 8, 8)).astype(np.uint8)
    labels = rng.integers(0, 10, 100).astype(np.int32)
    dataset = NumpySlicesDataset((images, labels), ["image", "label"]).map(Halved(), "image").batch(8)
    assert not on_device(dataset)
    unsunk, expected, _ = train(dataset, False, -1, 9, max_steps=30)
    monkeypatch.setattr("runner.train.sink.CHUNK_BYTES", 8 * 8 * 8 * 4 * 5)
    sunk, made, model = train(dataset, True, 30, 1)
    assert (sunk.losses, made) == (unsunk.losses, expected)
    # Four batches fit at a time; an epoch is twelve of them and a short one: 3 + 1, 3 + 1, and 1 for the last four.
    assert model.steps.interactions == 9


@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize(("batches", "sink_size", "epochs"), [(4, -1, 3), (4, 17, 2), (100, 25, 1)])
def test_random_transforms_sink_bit_for_bit(monkeypatch, batches, sink_size, epochs, drop_remainder):
    """With chunks that end inside of an epoch, and with one chunk of more than two epochs."""
    settings = {"image_size": 8, "augment": True, "num_samples": 10 * 16 + 5, "batch_size": 16}
    dataset = open_dataset("synthetic", drop_remainder=drop_remainder, **settings, train=True)
    size = dataset.get_dataset_size()
    steps = epochs * (size if sink_size == -1 else sink_size)
    assert not on_device(dataset)
    unsunk, expected, _ = train(dataset, False, -1, 99, max_steps=steps)
    monkeypatch.setattr("runner.train.sink.CHUNK_BYTES", batches * 16 * (64 * 4 + 4))
    sunk, made, model = train(dataset, True, sink_size, epochs)
    assert (sunk.losses, made) == (unsunk.losses, expected)
    if batches == 100 and drop_remainder:
        assert model.steps.interactions == 1
    plain = open_dataset("synthetic", **{**settings, "augment": False}, train=True)
    assert train(plain, False, -1, 99, max_steps=steps)[0].losses != unsunk.losses
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sink")]


def test_a_chunk_gives_each_row_the_epoch_it_belongs_to():
    dataset = open_dataset("synthetic", image_size=8, augment=True, num_samples=64, train=True)
    visits = np.stack([next(steps) for steps in [dataset.visits_from(1)] for _ in range(4)])
    image, label = _stacked(dataset, visits)
    expected = [*list(dataset.read(0))[1:], *dataset.read(1), *list(dataset.read(2))[:1]]
    assert len(expected) == 4
    for k, (images, labels) in enumerate(expected):
        assert np.array_equal(image[k], images)
        assert np.array_equal(label[k], labels)


def test_operators_of_a_sunk_step_carry_the_reference_s_scopes():
    _, _, model = train(digits(), True, 2, 1)
    names = [node.name for node in model.programs[0].graph.nodes]
    assert names[0].startswith("Default/network-TrainOneStepCell/network-WithLossCell/_backbone-SequentialCell/")
    assert any(
        name.startswith("Default/network-TrainOneStepCell/optimizer-Momentum/ApplyMomentum-op") for name in names
    )


def test_a_model_that_trains_twice_on_one_dataset_compiles_once():
    dataset = digits()
    _, _, model = train(dataset, True, 5, 1)
    first = model.programs[0]
    model.train(1, dataset, None, True, 5)
    assert model.programs == [first]


class Leaver(Callback):
    """Wants to leave after its first look, and notes where the sink was left."""

    def __init__(self):
        self.asked, self.left = 0, []

    def wants_to_leave(self):
        self.asked += 1
        return self.asked == 3

    def sink_left(self, run_context):
        self.left.append(run_context.original_args().cur_step_num)


def test_a_sink_that_takes_long_is_several_calls_and_can_be_left(monkeypatch):
    dataset = digits()
    whole, expected, _ = train(dataset, True, 30, 1)
    monkeypatch.setattr("runner.train.sink.CALL_SECONDS", 1e-9)  # every step is a call now
    set_seed(3)
    net = small_network()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = Model(net, loss, optimizer, mode=context.GRAPH_MODE, device=Device(threads=1))
    leaver, seen = Leaver(), Losses()
    model.train(1, dataset, [leaver, seen], True, 30)
    assert leaver.left == [3]
    assert model.steps.interactions == 30
    assert seen.events == [30]  # its end reports the whole sink, also the steps before it was left
    assert seen.losses == whole.losses
    assert {p.name: p.array.tobytes() for p in model.train_network.get_parameters()} == expected


class Quitter(Leaver):
    """Wants to leave at once."""

    def wants_to_leave(self):
        return True


def test_the_first_call_of_a_sink_is_short_however_small_the_network_is():
    """A signal is handled between two calls; the first one was sized by the elements of the graph alone."""
    set_seed(3)
    net = nn.Dense(4, 2)
    images, labels = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    dataset = NumpySlicesDataset((images, labels), ["image", "label"]).batch(4)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = Model(net, loss, optimizer, mode=context.GRAPH_MODE, device=Device(threads=1))
    quitter = Quitter()
    model.train(1, dataset, quitter, True, 200_000, max_steps=200_000)
    assert 0 < quitter.left[0] < 10_000


def test_calls_take_their_length_from_the_last_one():
    length, graph = CallLength(), trace(lambda x: x + x, [TensorType(dtype.float32, (4,))], "sum")
    first = length.steps(4, graph)
    assert 100 < first <= 25_000
    length.record(4, steps=first, seconds=first * 0.01)
    assert length.steps(4, graph) == 100
    assert length.steps(8, graph) == first  # another batch size has its own program
    assert (length.is_short(100), length.is_short(102)) == (True, False)
    length.record(4, steps=100, seconds=500)
    assert length.steps(4, graph) == 1


def test_rows_of_zeros_with_a_one_are_made_on_the_device():
    dataset = digits(one_hot=10)
    assert on_device(dataset)
    (label,) = [
        kind for name, kind in zip(dataset.get_col_names(), dataset.column_types(), strict=True) if name == "label"
    ]
    assert (label.dtype, label.shape) == (dtype.float32, (32, 10))
    assert np.array_equal(dataset.fetch(np.arange(5))[1].argmax(1), digits().fetch(np.arange(5))[1])
    results = []
    for sink in (True, False):
        set_seed(3)
        net = small_network()
        optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=False, reduction="mean")
        model = Model(net, loss, optimizer, mode=context.GRAPH_MODE, device=Device(threads=1))
        seen = Losses()
        model.train(1, dataset, seen, sink, 20 if sink else -1, max_steps=20)
        results.append(seen.losses)
    assert results[0] == results[1]


def test_transforms_without_operators_are_applied_on_the_host():
    """Bit for bit as without a sink; deterministic ones that keep the type are applied once, before the upload."""
    steps = [CV.Invert(), CV.RandomResizedCrop((8, 8)), CV.RandomRotation(10), CV.Rescale(1 / 255, 0.0), CV.HWC2CHW()]
    for left, fits in ((steps, False), ([CV.Invert(), *steps[3:]], True)):
        dataset = DigitsDataset("train", num_samples=96).map(left, "image").batch(32)
        assert on_device(dataset) == fits
        unsunk, expected, _ = train(dataset, False, -1, 99, max_steps=6)
        sunk, made, _ = train(dataset, True, -1, 2)
        assert (sunk.losses, made) == (unsunk.losses, expected)


def test_data_that_is_too_large_for_the_device_is_fed_in_chunks(monkeypatch, tmp_path):
    """Here from a file that is mapped into memory, as data larger than the memory would be."""
    images, labels = digits(drop_remainder=True).fetch(np.arange(320))
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    dataset = NumpySlicesDataset((mapped, labels), ["image", "label"]).shuffle(100).batch(32)
    assert on_device(dataset)
    resident, expected, _ = train(dataset, True, 25, 1)
    monkeypatch.setattr("runner.train.sink.RESIDENT_BYTES", 1000)
    monkeypatch.setattr("runner.train.sink.CHUNK_BYTES", 3 * 32 * (64 * 4 + 4))
    assert not on_device(dataset)
    chunked, made, model = train(dataset, True, 25, 1)
    assert (chunked.losses, made) == (resident.losses, expected)
    assert model.steps.interactions == 9  # three batches at a time

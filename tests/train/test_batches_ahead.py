"""Training step by step with batches prepared by threads: equal numbers, and no thread that outlives it."""

import threading

import numpy as np
import pytest

from runner import Model, context, nn, set_seed
from runner.dataset import open_dataset
from runner.dataset.prefetch import MIN_THREADED_VALUES
from runner.device import Device
from runner.train.callback import Callback

MODES = [context.GRAPH_MODE, context.PYNATIVE_MODE]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("runner-dataset")]


def dataset(workers: int = 2, **settings):
    settings = {"image_size": 8, "num_samples": 80, "batch_size": 16, "augment": True, **settings}
    return open_dataset("synthetic", num_parallel_workers=workers, **settings, train=True)


def model(mode: int) -> Model:
    set_seed(3)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 10, weight_init="he_uniform"))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    return Model(net, loss, optimizer, {"accuracy"}, mode=mode, device=Device(threads=1))


class Seen(Callback):
    """Keeps losses and the number of threads; does what it is told after a step."""

    def __init__(self, then=lambda number, run_context: None):
        self.losses, self.threads, self.then = [], [], then

    def step_end(self, run_context):
        self.losses.append(float(run_context.original_args().net_outputs))
        self.threads.append(len(threads()))
        self.then(len(self.losses), run_context)


@pytest.mark.parametrize("mode", MODES)
def test_workers_change_no_bit(mode):
    made = []
    for workers in (1, 2, 5):
        seen = Seen()
        model(mode).train(3, dataset(workers), seen, dataset_sink_mode=False)
        made.append(seen.losses)
        assert len(seen.losses) == 15
        assert (max(seen.threads) > 0) == (workers > 1)
        assert threads() == []
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_goes_on_sees_the_same_batches(mode):
    whole = Seen()
    model(mode).train(4, dataset(), whole, dataset_sink_mode=False)
    for first in (1, 5, 7):
        parted = model(mode)
        before, after = Seen(), Seen()
        parted.train(4, dataset(), before, dataset_sink_mode=False, max_steps=first)
        parted.train(4, dataset(), after, dataset_sink_mode=False, first_step=first)
        assert before.losses + after.losses == whole.losses


class Failure(Exception):
    pass


def fail(number, run_context):
    if number == 2:
        raise Failure


def interrupt(number, run_context):
    if number == 2:
        raise KeyboardInterrupt


def stop(number, run_context):
    if number == 2:
        run_context.request_stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("then", "raised"), [(fail, Failure), (interrupt, KeyboardInterrupt), (stop, None)])
def test_no_thread_outlives_training(mode, then, raised):
    seen = Seen(then)
    if raised is None:
        model(mode).train(9, dataset(), seen, dataset_sink_mode=False)
    else:
        with pytest.raises(raised):
            model(mode).train(9, dataset(), seen, dataset_sink_mode=False)
    assert seen.threads[-1] > 0
    assert len(seen.losses) == 2
    assert threads() == []


class Leaver(Callback):
    """Raises in the second step, when batches are under way."""

    def __init__(self, error):
        self.error, self.threads = error, 0

    def step_end(self, run_context):
        if run_context.original_args().cur_step_num == 2:
            self.threads = len(threads())
            raise self.error


@pytest.mark.parametrize("error", [Failure, KeyboardInterrupt])
def test_no_thread_outlives_an_evaluation(error):
    leaver = Leaver(error)
    with pytest.raises(error):
        model(context.PYNATIVE_MODE).eval(dataset(), leaver)
    assert leaver.threads > 0
    assert threads() == []


def test_an_error_while_a_batch_is_prepared_ends_the_training_with_its_text(monkeypatch):
    def broken(self, batch, visits):
        raise ArithmeticError(f"no image for rows {visits.rows[:2].tolist()}")

    data = dataset()
    monkeypatch.setattr("runner.dataset.vision.array_transforms.RandomHorizontalFlip.apply", broken)
    trained = model(context.PYNATIVE_MODE)
    first = data.batches(0)[0][:2].tolist()
    with pytest.raises(ArithmeticError) as caught:
        trained.train(1, data, None, dataset_sink_mode=False)
    assert str(caught.value) == f"no image for rows {first}"
    assert threads() == []


def test_the_usual_small_case_has_no_thread_and_cifar_has_one(monkeypatch):
    requested = []
    monkeypatch.setattr("runner.dataset.pipeline.prefetch_batches", lambda *given: requested.append(given[2]))
    open_dataset(train=True).read(0)
    open_dataset("synthetic", num_samples=64, augment=True, train=True).read(0)
    shape = {"name": "synthetic", "num_samples": 64, "image_size": 64, "augment": True}
    assert np.prod(open_dataset(**shape, train=True).output_shapes()[0]) * 4 > MIN_THREADED_VALUES
    open_dataset(**shape, train=True).read(0)
    assert requested == [0, 0, 1]

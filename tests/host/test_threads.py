"""Threads of numpy's kernels: the BLAS has one, large work is divided, and no bit depends on how many compute."""

import threading
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from runner import Model, context, nn, set_seed
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.host import threads
from runner.host.threads import in_order, kernel_threads
from runner.ops.matrices import blocked_product
from runner.train.callback import Callback

MANY = threads.THREADED_FLOPS


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def here(part):
    return part, threading.current_thread().name


def test_the_blas_has_one_thread_inside_and_its_own_number_outside():
    before = blas_threads()
    with kernel_threads(3):
        assert blas_threads() <= {1}
        with kernel_threads(3), kernel_threads(2):
            assert blas_threads() <= {1}
        assert blas_threads() <= {1}
    assert blas_threads() == before


def test_many_operations_are_divided_and_come_back_in_order():
    with kernel_threads(2):
        found = list(in_order(here, range(50), MANY))
    assert [part for part, _ in found] == list(range(50))
    assert all(name.startswith("runner-kernel") for _, name in found)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("runner-kernel")]


@pytest.mark.parametrize(("count", "parts", "flops"), [(1, 9, MANY), (4, 1, MANY), (4, 9, MANY - 1), (None, 9, MANY)])
def test_little_work_stays_in_the_thread(count, parts, flops):
    if count is None:
        found = list(in_order(here, range(parts), flops))
    else:
        with kernel_threads(count):
            found = list(in_order(here, range(parts), flops))
    assert found == [(part, threading.current_thread().name) for part in range(parts)]


def test_an_error_in_a_part_is_raised_and_ends_the_rest():
    done = []

    def fail(part):
        done.append(part)
        if part == 3:
            raise MemoryError(part)

    with kernel_threads(2):
        with pytest.raises(MemoryError, match="3"):
            list(in_order(fail, range(1000), MANY))
        assert len(done) < 20  # twice the threads are ahead
        assert list(in_order(str, range(3), MANY)) == ["0", "1", "2"]


def test_overflow_in_a_part_is_silent_as_in_the_step():
    with kernel_threads(2), warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        assert list(in_order(lambda part: np.float32(3e38) * part, [np.float32(10)] * 4, MANY)) == [np.inf] * 4


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(3000, 130, 70), (70, 130, 3000), (1, 9_000_000, 1), (900, 0, 2)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_in_blocks_are_those_of_float64_with_any_number_of_threads(rows, inner, columns, transposed):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, inner), np.float32), rng.standard_normal((inner, columns), np.float32)
    if transposed:
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    results = [blocked_product(a, b)]
    for count in (1, 2, 3):
        with kernel_threads(count):
            results.append(blocked_product(a, b))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert results[0].dtype == np.float32
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-3 * max(1.0, inner**0.5) / 10)
    assert len({result.tobytes() for result in results[1:]}) == 1


class Names(Callback):
    """The names of the threads that exist after a step."""

    def __init__(self):
        self.names = set()

    def step_end(self, run_context):
        self.names |= {thread.name.rpartition("_")[0] for thread in threading.enumerate()}


def trained(count):
    """The parameters after two steps with every kind of convolution, and the names of threads."""
    set_seed(7)
    layers = [nn.Conv2d(8, 48, 3), nn.ReLU(), nn.Conv2d(48, 64, 1), nn.Conv2d(64, 48, 3, stride=2), nn.Flatten()]
    net = nn.SequentialCell(*layers, nn.Dense(48 * 100, 64), nn.Dense(64, 10))
    rng = np.random.default_rng(1)
    images, labels = rng.standard_normal((32, 8, 20, 20), np.float32), rng.integers(0, 10, 32).astype(np.int32)
    dataset = NumpySlicesDataset((images, labels), ["image", "label"]).batch(32)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = Model(net, loss, optimizer, mode=context.PYNATIVE_MODE, device=Device(threads=count))
    seen = Names()
    model.train(2, dataset, seen, dataset_sink_mode=False)
    return {p.name: p.array.tobytes() for p in model.train_network.get_parameters()}, seen.names


def test_a_training_has_the_same_bits_with_any_number_of_threads():
    one, names = trained(1)
    assert "runner-kernel" not in names
    for count in (2, 5):
        several, names = trained(count)
        assert several == one
        assert "runner-kernel" in names

"""Random operators in training: what a step draws follows from seed, training and step, however it is executed."""

import zlib

import numpy as np
import pytest
from tables import table

from runner import Model, Tensor, communication, context, nn, ops, set_seed
from runner.communication.world import World, enter, world
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.train.callback import Callback

GRAPH, PYNATIVE = context.GRAPH_MODE, context.PYNATIVE_MODE
STEPS = 12  # 4 epochs of 3 batches
EXECUTIONS = {"pynative": (PYNATIVE, False, -1), "graph": (GRAPH, False, -1), "sunk": (GRAPH, True, -1)}
EXECUTIONS |= {"sunk-2": (GRAPH, True, 2)}


class Noisy(nn.Cell):
    """Every kind of draw: one operator and several, with seeds and without, dropped elements, channels and classes."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.dropout, self.layer = nn.Dense(4, 6), ops.Dropout(0.8), nn.Dropout(0.9)
        self.normal, self.gamma, self.uniform = ops.StandardNormal(), ops.Gamma(3), ops.UniformReal(1, 2)
        self.channels, self.classes = ops.Dropout2D(0.7), ops.Multinomial()

    def construct(self, x):
        x = self.layer(self.dropout(self.dense(x))[0]) * self.uniform((6,))
        x = x + 0.1 * self.normal(x.shape) + 0.1 * self.gamma((6,), Tensor(2.0), Tensor(0.5))
        x = x * ops.Cast()(self.classes(Tensor([1.0, 1.0, 2.0]), 6), x.dtype)
        return ops.Reshape()(self.channels(ops.Reshape()(x, (-1, 6, 1, 1)))[0], (-1, 6))


class Numbers(nn.Cell):
    """Its loss is a uniform number, which the step draws as its second one."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.uniform = nn.Dense(4, 1), ops.UniformReal(5)

    def construct(self, x, y):
        self.uniform((3,))
        return self.uniform((1,))[0] + 0.0 * self.dense(x).sum()


class Losses(Callback):
    """Keeps the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def step_end(self, run_context):
        self.losses += run_context.original_args().losses.tolist()


def rows() -> NumpySlicesDataset:
    rng = np.random.default_rng(1)
    return NumpySlicesDataset(
        {"x": rng.normal(size=(12, 4)).astype(np.float32), "y": rng.normal(size=(12, 6)).astype(np.float32)},
        shuffle=False,
    ).batch(4)


def model_of(execution: str, network: type[nn.Cell] = Noisy, seed: int = 3) -> Model:
    set_seed(seed)
    net = network()
    loss = None if network is Numbers else nn.MSELoss()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    return Model(
        net, loss, optimizer, {"loss"} if loss else None, mode=EXECUTIONS[execution][0], device=Device(threads=1)
    )


def trained(model: Model, execution: str, steps: int = STEPS, first_step: int = 0, *callbacks: Callback) -> list[float]:
    _, sunk, sink_size = EXECUTIONS[execution]
    kept = Losses()
    model.train(100, rows(), [kept, *callbacks], sunk, sink_size, max_steps=steps, first_step=first_step)
    return kept.losses


def state(model: Model) -> dict[str, np.ndarray]:
    return {p.name: p.array.copy() for p in model.train_network.get_parameters()}


def bytes_of(model: Model) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state(model).items()}


def load(model: Model, arrays: dict[str, np.ndarray]) -> None:
    for p in model.train_network.get_parameters():
        p.set_data(Tensor(arrays[p.name]))


@table("execution", EXECUTIONS)
def test_a_training_that_continues_ends_with_the_same_bytes(execution):
    whole = model_of(execution)
    losses = trained(whole, execution)
    for steps in (1, 4, 9):
        part = model_of(execution)
        before = trained(part, execution, steps)
        saved = state(part)
        assert before + trained(part, execution, first_step=steps) == losses  # in the same process
        assert bytes_of(part) == bytes_of(whole)
        resumed = model_of(execution)
        load(resumed, saved)
        assert before + trained(resumed, execution, first_step=steps) == losses
        assert bytes_of(resumed) == bytes_of(whole)


def test_sinks_change_no_bit():
    unsunk = model_of("graph")
    losses = trained(unsunk, "graph")
    assert len(set(losses)) == STEPS
    for execution in ("sunk", "sunk-2"):
        sunk = model_of(execution)
        assert trained(sunk, execution) == losses
        assert bytes_of(sunk) == bytes_of(unsunk)
    eager = model_of("pynative")
    np.testing.assert_allclose(trained(eager, "pynative"), losses, rtol=2e-5)


def hashed(x: int) -> int:
    """A bijection of 32 bits: two rounds of multiply and shift, written out with Python's whole numbers."""
    for _ in range(2):
        x = (x ^ (x >> 16)) * 0x45D9F3B % 2**32
    return x ^ (x >> 16)


def chained(*parts: int) -> int:
    value = 0
    for part in parts:
        value = hashed((value + part) % 2**32)
    return value


@table("execution", EXECUTIONS)
def test_the_numbers_are_those_of_the_description(execution):
    """docs/design/random-numbers.md: a hash of the operator's seeds, the rank, and the counter of step and draw."""
    origin, stream = chained(3, 0, zlib.crc32(b"step"), 0), chained(5, 0, 0)
    counters = [(origin + step * 0x9E3779B1) % 2**32 + 2 for step in range(7)]
    expected = [(hashed(hashed((counter + stream) % 2**32)) >> 8) / 2**24 for counter in counters]
    assert trained(model_of(execution, Numbers), execution, 7) == expected


@table("execution", EXECUTIONS)
def test_seed_and_training_choose_the_numbers(execution):
    model = model_of(execution, Numbers)
    first = trained(model, execution, 3)
    second = trained(model, execution, 3)
    assert len({*first, *second}) == 6
    set_seed(3)
    assert trained(model, execution, 3) == first  # also where a compiled program exists
    set_seed(4)
    assert not {*trained(model, execution, 3)} & {*first, *second}
    set_seed(3 + 2**32)
    assert not {*trained(model, execution, 3)} & {*first, *second}


class Draws(Callback):
    """Draws between the steps, calls a cell that draws, and evaluates."""

    def __init__(self, model: Model) -> None:
        self.model, self.found = model, []

    def begin(self, run_context):
        self.draw()

    def epoch_end(self, run_context):
        self.draw()
        self.found.append(self.model.eval(rows(), dataset_sink_mode=False)["loss"])

    def draw(self) -> None:
        self.found.append(ops.StandardNormal()((2,)).asnumpy().tolist())
        self.found.append(self.model.predict(np.ones((2, 4), np.float32)).asnumpy().tolist())


@table("execution", EXECUTIONS)
def test_what_callbacks_draw_is_resumed_too_and_changes_no_step(execution):
    plain = model_of(execution)
    losses = trained(plain, execution)
    observed = model_of(execution)
    draws = Draws(observed)
    assert trained(observed, execution, STEPS, 0, draws) == losses
    assert bytes_of(observed) == bytes_of(plain)
    part = model_of(execution)
    trained(part, execution, 6)
    resumed = model_of(execution)
    load(resumed, state(part))
    after = Draws(resumed)
    ops.StandardNormal()((3,))  # whatever the process has drawn before
    trained(resumed, execution, STEPS, 6, after)  # it fires the end of the epoch again
    assert after.found[2:] == draws.found[2 - len(after.found) :]
    normal = [str(x) for x in draws.found[2::3]]
    assert len({*normal}) == len(normal) == (6 if execution == "sunk-2" else 4)


@table("mode", [GRAPH, PYNATIVE])
def test_evaluations_draw_the_same_and_leave_direct_calls_as_they_were(mode):
    set_seed(2)
    net = Noisy()
    model = Model(net, nn.MSELoss(), metrics={"loss"}, mode=mode, device=Device(threads=1))
    first = model.eval(rows(), dataset_sink_mode=False)
    draws = [ops.StandardNormal()((3,)).asnumpy().tolist() for _ in range(2)]
    assert model.eval(rows(), dataset_sink_mode=False) == first
    draws.append(ops.StandardNormal()((3,)).asnumpy().tolist())
    set_seed(2)
    again = [ops.StandardNormal()((3,)).asnumpy().tolist() for _ in range(3)]
    assert draws == again
    assert len({str(x) for x in draws}) == 3


class Rank(World):
    """One rank of two."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank


@pytest.fixture
def _alone():
    before = world()
    yield
    enter(before)


@pytest.mark.usefixtures("_alone")
@table("execution", EXECUTIONS)
def test_each_rank_has_its_numbers(execution):
    found = []
    for rank in (0, 1):
        enter(Rank(rank))
        assert communication.get_rank() == rank
        found.append(trained(model_of(execution, Numbers), execution, 3))
    assert not {*found[0]} & {*found[1]}
    enter(World())
    assert trained(model_of(execution, Numbers), execution, 3) == found[0]

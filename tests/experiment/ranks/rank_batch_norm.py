"""Run by mpirun: batch normalisation over all ranks, against its definition over the whole batch in Float64.

Ranks have parts of different sizes of a batch whose mean is far from 0.
"""

import numpy as np

from runner import Parameter, Tensor, context, nn, ops
from runner.communication import get_group_size, get_rank, init
from runner.communication.world import world
from runner.core.gradients import gradients
from runner.nn.steps import EagerStep, GraphStep

EPSILON, MOMENTUM = 1e-3, 0.75
ROWS = 5  # of the first rank; each further rank has one row more


def batch(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """x and the gradient of y, of all ranks, Float64."""
    rows = sum(ROWS + rank for rank in range(get_group_size()))
    rng = np.random.default_rng(3)
    return rng.normal(50.0, 2.0, (rows, *shape)), rng.normal(size=(rows, *shape))


def part(rows: np.ndarray) -> np.ndarray:
    """The rows of this rank."""
    begin = sum(ROWS + rank for rank in range(get_rank()))
    return rows[begin : begin + ROWS + get_rank()]


def expected(x: np.ndarray, dout: np.ndarray, gamma: np.ndarray) -> list[np.ndarray]:
    """y, dx of this rank, dgamma and dbeta of this rank, moving mean and variance: from the definition."""
    axes, spread = tuple(k for k in range(x.ndim) if k != 1), (1, -1) + (1,) * (x.ndim - 2)
    mean, variance = x.mean(axes), x.var(axes)
    inverse = 1 / np.sqrt(variance + EPSILON)
    hat = (x - mean.reshape(spread)) * inverse.reshape(spread)
    along, shift = (dout * hat).mean(axes), dout.mean(axes)
    dx = (gamma * inverse).reshape(spread) * (dout - shift.reshape(spread) - hat * along.reshape(spread))
    own = part(dout) * part(hat)
    moving = (1 - MOMENTUM) * mean, MOMENTUM + (1 - MOMENTUM) * x.var(axes, ddof=1)
    return [part(gamma.reshape(spread) * hat), part(dx), own.sum(axes), part(dout).sum(axes), *moving]


class OfOperators(nn.Cell):
    """The operators, which compute in Float64 what they get in Float64."""

    def __init__(self, x: np.ndarray, gamma: np.ndarray) -> None:
        super().__init__()
        zeros = np.zeros(len(gamma))
        self.x, self.gamma, self.beta = Parameter(x, "x"), Parameter(gamma, "gamma"), Parameter(zeros, "beta")

    def normalized(self) -> tuple:
        moving = [Tensor(start(len(self.gamma.asnumpy()))) for start in (np.zeros, np.ones)]
        return ops.SyncBatchNorm(True, EPSILON, 1.0 - MOMENTUM)(self.x, self.gamma, self.beta, *moving)[:3]

    def construct(self, dout):
        y, *moving = self.normalized()
        loss = ops.ReduceSum()(y * dout)
        return (y, *gradients(loss, [self.x, self.gamma, self.beta]), *moving)


class OfLayer(nn.Cell):
    """A layer, in Float32; its moving statistics are parameters."""

    def __init__(self, x: np.ndarray, gamma: np.ndarray, layer: nn.Cell) -> None:
        super().__init__()
        self.x, self.layer = Parameter(x.astype(np.float32), "x"), layer
        layer.gamma.set_data(gamma.astype(np.float32))
        self.set_train()

    def construct(self, dout):
        y = self.layer(self.x)
        loss = ops.ReduceSum()(y * dout)
        return (y, *gradients(loss, [self.x, self.layer.gamma, self.layer.beta]))


def layers(channels: int, ndim: int) -> list[nn.Cell]:
    options = {"eps": EPSILON, "momentum": MOMENTUM}
    every = [list(range(get_group_size()))]
    return [
        (nn.BatchNorm2d if ndim == 4 else nn.BatchNorm1d)(channels, **options),
        nn.SyncBatchNorm(channels, **options, process_groups=every),
        nn.GlobalBatchNorm(channels, **options, device_num_each_group=get_group_size()),
    ]


def ran(cell: nn.Cell, mode: str, dout: np.ndarray) -> list[np.ndarray]:
    step = EagerStep(cell, "step") if mode == "pynative" else GraphStep(cell, context.device(), "step")
    return step([dout])


def compare(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float, note: object) -> None:
    assert len(found) == len(wanted)
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        error = float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max())
        assert error < tolerance, (note, k, error)


def all_layers() -> None:
    for shape in ((3,), (2, 4, 3)):
        (x, dout), gamma = batch(shape), np.linspace(0.5, 2.0, shape[0])
        wanted = expected(x, dout, gamma)
        for mode in ("pynative", "graph"):
            compare(ran(OfOperators(part(x), gamma), mode, part(dout)), wanted, 1e-12, (shape, mode))
            for layer in layers(shape[0], x.ndim):
                found = ran(OfLayer(part(x), gamma, layer), mode, part(dout).astype(np.float32))
                moving = [layer.moving_mean.asnumpy(), layer.moving_variance.asnumpy()]
                compare([*found, *moving], wanted, 2e-5, (shape, mode, type(layer).__name__))
                same = world().all_gathered([array.tolist() for array in moving])
                assert all(one == same[0] for one in same)


def inference_is_local() -> None:
    """One rank evaluates, as the first rank does: it does not wait for the others."""
    if get_rank() == 0:
        layer = nn.SyncBatchNorm(3, use_batch_statistics=True).set_train(False)
        layer(np.ones((2, 3), np.float32))


if __name__ == "__main__":
    init()
    context.set_auto_parallel_context(parallel_mode="data_parallel")
    world().is_even = False
    all_layers()
    inference_is_local()
    done = world().gathered(get_rank())
    if get_rank() == 0:
        print(f"done: {done}", flush=True)

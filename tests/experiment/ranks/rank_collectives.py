"""Run by mpirun: every exchange, against what each rank can compute of all others by itself."""

import sys
from collections.abc import Sequence

import numpy as np

from runner import Model, context, nn, ops, set_seed
from runner.communication import get_group_size, get_rank, init
from runner.communication.world import IsolatedRankError, isolated, world
from runner.dataset import NumpySlicesDataset

SMALL = (5, 3), (), (1001,)
LARGE = ((5_000_003,),)  # of several segments, the last one short


def of_rank(rank: int, shapes: Sequence[tuple[int, ...]] = SMALL) -> list[np.ndarray]:
    """Arrays, of sizes that the ranks do not divide, whose sums depend on the order."""
    rng = np.random.default_rng(rank)
    return [(rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4)).astype(np.float32) for shape in shapes]


def in_order(size: int, shapes: Sequence[tuple[int, ...]] = SMALL, first: int = 0, step: int = 1) -> list[np.ndarray]:
    """The sum of a tree: that of the ranks at even places, plus that of those at odd ones, and so on within both."""
    count = len(range(first, size, step))
    if count == 1:
        return of_rank(first, shapes)
    if count == 3:  # the last one has no partner
        outer = [a + b for a, b in zip(of_rank(first, shapes), of_rank(first + 2 * step, shapes), strict=True)]
        return [a + b for a, b in zip(outer, of_rank(first + step, shapes), strict=True)]
    halves = [in_order(size, shapes, place, 2 * step) for place in (first, first + step)]
    return [a + b for a, b in zip(*halves, strict=True)]


def large_sums() -> None:
    """Two buckets that have begun end in any order, and again in the memory of the first time."""
    shapes = LARGE + SMALL
    arrays, more = of_rank(get_rank(), shapes), of_rank(get_rank() + 1, LARGE)
    before = [a.copy() for a in arrays]
    for _ in range(2):
        world().begin(arrays)
        world().begin(more)
        second, first = world().summed(more), world().summed(arrays)
        assert [a.tobytes() for a in first] == [a.tobytes() for a in in_order(get_group_size(), shapes)]
        assert second[0].tobytes() != first[0].tobytes()
        kept = [a.copy() for a in first]
        world().summed(arrays)
        assert [a.tobytes() for a in first] == [a.tobytes() for a in kept]  # results are nobody else's memory
    assert [a.tobytes() for a in arrays] == [a.tobytes() for a in before]


def exchanges() -> None:
    rank, size = get_rank(), get_group_size()
    arrays, expected = of_rank(rank), in_order(size)
    for early in (False, True):
        if early:
            world().begin(arrays)
        made = world().summed(arrays)
        assert [a.tobytes() for a in made] == [np.asarray(a).tobytes() for a in expected], early
        assert [a.shape for a in made] == [(5, 3), (), (1001,)]
    assert world().gathered(rank * rank) == [k * k for k in range(size)]
    for by in range(size):
        assert world().shared({"rank": rank, "ä": [rank * "x", None]}, by) == {"rank": by, "ä": [by * "x", None]}
    assert world().shared(rank) == 0
    if rank == 1:
        with isolated():  # the others need not know
            assert (get_rank(), get_group_size()) == (rank, size)
            world().begin(arrays)
            assert raised(world().summed, arrays) is IsolatedRankError
    for a, b in zip(world().shared_arrays(arrays), of_rank(0), strict=True):
        assert a.tobytes() == b.tobytes()


def raised(function, *arguments: object) -> type[Exception] | None:
    try:
        function(*arguments)
    except Exception as error:
        return type(error)
    return None


def trained(**settings: object) -> np.ndarray:
    """The weights of a script that trains, on every rank with its own shard and its own start."""
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="data_parallel", **settings)
    set_seed(1 + get_rank())
    net = nn.Dense(4, 1)
    rows = np.arange(64, dtype=np.float32).reshape(16, 4) / 64
    columns = {"x": rows, "y": rows.sum(axis=1, keepdims=True)}
    data = NumpySlicesDataset(columns, num_shards=get_group_size(), shard_id=get_rank()).batch(2)
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    model.train(2, data, dataset_sink_mode=False)
    return np.concatenate([p.array.ravel() for p in net.trainable_params()])


def scripts() -> None:
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        context.set_context(mode=mode)
        weights = trained(parameter_broadcast=True, gradients_mean=True)
        assert world().shared(weights.tolist()) == weights.tolist()
        apart = trained(gradients_mean=True)  # each from its own start: the same updates, but other weights
        assert (world().shared(apart.tolist()) == apart.tolist()) == (get_rank() == 0)


def draws() -> None:
    """Each rank has its own numbers, and those again after the same seed."""
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        context.set_context(mode=mode)
        found = []
        for _ in range(2):
            set_seed(4)
            found.append(ops.UniformReal()((3,)).asnumpy().tolist())
        assert found[0] == found[1]
        of_ranks = world().all_gathered(found[0])
        assert len({*map(tuple, of_ranks)}) == get_group_size()


if __name__ == "__main__":
    init()
    exchanges()
    large_sums()
    scripts()
    draws()
    if sys.argv[1:] == ["raise"] and get_rank() == 1:
        raise RuntimeError("only here")
    done = world().gathered(get_rank())
    if get_rank() == 0:  # only one: lines of several ranks may arrive mixed
        print(f"done: {done}", flush=True)

"""Random tensors: the same in both modes, other ones in every step, and with the moments of their distribution."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from scipy import stats
from tables import table

from runner import dtype as dt, nn, ops
from runner.context import set_context
from runner.core.values import Tensor
from runner.errors import RunnerError
from runner.host.seed import set_seed

COUNT = 40_000
ROWS = {
    "UniformReal": (lambda: ops.UniformReal(3)((COUNT,)), 0.5, 1 / 12),
    "UniformInt": (lambda: ops.UniformInt()((COUNT,), Tensor(2, dt.int32), Tensor(6, dt.int32)), 3.5, 1.25),
    "StandardNormal": (lambda: ops.StandardNormal(1, 2)((COUNT,)), 0.0, 1.0),
    "StandardLaplace": (lambda: ops.StandardLaplace()((COUNT,)), 0.0, 2.0),
    "TruncatedNormal": (lambda: ops.TruncatedNormal()((COUNT,)), 0.0, 0.7737413),
    "Gamma-2": (lambda: ops.Gamma()((COUNT,), Tensor(2.0), Tensor(4.0)), 8.0, 32.0),
    "Gamma-0.5": (lambda: ops.Gamma()((COUNT,), Tensor(0.5), Tensor(1.0)), 0.5, 0.5),
    "Poisson": (lambda: ops.Poisson()((COUNT,), Tensor(3.0)), 3.0, 3.0),
    "normal": (lambda: ops.normal((COUNT,), Tensor(5.0), Tensor(2.0), seed=3), 5.0, 4.0),
    "uniform": (lambda: ops.uniform((COUNT,), Tensor(2.0), Tensor(6.0)), 4.0, 16 / 12),
    "laplace": (lambda: ops.laplace((COUNT,), Tensor(1.0), Tensor(0.5)), 1.0, 0.5),
    "multinomial": (lambda: ops.multinomial(Tensor([1.0, 0.0, 3.0]), COUNT), 1.5, 0.75),
    "RandomCategorical": (
        lambda: ops.RandomCategorical()(Tensor([[0.0, float(np.log(3.0))]]), COUNT, 5),
        0.75,
        0.1875,
    ),
}


def drawn(draw, mode: str, steps: int = 1) -> list[np.ndarray]:
    """What a network draws in its first steps."""
    set_seed(1)
    run = step_of(lambda x: draw(), mode)
    return [run(np.zeros(1, np.float32))[0] for _ in range(steps)]


@table("name", ROWS)
def test_both_modes_draw_the_same(name: str):
    eager, graph = (drawn(ROWS[name][0], mode, 2) for mode in MODES)
    assert eager[0].dtype == graph[0].dtype
    for a, b in zip(eager, graph, strict=True):
        assert np.allclose(a, b, rtol=1e-5, atol=1e-5)
    assert not np.array_equal(eager[0], eager[1])


@table("name", ROWS)
def test_the_moments_are_those_of_the_distribution(name: str):
    draw, mean, variance = ROWS[name]
    (numbers,) = drawn(draw, "pynative")
    assert abs(numbers.mean() - mean) < 5 * np.sqrt(variance / COUNT)
    assert abs(numbers.var() / variance - 1) < 0.05


def test_operators_draw_other_numbers_than_their_neighbours():
    run = step_of(lambda x: (ops.UniformReal()((9,)), ops.UniformReal()((9,))), "graph")
    first, second = run(np.zeros(1, np.float32))
    assert not np.array_equal(first, second)


def test_outside_of_networks_each_call_draws_others():
    draw = ops.StandardNormal()
    assert not np.array_equal(draw((4,)).asnumpy(), draw((4,)).asnumpy())


class Noisy(nn.Cell):
    """A cell that drops and adds noise."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.normal = ops.Dropout(0.5), ops.StandardNormal()

    def construct(self, x):
        """Drop, then add noise."""
        return self.dropout(x)[0] + self.normal(x.shape)


def test_a_cell_draws_the_same_in_both_modes():
    results = {}
    for mode in (0, 1):
        set_seed(1)
        set_context(mode=mode)
        network = Noisy()
        results[mode] = [network(Tensor(np.ones((3, 5), np.float32))).asnumpy() for _ in range(3)]
    for a, b in zip(results[0], results[1], strict=True):
        assert np.allclose(a, b, atol=1e-5)
    assert not np.array_equal(results[0][0], results[0][1])


@table("mode", MODES)
def test_dropout_of_channels(mode: str):
    def dropped(x):
        return (*ops.Dropout2D(0.5)(x), *ops.Dropout3D(0.5)(ops.ExpandDims(2)(x)))

    x = np.ones((20, 30, 2, 2), np.float32)
    output, mask, deep, _ = step_of(dropped, mode)(x)
    assert set(np.unique(output)) == {0.0, 2.0}
    assert np.array_equal(mask, output == 2)
    assert (mask.min((2, 3)) == mask.max((2, 3))).all()
    assert (deep.min((2, 3, 4)) == deep.max((2, 3, 4))).all()
    assert 0.4 < mask.mean() < 0.6


def test_permutations_and_choices_without_replacement():
    order = ops.Randperm(10, pad=-1)(Tensor([7], dt.int32)).asnumpy()
    assert sorted(order[:7]) == list(range(7))
    assert order[7:].tolist() == [-1, -1, -1]
    chosen = ops.multinomial(Tensor([[0.1, 0.0, 0.5, 0.4]]), 3, replacement=False).asnumpy()
    assert sorted(chosen[0]) == [0, 2, 3]


DISTRIBUTIONS = {
    "UniformReal": (lambda: ops.UniformReal(1)((COUNT,)), stats.uniform()),
    "StandardNormal": (lambda: ops.StandardNormal(2)((COUNT,)), stats.norm()),
    "StandardLaplace": (lambda: ops.StandardLaplace(3)((COUNT,)), stats.laplace()),
    "TruncatedNormal": (lambda: ops.TruncatedNormal(4)((COUNT,)), stats.truncnorm(-2, 2)),
    "Gamma-0.3": (lambda: ops.Gamma(5)((COUNT,), Tensor(0.3), Tensor(2.0)), stats.gamma(0.3, scale=2)),
    "Gamma-7": (lambda: ops.Gamma(6)((COUNT,), Tensor(7.0), Tensor(0.25)), stats.gamma(7, scale=0.25)),
    "uniform": (lambda: ops.uniform((COUNT,), Tensor(-3.0), Tensor(5.0), 7), stats.uniform(-3, 8)),
}
COUNTS = {
    "UniformInt": (
        lambda: ops.UniformInt(1)((COUNT,), Tensor(-2, dt.int32), Tensor(9, dt.int32)),
        stats.randint(-2, 9),
    ),
    **{
        f"Poisson-{mean}": (lambda mean=mean: ops.Poisson(2)((COUNT,), Tensor(float(mean))), stats.poisson(mean))
        for mean in (0.05, 1, 9.9, 10, 14, 80, 3000)
    },
    "Multinomial": (
        lambda: ops.Multinomial(3)(Tensor([1.0, 0.0, 3.0, 4.0]), COUNT),
        stats.rv_discrete(values=(range(4), (0.125, 0, 0.375, 0.5))),
    ),
    "LogUniformCandidateSampler": (
        lambda: ops.LogUniformCandidateSampler(1, COUNT, False, 50)(Tensor([[1]], dt.int64))[0],
        stats.rv_discrete(values=(range(50), np.log1p(1 / (np.arange(50) + 1)) / np.log(51))),
    ),
    "UniformCandidateSampler": (
        lambda: ops.UniformCandidateSampler(1, COUNT, False, 9)(Tensor([[1]], dt.int64))[0],
        stats.randint(0, 9),
    ),
}


@table("name", DISTRIBUTIONS)
def test_continuous_distributions(name: str):
    """Kolmogorov and Smirnov, with a fixed seed; numbers of half of each distribution would fail with p = 0."""
    draw, distribution = DISTRIBUTIONS[name]
    for mode in MODES:
        assert stats.kstest(drawn(draw, mode)[0].astype(np.float64), distribution.cdf).pvalue > 1e-3


@table("name", COUNTS)
def test_discrete_distributions(name: str):
    """Chi squared over values that are expected 5 times and more; the others are one class."""
    draw, distribution = COUNTS[name]
    graph, eager = (drawn(draw, mode)[0] for mode in MODES)
    assert np.array_equal(graph, eager)
    values = np.arange(eager.min(), eager.max() + 1)
    expected = distribution.pmf(values) * COUNT
    counted = np.array([(eager == value).sum() for value in values])
    often = expected >= 5
    counted = np.append(counted[often], COUNT - counted[often].sum())
    expected = np.append(expected[often], COUNT - expected[often].sum())
    if expected[-1] < 1e-6:
        assert counted[-1] == 0
        counted, expected = counted[:-1], expected[:-1]
    statistic = ((counted - expected) ** 2 / expected).sum()
    assert stats.chi2(len(counted) - 1).sf(statistic) > 1e-3


SHAPES = {
    "Gamma": (lambda a, b: ops.Gamma()((3, 1, 2), a, b), [(2, 2), (1,)], (3, 2, 2)),
    "gamma": (lambda a, b: ops.gamma((3, 2, 4), a, b), [(), ()], (3, 2, 4)),
    "Poisson": (lambda a: ops.Poisson()((4, 1), a), [(2,)], (4, 2)),
    "poisson": (lambda a: ops.poisson((3, 1, 2), a), [(3, 2, 1)], (3, 2, 2)),
    "normal": (lambda a, b: ops.normal((3, 1, 2), a, b), [(2, 2), ()], (3, 2, 2)),
    "laplace": (lambda a, b: ops.laplace((2, 3), a, b), [(), (2, 1)], (2, 3)),
    "uniform": (lambda a, b: ops.uniform((3, 1, 2), a * 0.5, b), [(2, 2), (2,)], (3, 2, 2)),
}


@table("name", SHAPES)
def test_shapes_broadcast(name: str):
    """The parameters are operands of the graph: nothing is known of their values."""
    draw, shapes, expected = SHAPES[name]
    operands = [np.full(shape, 2, np.float32) for shape in shapes]
    for mode in MODES:
        assert step_of(draw, mode)(*operands)[0].shape == expected


def test_means_of_a_poisson_distribution_by_element():
    mean = np.array([[0.5, 4.0], [25.0, 400.0]], np.float32)
    for mode in MODES:
        counts = step_of(lambda x: ops.Poisson()((COUNT // 4, 2, 2), x), mode)(mean)[0]
        assert counts.dtype == np.int32
        assert (np.abs(counts.mean(0) - mean) < 5 * np.sqrt(mean / (COUNT // 4))).all()


@table("mode", MODES)
def test_true_elements_of_a_mask(mode: str):
    rng = np.random.default_rng(1)
    for shape in ((30,), (4, 5), (2, 3, 4), (2, 2, 3, 2, 2)):
        mask = rng.random(shape) < 0.4
        for count in (3, 100):
            places, valid = step_of(ops.RandomChoiceWithMask(count), mode)(mask)
            number = min(count, int(mask.sum()))
            assert (places.shape, places.dtype, valid.shape) == ((count, len(shape)), np.int32, (count,))
            assert valid.tolist() == [True] * number + [False] * (count - number)
            assert not places[number:].any()
            assert len({*map(tuple, places[:number])}) == number
            assert mask[tuple(places[:number].T)].all()


@table("mode", MODES)
def test_candidates(mode: str):
    true = np.array([[1, 7], [0, 4], [3, 3]], np.int64)
    run = step_of(ops.UniformCandidateSampler(2, 3, True, 9, 5, True), mode)
    for _ in range(20):
        classes, own, expected = run(true)
        assert sorted({*classes.tolist()} & {2, 5, 6, 8}) == sorted(classes)
    assert (classes.dtype, own.shape) == (np.int64, (3, 2))
    assert (own == np.float32(3 / 9)).all()
    assert (expected == np.float32(3 / 9)).all()
    drawn, _, _ = step_of(ops.UniformCandidateSampler(2, 300, False, 9, 5, True), mode)(true)
    assert {*drawn.tolist()} == {2, 5, 6, 8}
    probability = np.log((true + 2.0) / (true + 1.0)) / np.log(10.0)
    classes, own, expected = step_of(ops.LogUniformCandidateSampler(2, 4, False, 9), mode)(true)
    np.testing.assert_allclose(own, 4 * probability, rtol=1e-5)
    np.testing.assert_allclose(expected, 4 * np.log((classes + 2.0) / (classes + 1.0)) / np.log(10.0), rtol=1e-5)


def test_different_candidates_are_expected_as_often_as_they_come():
    every = np.arange(9, dtype=np.int64)[:, None]
    run, total, predicted = step_of(ops.LogUniformCandidateSampler(1, 4, True, 9), "graph"), np.zeros(9), np.zeros(9)
    for _ in range(2000):
        classes, own, _ = run(every)
        assert len({*classes.tolist()}) == 4
        total[classes] += 1
        predicted += own[:, 0]
    np.testing.assert_allclose(predicted, total, rtol=0.15)


WRONG = {
    "count": (lambda: ops.RandomChoiceWithMask(0), "count must be a whole number of at least 1"),
    "mask": (lambda: ops.RandomChoiceWithMask()(Tensor([1.0])), "needs Bool with 1 to 5 axes"),
    "sampled": (lambda: ops.UniformCandidateSampler(1, 5, True, 4), "num_sampled must be a whole number from 1 to 4"),
    "classes": (lambda: ops.UniformCandidateSampler(1, 3, True, 4)(Tensor([1], dt.int32)), "allowed       Int32 or"),
    "log": (lambda: ops.LogUniformCandidateSampler(seed=-1), "seed must be a whole number of at least 0"),
    "poisson": (lambda: ops.Poisson()((2,), Tensor(2, dt.int32)), "means are floats"),
}


@table("name", WRONG)
def test_what_makes_no_sense(name: str):
    make, text = WRONG[name]
    with pytest.raises(RunnerError) as caught:
        make()
    assert text in str(caught.value)


def looped(x):
    """Draws in a loop, then in a branch."""
    total = Tensor(np.zeros(8, np.float32))
    for _ in range(3):
        total = total * 2.0 + ops.UniformReal()((8,))
    return (total, ops.UniformReal()((8,)) if x > 0.0 else -ops.UniformReal()((8,)))


@table("mode", MODES)
def test_a_loop_draws_others_in_each_turn_and_a_branch_its_own(mode: str):
    set_seed(1)
    run = step_of(looped, mode)
    found = run(np.array(1.0, np.float32))
    set_seed(1)
    draws = [ops.UniformReal()((8,)).asnumpy() for _ in range(4)]  # outside of networks: the same counter
    assert np.array_equal(found[0], (draws[0] * 2 + draws[1]) * 2 + draws[2])
    assert np.array_equal(found[1], draws[3])
    set_seed(1)
    assert np.array_equal(run(np.array(-1.0, np.float32))[1], -draws[3])


def test_the_seed_restarts_direct_calls_and_compiled_graphs():
    draw = ops.StandardNormal()
    results = {}
    for mode in (0, 1):
        set_context(mode=mode)
        network = Noisy()
        for seed in (5, 6, 5):
            set_seed(seed)
            found = [draw((4,)).asnumpy(), network(Tensor(np.ones((3, 5), np.float32))).asnumpy(), draw((4,)).asnumpy()]
            for a, b in zip(found, results.setdefault(seed, found), strict=True):
                assert np.allclose(a, b, atol=1e-5)
    for a, b in zip(results[5], results[6], strict=True):
        assert not np.array_equal(a, b)

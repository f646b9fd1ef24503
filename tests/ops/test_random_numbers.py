"""Random tensors: the same in both modes, other ones in every step, and with the moments of their distribution."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import dtype as dt, nn, ops
from runner.context import set_context
from runner.core.value import Tensor
from runner.errors import ConfigError
from runner.host.seed import set_seed

COUNT = 40_000
ROWS = {
    "UniformReal": (lambda: ops.UniformReal(3)((COUNT,)), 0.5, 1 / 12),
    "UniformInt": (lambda: ops.UniformInt()((COUNT,), Tensor(2, dt.int32), Tensor(6, dt.int32)), 3.5, 1.25),
    "StandardNormal": (lambda: ops.StandardNormal(1, 2)((COUNT,)), 0.0, 1.0),
    "StandardLaplace": (lambda: ops.StandardLaplace()((COUNT,)), 0.0, 2.0),
    "TruncatedNormal": (lambda: ops.TruncatedNormal()((COUNT,)), 0.0, 0.7737413),
    "Gamma-2": (lambda: ops.Gamma()((COUNT,), Tensor(2.0), Tensor(4.0)), 0.5, 0.125),
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


def test_an_unknown_mean_is_an_error():
    with pytest.raises(ConfigError, match="must be known"):
        step_of(lambda x: ops.Poisson()((2,), x), "graph")(np.array(2.0, np.float32))

"""`common.api._executor` and `Cell.compile`: networks are compiled without being executed."""

import numpy as np
import pytest
from runner.common.api import _executor
from tables import table

from runner import Parameter, Tensor, context, nn, ops
from runner.errors import ShapeError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Counter(nn.Cell):
    """Adds an operand, and counts its calls in a parameter and its traces in a list."""

    def __init__(self):
        super().__init__()
        self.calls = Parameter(Tensor(np.zeros((), np.float32)), name="calls")
        self.traces = []

    def construct(self, x, y):
        self.traces.append(1)
        ops.AssignAdd()(self.calls, 1.0)
        return x + y


def test_compiles_once_and_executes_nothing():
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        context.set_context(mode=mode)
        net = Counter()
        assert _executor.compile(net, Tensor(X), Tensor(X)) == ("predict", True)
        assert _executor.compile(net, Tensor(X), Tensor(X), phase="predict", auto_parallel_mode=True)[1] is False
        assert _executor.compile(net, Tensor(X), Tensor(X), phase="train") == ("train", True)
        assert len(net.traces) == 1
        assert net.calls.asnumpy() == 0.0
        np.testing.assert_array_equal(_executor(net, Tensor(X), Tensor(X)).asnumpy(), X + X)
        assert len(net.traces) == 1, "the call used the program of the compilation"
        assert net.calls.asnumpy() == 1.0


def test_what_compiles():
    def doubled(x):
        return x * 2

    net = Counter()
    net.compile(Tensor(X), 2.0)  # a number is a constant of the graph
    _executor.compile(doubled, Tensor(X))
    np.testing.assert_array_equal(_executor(doubled, Tensor(X)).asnumpy(), 2 * X)


def test_an_error_of_the_network_names_its_line():
    with pytest.raises(ShapeError, match="return x \\+ y"):
        _executor.compile(Counter(), Tensor(X), Tensor(np.ones((4, 5), np.float32)))


class Constant(nn.Cell):
    """Returns what no operator computes."""

    def __init__(self, result):
        super().__init__()
        self.result = result

    def construct(self, *inputs):
        return self.result


@table("result", [3, (1, "two"), {"a": 1.5}, None])
def test_a_network_without_tensors(result):
    context.set_context(mode=context.GRAPH_MODE)
    assert Constant(result)() == result
    assert Constant(result)(4) == result


def test_a_map_of_python_is_the_tuple_of_its_elements():
    def doubled(value):
        return value * 2

    class Doubled(nn.Cell):
        def construct(self, x, y):
            return map(doubled, (x, y, 3))

    context.set_context(mode=context.GRAPH_MODE)
    first, second, third = Doubled()(Tensor(X), Tensor(X + 1))
    np.testing.assert_array_equal(first.asnumpy(), 2 * X)
    np.testing.assert_array_equal(second.asnumpy(), 2 * (X + 1))
    assert third == 6

"""`==`, `<` and the others compare elements, in both modes; as a condition, a value of a graph is an error."""

import operator

import numpy as np
import pytest

from runner import Tensor, context, nn
from runner.core.trace import trace
from runner.dtype import bool_
from runner.types import TensorType

X = np.array([[1, 2, 3], [4, np.nan, 6]], np.float32)
Y = np.array([[1, 3, 2]], np.float32)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


class Compare(nn.Cell):
    def __init__(self, compare):
        super().__init__()
        self.compare = compare

    def construct(self, x, y):
        return self.compare(x, y)


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_elements_are_compared(compare, mode):
    context.set_context(mode=mode)
    for x, y in ((X, Y), (X, X), (np.arange(6, dtype=np.int32), np.int32(3))):
        found = Compare(compare)(Tensor(x), Tensor(y))
        assert found.dtype is bool_
        assert np.array_equal(found.asnumpy(), compare(x, y))


@pytest.mark.parametrize("compare", COMPARISONS)
def test_numbers_and_arrays_are_operands(compare):
    assert np.array_equal(compare(Tensor(X), 2).asnumpy(), compare(X, 2))
    assert np.array_equal(compare(2.0, Tensor(X)).asnumpy(), compare(2.0, X))
    assert np.array_equal(compare(Tensor(X), Y).asnumpy(), compare(X, Y))
    assert np.array_equal(compare(Y, Tensor(X)).asnumpy(), compare(Y, X))


def test_what_is_no_operand_is_not_equal():
    x = Tensor(X)
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    with pytest.raises(TypeError):
        x < None  # noqa: B015


def test_values_are_keys_by_identity():
    x, y = Tensor(1.0), Tensor(1.0)
    assert {x: "x", y: "y"}[y] == "y"
    assert len({x, y}) == 2


def test_the_truth_of_several_elements_is_ambiguous():
    assert Tensor(1.0) == 1.0
    with pytest.raises(ValueError, match="ambiguous"):
        bool(Tensor(X) == Tensor(X))


def test_a_condition_on_a_value_of_a_graph_is_a_branch():
    """It took the branch of two different objects, whatever the values were."""
    graph = trace(lambda x: x if x == x else -x, [TensorType.of(np.float32(1))], "branch")
    assert [node.op.name for node in graph.nodes] == ["Equal", "If"]

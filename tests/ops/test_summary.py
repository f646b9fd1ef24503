"""Summary operators: the newest value of every name, in both modes, step by step and in sinks."""

import numpy as np
import pytest
from tables import table

from runner import Model, Parameter, Tensor, context, nn, ops
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError, ShapeError
from runner.ops.effects import NewestValues

ROWS = np.arange(1, 25, dtype=np.float32).reshape(6, 1, 2, 2)
BOTH = pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE], ids=["graph", "pynative"])


class Net(nn.Cell):
    """The loss is w times the sum of the images, so the gradient of w is that sum; it marks all kinds of values."""

    def __init__(self, marks=True):
        super().__init__()
        self.w, self.marks = Parameter(np.array([0.5], np.float32), "w"), marks
        self.scalar, self.image = ops.ScalarSummary(), ops.ImageSummary()
        self.tensor, self.histogram = ops.TensorSummary(), ops.HistogramSummary()

    def construct(self, x):
        total = ops.ReduceSum()(x) * self.w
        if self.marks:
            self.image("x", x)
            self.scalar("total", total)
            self.scalar("half", ops.ReduceSum()(total) * 0.5)
            self.tensor("x", ops.Reshape()(x, (-1,)))
            self.histogram("w", self.w)
        return ops.ReduceSum()(total)


class Counting(NewestValues):
    """Also keeps all values of one name."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def keep(self, plugin, tag, value):
        """Note it."""
        super().keep(plugin, tag, value)
        if tag == "total":
            self.seen.append(value.tolist())


def train(mode, sunk=False, epochs=1, marks=True):
    net = Net(marks)
    model = Model(net, None, nn.SGD(net.trainable_params(), 0.25), mode=mode)
    with Counting() as newest:
        model.train(epochs, NumpySlicesDataset({"x": ROWS}, shuffle=False).batch(2), None, sunk)
    return net, newest


def expected():
    """The numbers of three steps, in Float64: rows 0 and 1, 2 and 3, 4 and 5; w loses a quarter of their sum."""
    w, totals = 0.5, []
    for k in range(0, 6, 2):
        batch = ROWS[k : k + 2].astype(np.float64)
        totals.append([batch.sum() * w])
        last, w = w, w - 0.25 * batch.sum()
    return totals, {
        ("image", "x"): batch,
        ("scalar", "total"): totals[-1],
        ("scalar", "half"): totals[-1][0] / 2,
        ("tensor", "x"): batch.ravel(),
        ("histogram", "w"): [last],
    }


@BOTH
@pytest.mark.parametrize("sunk", [False, True], ids=["steps", "sunk"])
def test_newest_values(mode, sunk):
    _, newest = train(mode, sunk)
    totals, last = expected()
    assert newest.seen == totals  # of every step, in order
    found = newest.take()
    assert list(found) == list(last)
    for key, value in last.items():
        np.testing.assert_array_equal(found[key], value)
    assert newest.take() == {}


@BOTH
def test_an_evaluation_emits_too(mode):
    net = Net()
    model = Model(net, None, mode=mode)
    with NewestValues() as newest:
        model.predict(ROWS[:2])
    assert newest.take()["scalar", "total"] == ROWS[:2].sum() / 2


@BOTH
def test_marking_changes_no_number(mode):
    assert train(mode)[0].w.asnumpy().tobytes() == train(mode, marks=False)[0].w.asnumpy().tobytes()


def test_nothing_is_kept_outside():
    newest = NewestValues()
    with newest:
        ops.ScalarSummary()("a", Tensor(1.0))
    ops.ScalarSummary()("a", Tensor(2.0))
    ops.ScalarSummary()("b", Tensor(2.0))
    assert newest.take() == {("scalar", "a"): 1.0}


def test_values_are_copies():
    data = np.ones(3, np.float32)
    with NewestValues() as newest:
        ops.TensorSummary()("a", Tensor(data))
        data[:] = 5
    assert newest.take()["tensor", "a"].tolist() == [1, 1, 1]


WRONG = {
    "no name": (ops.ScalarSummary, "", Tensor(1.0), ConfigError, "a summary needs a name"),
    "a number as name": (ops.TensorSummary, 3, Tensor([1.0]), ConfigError, "given       3"),
    "a number as value": (ops.ScalarSummary, "a", 1.0, ConfigError, "a summary needs a tensor"),
    "several numbers": (ops.ScalarSummary, "a", Tensor([1.0, 2.0]), ShapeError, "shape () or (1,)"),
    "three axes": (ops.ImageSummary, "a", Tensor(ROWS[0]), ShapeError, "four axes"),
    "no axis": (ops.TensorSummary, "a", Tensor(1.0), ShapeError, "at least one axis"),
    "no axis of a histogram": (ops.HistogramSummary, "a", Tensor(1.0), ShapeError, "at least one axis"),
}


@table(("kind", "name", "value", "error", "text"), WRONG.values(), WRONG)
def test_errors(kind, name, value, error, text):
    with pytest.raises(error) as caught:
        kind()(name, value)
    assert text in str(caught.value)


@BOTH
def test_an_error_has_the_line(mode):
    class Wrong(nn.Cell):
        def construct(self, x):
            ops.ScalarSummary()("x", x)
            return x

    with pytest.raises(ShapeError) as caught:
        Model(Wrong(), mode=mode).predict(ROWS)
    assert "test_summary.py" in str(caught.value)
    assert 'ops.ScalarSummary()("x", x)' in str(caught.value)

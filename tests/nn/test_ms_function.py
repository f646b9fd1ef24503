import numpy as np
import pytest

from runner import Parameter, Tensor, context, dtype, ms_function, nn, ops
from runner.errors import ConfigError, ShapeError

MODES = context.PYNATIVE_MODE, context.GRAPH_MODE


@pytest.fixture(params=MODES, ids=("pynative", "graph"), autouse=True)
def mode(request):
    context.set_context(mode=request.param)
    return request.param


X = Tensor(np.array([1.0, 2.0], np.float32))
runs = []


def test_a_function_is_traced_once_for_each_type():
    traced = []

    @ms_function
    def double(x, factor=2.0):
        traced.append(x.shape)
        return x * factor

    assert [double(X).asnumpy().tolist() for _ in range(3)] == [[2, 4]] * 3
    assert traced == [(2,)]
    assert double(X, factor=3.0).asnumpy().tolist() == [3, 6]
    assert double(Tensor([1.0])).asnumpy().tolist() == [2]
    assert double.__name__ == "double"


def test_a_function_that_uses_a_cell():
    layer = nn.BatchNorm1d(2)

    @ms_function
    def normalize(x):
        return layer(x)

    batch = Tensor(np.array([[1.0, 2.0], [3.0, 6.0]], np.float32))
    layer.set_train()
    normalize(batch)
    assert layer.moving_mean.asnumpy() == pytest.approx([0.2, 0.4])
    layer.set_train(False)
    normalize(batch)
    assert layer.moving_mean.asnumpy() == pytest.approx([0.2, 0.4])


class Scale(nn.Cell):
    def __init__(self, start):
        super().__init__()
        self.w, self.traced = Parameter(Tensor([start, start])), 0

    @ms_function
    def construct(self, x):
        self.__dict__["traced"] += 1
        return self.w * x

    @ms_function
    def shifted(self, x, pair):
        ops.AssignAdd()(self.w, 1.0)
        return {"sum": x + self.w, "pair": (pair[0], 7)}


def test_methods():
    first, second = Scale(2.0), Scale(3.0)
    for _ in range(2):
        assert first(X).asnumpy().tolist() == [2, 4]
        assert second(X).asnumpy().tolist() == [3, 6]
    assert first.traced == second.traced == 1
    found = first.shifted(X, (X, None))
    assert found["sum"].asnumpy().tolist() == [4, 5]
    assert found["pair"][1] == 7
    assert second.shifted(X, (X, None))["sum"].asnumpy().tolist() == [5, 6]


def test_gradients_pass_through():
    cube = ms_function(lambda x: x * x * x)
    grad = ops.GradOperation()
    assert grad(cube)(X).asnumpy().tolist() == [3, 12]
    assert grad(grad(cube))(X).asnumpy().tolist() == [6, 12]
    assert grad(Scale(2.0))(X).asnumpy().tolist() == [2, 2]


def test_input_signature():
    @ms_function(input_signature=(Tensor(np.zeros(2, np.float32)), Tensor(np.zeros((), np.int32))))
    def power(x, k):
        return x

    assert power(X, Tensor(np.array(3, np.int32))).asnumpy().tolist() == [1, 2]
    with pytest.raises(ShapeError, match="input_signature"):
        power(X, X)
    with pytest.raises(ConfigError, match="decorates a function"):
        ms_function(3)


def test_a_network_may_return_only_what_is_known_before_it_runs():
    class Facts(nn.Cell):
        def construct(self, x):
            return ops.Shape()(x), ops.DType()(x), 3

    assert Facts()(Tensor(np.zeros((2, 3), np.float16))) == ((2, 3), dtype.float16, 3)

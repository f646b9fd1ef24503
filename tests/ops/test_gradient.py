"""`stop_gradient`, `bprop` of a cell, hooks, `depend`, clipping, and functions of constants."""

import numpy as np
import pytest

from runner import Parameter, Tensor, context, nn, ops
from runner.errors import ConfigError, ShapeError

MODES = context.PYNATIVE_MODE, context.GRAPH_MODE


@pytest.fixture(params=MODES, ids=("pynative", "graph"))
def mode(request):
    context.set_context(mode=request.param)
    return request.param


def tensor(*numbers):
    return Tensor(np.array(numbers, np.float32))


def gradients(function, *inputs):
    return [x.asnumpy().tolist() for x in ops.GradOperation(get_all=True)(function)(*inputs)]


def test_stop_gradient(mode):
    assert gradients(lambda x, y: ops.stop_gradient(x * y) * y, tensor(2.0), tensor(3.0)) == [[0], [6]]
    assert gradients(lambda x: ops.stop_gradient((x, [x]))[1][0] + x * x, tensor(2.0)) == [[4]]


class Own(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(tensor(2.0), "w")

    def construct(self, x, y):
        return self.w * x * y

    def bprop(self, x, y, out, dout):
        return x * 10.0 + out, y * dout


def test_a_cell_with_its_own_gradient(mode):
    """Numbers of MindSpore 2.10 for this cell; those of its parameter are 0 there too."""
    own, x, y = Own(), tensor(5.0), tensor(7.0)
    assert own(x, y).asnumpy().tolist() == [70]
    assert gradients(own, x, y) == [[120], [7]]
    assert gradients(lambda x, y: own(x * 2.0, y) * 3.0, x, y) == [[(100 + 140) * 2], [21]]
    found = ops.GradOperation(get_by_list=True)(own, own.trainable_params())(x, y)
    assert found[0].asnumpy().tolist() == [0]


def test_a_cell_with_its_own_gradient_is_differentiated_twice(mode):
    class Cube(nn.Cell):
        def construct(self, x):
            return x * x * x

        def bprop(self, x, out, dout):
            return (x * x * 3.0 * dout,)

    inner = ops.GradOperation()(Cube())
    assert gradients(lambda x: inner(x), tensor(2.0)) == [[12]]


def test_a_bprop_with_several_results(mode):
    class Two(nn.Cell):
        def construct(self, pair, y):
            return pair[0] * y, pair[1]

        def bprop(self, pair, y, out, dout):
            return (dout[0] * 100.0, out[1]), y

    found = ops.GradOperation(get_all=True)(Two())((tensor(2.0), tensor(3.0)), tensor(4.0))
    assert [x.asnumpy().tolist() for x in (*found[0], found[1])] == [[100], [3], [4]]


def test_a_bprop_that_does_not_fit(mode):
    class Short(Own):
        def bprop(self, x, y, out, dout):
            return dout

    class Wide(Own):
        def bprop(self, x, y, out, dout):
            return dout, tensor(1.0, 2.0)

    with pytest.raises(ShapeError, match="one gradient for each input"):
        gradients(Short(), tensor(5.0), tensor(7.0))
    with pytest.raises(ShapeError, match="shape of its input"):
        gradients(Wide(), tensor(5.0), tensor(7.0))


def test_a_hook_observes_and_replaces():
    context.set_context(mode=context.PYNATIVE_MODE)
    seen = []

    def hook(grads):
        seen.append(grads[0].asnumpy().tolist())
        return grads[0] * 2.0 if len(seen) > 1 else None

    hooked = ops.HookBackward(hook)
    assert gradients(lambda x: hooked(x * 3.0) * 5.0, tensor(1.0)) == [[15]]
    assert gradients(lambda x: hooked(x * 3.0) * 5.0, tensor(1.0)) == [[30]]
    assert seen == [[5], [5]]
    with pytest.raises(ShapeError, match="a gradient or None"):
        gradients(lambda x: ops.HookBackward(lambda grads: tensor(1.0, 2.0))(x), tensor(1.0))
    with pytest.raises(ConfigError, match="needs a function"):
        ops.HookBackward(3)


def test_depend_returns_its_value(mode):
    assert ops.depend(True, None) is True
    assert gradients(lambda x: ops.Depend()(x * x, x + 1.0), tensor(3.0)) == [[6]]
    assert ops.control_depend(1, 2) is True


@pytest.mark.parametrize("largest", [1.0, 20.0])
def test_clip_by_global_norm(largest, mode):
    arrays = [np.array(a, np.float64) for a in ([[3.0, 4.0]], [12.0])]

    class Clip(nn.Cell):
        def construct(self, x, y):
            return ops.clip_by_global_norm((x, y), largest)

    found = Clip()(*[Tensor(a.astype(np.float32)) for a in arrays])
    factor = largest / max(np.sqrt(sum((a * a).sum() for a in arrays)), largest)
    for x, a in zip(found, arrays, strict=True):
        assert x.asnumpy() == pytest.approx(a * factor, rel=1e-6)


def test_constants(mode):
    @ops.constexpr
    def halves(shape):
        return tuple(n // 2 for n in shape)

    class Half(nn.Cell):
        def construct(self, x):
            return ops.Reshape()(x, halves(x.shape) * 2)

    assert Half()(Tensor(np.zeros(4, np.float32))).shape == (2, 2)
    make = ops.constexpr(get_instance=False, name="Twice")(lambda x: 2 * x)
    assert make()(3) == 6
    if mode == context.GRAPH_MODE:
        with pytest.raises(ConfigError, match="halves takes constants"):
            ops.GradOperation()(lambda x: x * halves(x))(tensor(1.0))
    assert ops.core(loop_can_unroll=True)(halves) is halves
    assert ops.zeros_like((tensor(1.0), [2]))[1] == [2]
    assert ops.ones_like(tensor(3.0, 4.0)).asnumpy().tolist() == [1, 1]
    assert ops.zeros_like(3.5) == 0

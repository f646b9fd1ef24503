"""`GradOperation`: compared with derivatives by hand, with differences in Float64, and between the modes."""

import numpy as np
import pytest

from runner import Parameter, Tensor, context, nn, ops
from runner.errors import ConfigError, RunnerError, ShapeError

MODES = context.PYNATIVE_MODE, context.GRAPH_MODE


@pytest.fixture(params=MODES, ids=("pynative", "graph"))
def mode(request):
    context.set_context(mode=request.param)
    return request.param


def tensor(*numbers):
    return Tensor(np.array(numbers, np.float32))


def numbers(structure):
    """Nested lists of the elements."""
    if isinstance(structure, tuple | list):
        return [numbers(part) for part in structure]
    return structure.asnumpy().tolist()


class Product(nn.Cell):
    """w x^2 y."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(tensor(2.0), "w")

    def construct(self, x, y):
        return self.w * x * x * y


OPTIONS = [  # at w = 2, x = 3, y = 5: d/dx = 60, d/dy = 18, d/dw = 45
    ({}, [60]),
    ({"get_all": True}, [[60], [18]]),
    ({"get_by_list": True}, [[45]]),
    ({"get_all": True, "get_by_list": True}, [[[60], [18]], [[45]]]),
    ({"sens_param": True}, [30]),
    ({"get_all": True, "sens_param": True}, [[30], [9]]),
    ({"get_by_list": True, "sens_param": True}, [[22.5]]),
    ({"get_all": True, "get_by_list": True, "sens_param": True}, [[[30], [9]], [[22.5]]]),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS)
@pytest.mark.parametrize("nested", [False, True])
def test_what_is_returned(options, expected, nested, mode):
    net, grad = Product(), ops.GradOperation(**options)

    class Wrapped(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net, self.weights, self.grad = net, net.trainable_params(), grad

        def construct(self, *inputs):
            return self.grad(self.net, self.weights)(*inputs)

    function = Wrapped() if nested else grad(net, net.trainable_params())
    sens = [tensor(0.5)] if "sens_param" in options else []
    for _ in range(2):
        assert numbers(function(tensor(3.0), tensor(5.0), *sens)) == expected


def test_higher_orders_of_cells_and_functions(mode):
    class Sine(nn.Cell):
        def construct(self, x):
            return ops.Sin()(x)

    class Grad(nn.Cell):
        def __init__(self, network):
            super().__init__()
            self.network, self.grad = network, ops.GradOperation()

        def construct(self, x):
            return self.grad(self.network)(x)

    x, grad = np.array([1.0, -0.3], np.float32), ops.GradOperation()
    first, second, third = Grad(Sine()), Grad(Grad(Sine())), Grad(Grad(Grad(Sine())))
    for network, expected in ((first, np.cos), (second, lambda x: -np.sin(x)), (third, lambda x: -np.cos(x))):
        assert network(Tensor(x)).asnumpy() == pytest.approx(expected(x.astype(np.float64)), abs=1e-6)

    def power(x):
        return x * x * x * x

    found = [f(tensor(2.0)).asnumpy()[0] for f in (grad(power), grad(grad(power)), grad(grad(grad(power))))]
    assert found == [32, 48, 48]


def test_mixed_second_derivatives_with_two_sens(mode):
    """x^2 y at (4, 5), as in MindSpore's tutorial."""

    class Grad(nn.Cell):
        def __init__(self, network, sens_param):
            super().__init__()
            self.network, self.grad = network, ops.GradOperation(get_all=True, sens_param=sens_param)

        def construct(self, *inputs):
            return self.grad(self.network)(*inputs)

    first = Grad(lambda x, y: x * x * y, False)
    second = Grad(first, True)
    x, y, one, zero = tensor(4.0), tensor(5.0), tensor(1.0), tensor(0.0)
    assert numbers(second(x, y, (one, zero))) == [[10], [8]]
    assert numbers(second(x, y, (zero, one))) == [[8], [0]]


def test_a_layer_against_differences_in_float64(mode):
    rng = np.random.default_rng(3)
    weight, bias, x, sens = (rng.normal(size=shape) for shape in ((3, 4), (3,), (5, 4), (5, 3)))
    net = nn.Dense(4, 3, Tensor(weight.astype(np.float32)), Tensor(bias.astype(np.float32)), activation="tanh")
    grad = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)
    operands = [Tensor(a.astype(np.float32)) for a in (x, sens)]
    (of_x,), (of_weight, of_bias) = grad(net, net.trainable_params())(*operands)

    def loss(x, weight, bias):
        return float((np.tanh(x @ weight.T + bias) * sens).sum())

    for k, found in enumerate((of_x, of_weight, of_bias)):
        values = [x, weight, bias]
        expected = np.zeros_like(values[k])
        for place in np.ndindex(expected.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [v.copy() for v in values]
                moved[k][place] += step
                ends.append(loss(*moved))
            expected[place] = (ends[0] - ends[1]) / 2e-6
        assert found.asnumpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_one_value_as_two_operands_and_in_the_function(mode):
    x, grad = tensor(3.0), ops.GradOperation(get_all=True)

    def both(a, b):
        return a * a * b * x  # x is a constant here

    assert numbers(grad(both)(x, x)) == [[54], [27]]
    outer = ops.GradOperation()(lambda a: ops.GradOperation()(lambda b: b * b * a)(a))
    assert numbers(outer(x)) == [12]  # d/da of 2 a a: through both operands


def test_structures_numbers_and_whole_numbers(mode):
    grad = ops.GradOperation(get_all=True)
    pair = tensor(2.0), [tensor(3.0), tensor(4.0)]
    assert numbers(grad(lambda x: x[0] * x[1][0] * x[1][1])(pair)) == [[[12], [[8], [6]]]]
    label = Tensor(np.array([2], np.int32))
    assert numbers(grad(lambda x, k, power: x * x * power + k.astype(x.dtype))(tensor(3.0), label, 5)) == [[30], [0]]
    assert numbers(grad(lambda x, y: (x * y, x + 1.0, [y * 2.0]))(tensor(3.0), tensor(7.0))) == [[8], [5]]


def test_unused_operands_and_parameters_have_gradients_of_zero(mode):
    net = Product()
    other = Parameter(tensor(1.0, 2.0), "other")
    grad = ops.GradOperation(get_all=True, get_by_list=True)
    found = grad(lambda x, y: x * x, [other, net.w])(tensor(3.0), tensor(5.0, 6.0))
    assert numbers(found) == [[[6], [0, 0]], [[0, 0], [0]]]


def test_second_derivatives_of_parameters(mode):
    """d/dw of the squared norm of d/dx (w x^3) = 2 * 3 x^2 w * 3 x^2."""
    net = Product()
    inner, outer = ops.GradOperation(), ops.GradOperation(get_by_list=True)

    def penalty(x):
        slope = inner(lambda x: net.w * x * x * x)(x)
        return slope * slope

    assert numbers(outer(penalty, [net.w])(tensor(2.0))) == [[2 * 12 * 2 * 12]]


def test_bad_uses_are_reported(mode):
    net, grad = Product(), ops.GradOperation
    x, y = tensor(3.0), tensor(5.0)
    rows = [
        (lambda: grad(get_all=1), ConfigError, "must be true or false"),
        (lambda: grad()(3), ConfigError, "a cell or a function"),
        (lambda: grad(get_by_list=True)(net, [x]), ConfigError, "parameters"),
        (lambda: grad(get_by_list=True)(lambda x: x)(x), ConfigError, "ParameterTuple"),
        (lambda: grad(sens_param=True)(net)(x, y, tensor(1.0, 2.0)), ShapeError, "Float32[2]"),
        (lambda: grad()(net)(x, y, sens=x), ConfigError, "sens_param=True"),
        (lambda: grad()(lambda k: 2.0)(x), ConfigError, "return a tensor"),
        (lambda: grad()(lambda k: x)(3), ConfigError, "get_by_list=True"),
    ]
    for call, kind, text in rows:
        with pytest.raises(RunnerError) as caught:
            call()
        assert isinstance(caught.value, kind), caught.value
        assert text in str(caught.value)


def test_the_compiled_gradient_is_kept(mode):
    net, grad = Product(), ops.GradOperation()
    for _ in range(3):
        grad(net)(tensor(3.0), tensor(5.0))
    cells = net.__dict__["_functions"]
    assert len(cells) == 1
    if mode == context.GRAPH_MODE:
        (cell,) = cells.values()
        (step,) = cell.__dict__["_graphs"].values()
        assert len(step.programs) == 1


def test_functions_that_assign_elements(mode):
    def function(x):
        y = x * 2.0
        y[0] = x[1] * x[1]
        x[1] = 0.0
        return y * y + x

    x = np.array([3.0, 5.0], np.float32)
    # y = (x1^2, 2 x1); d/dx0 = 1, d/dx1 = 4 x1^3 + 8 x1
    assert numbers(ops.GradOperation()(function)(Tensor(x))) == [1, 540]

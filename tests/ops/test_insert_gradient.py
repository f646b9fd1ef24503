"""InsertGradientOf: the identity forward, a function of the gradient backward, in both modes; the ResNet of a guide."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of

from models.resnet import ResidualBlock, ResNet
from runner import Model, Parameter, context, dtype, nn, ops, set_seed
from runner.core.gradients import gradients
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.errors import ConfigError, ShapeError
from runner.ops import operations as P

RNG = np.random.default_rng(5)
X, W = RNG.normal(size=(3, 4)).astype(np.float32), RNG.normal(size=(4, 2)).astype(np.float32)


def gradient_of(f, mode, w=W):
    """d/dw of sum(tanh(x w)^2), where f is inserted in front of the square."""
    parameter, hook = Parameter(w, "w"), ops.InsertGradientOf(f)

    def function(x):
        y = hook(ops.Tanh()(ops.MatMul()(x, parameter)))
        loss = ops.ReduceSum()(y * y)
        return loss, gradients(loss, [parameter])[0]

    return step_of(function, mode)(X)


def expected(f):
    """The same by hand, in float64."""
    y = np.tanh(X.astype(np.float64) @ W)
    return X.T.astype(np.float64) @ (f(2 * y) * (1 - y * y))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("f", "by_hand"),
    [
        (lambda dout: dout, lambda d: d),
        (lambda dout: dout * 3.0, lambda d: 3 * d),
        (lambda dout: ops.clip_by_value(dout, -0.5, 0.25), lambda d: np.clip(d, -0.5, 0.25)),
        (lambda dout: ops.ZerosLike()(dout), lambda d: 0 * d),
    ],
    ids=["identity", "scaled", "clipped", "stopped"],
)
def test_the_gradient_becomes_what_the_function_makes_of_it(mode, f, by_hand):
    loss, gradient = gradient_of(f, mode)
    assert relative(loss, (np.tanh(X.astype(np.float64) @ W) ** 2).sum()) < 1e-6
    assert relative(gradient, expected(by_hand)) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_the_function_may_print(mode, capsys):
    show, ones = ops.Print(), np.ones((2, 2), np.float32)
    parameter = Parameter(ones, "w")

    def seen(dout):
        show("gradient", dout)
        return dout

    first, second = ops.InsertGradientOf(seen), ops.InsertGradientOf(lambda dout: seen(dout * 2.0))

    def function(x):
        y = second(first(x * parameter) * 3.0)
        show("forward", y)
        return gradients(ops.ReduceSum()(y), [parameter])[0]

    (gradient,) = step_of(function, mode)(ones)
    assert np.array_equal(gradient, 6 * ones)
    text = capsys.readouterr().out.replace("0000000e+00", "").replace(" ", "")
    block = "Tensor(shape=[2,2],dtype=Float32,value=\n[[{0}.{0}.]\n[{0}.{0}.]])\n".replace("{0}.", "{0}.0")
    assert text == "".join(
        f"{word}\n{block.format(value)}" for word, value in (("forward", 3), ("gradient", 2), ("gradient", 6))
    )


@pytest.mark.parametrize("mode", MODES)
def test_it_is_called_only_where_a_gradient_flows(mode):
    called = []

    def seen(dout):
        called.append(dout.type)
        return dout

    parameter, hook = Parameter(W, "w"), ops.InsertGradientOf(seen)

    def function(x):
        data, unused = hook(x), hook(x * parameter.array[0, 0])
        loss = ops.ReduceSum()(ops.MatMul()(data, parameter)) + 0.0 * ops.ReduceSum()(unused)
        return gradients(loss, [parameter])[0]

    step_of(function, mode)(X)
    assert called == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("f", "given"),
    [
        (lambda dout: None, "NoneType"),
        (lambda dout: 1.0, "float"),
        (lambda dout: ops.ReduceSum()(dout), "Float32[]"),
        (lambda dout: dout.astype(dtype.float16), "Float16[3, 2]"),
    ],
    ids=["nothing", "a number", "another shape", "another type"],
)
def test_what_the_function_must_give(mode, f, given):
    with pytest.raises(ShapeError) as caught:
        gradient_of(f, mode)
    assert caught.value.what == "InsertGradientOf: the function must return a gradient of the same type"
    assert caught.value.rows["given"] == given
    assert caught.value.rows["takes"] == "Float32[3, 2]"
    assert "<lambda>" in caught.value.rows["function"]
    assert caught.value.rows["scope"].startswith("Gradients/Default/gradInsertGradientOf/")


@pytest.mark.parametrize("f", [None, 3, "print"])
def test_it_takes_a_function(f):
    with pytest.raises(ConfigError, match="needs a function"):
        ops.InsertGradientOf(f)


def test_the_function_is_no_attribute():
    """Two graphs of one network read alike, wherever its functions lie in memory."""
    one, other = ops.InsertGradientOf(abs), ops.InsertGradientOf(max)
    assert (repr(one), one.attributes(), one == other, hash(one) == hash(other)) == (
        "InsertGradientOf()",
        {},
        True,
        True,
    )


# The ResNet of the dump guide, seed 002: `print` and `print_grad` in front of the pool


class PrintingResNet(ResNet):
    """As in the guide, with what its constructor makes put to use."""

    def __init__(self):
        super().__init__(ResidualBlock, (1, 1, 1, 1), width=2)
        self.print = P.Print()
        self.print_grad = P.InsertGradientOf(self.save_gradient)

    def save_gradient(self, dout):
        self.print("gradient of the logits", dout)
        return dout

    def construct(self, x):
        out = super().construct(x)
        self.print("logits", out)
        return self.print_grad(out)


def trained(mode, sunk, capsys):
    set_seed(3)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(8, 3, 32, 32)).astype(np.float32), np.arange(8, dtype=np.int32)
    net = PrintingResNet()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    # Rounding may push an element over the kink of a ReLU, on some processors and not on others. At this rate, that
    # moves the logits of later steps by 2e-4 at most, and a step moves them by 5e-2.
    model = Model(net, loss, nn.Momentum(net.trainable_params(), 0.001, 0.9), mode=mode, device=Device(threads=1))
    model.train(2, NumpySlicesDataset(data, ["image", "label"]).batch(4), None, sunk)
    return capsys.readouterr().out


def numbers(text):
    words = text.replace("[", " ").replace("]", " ").replace(")", " ").split()
    return np.array([float(word) for word in words if "e" in word and word[-1].isdigit()])


def test_the_resnet_of_the_guide(capsys):
    texts = {
        "sunk": trained(context.GRAPH_MODE, True, capsys),
        "steps": trained(context.GRAPH_MODE, False, capsys),
        "pynative": trained(context.PYNATIVE_MODE, False, capsys),
    }
    assert texts["sunk"] == texts["steps"]
    for text in texts.values():
        lines = [line for line in text.splitlines() if line[0] in "lg"]
        assert lines == ["logits", "gradient of the logits"] * 4
        assert text.count("Tensor(shape=[4, 10], dtype=Float32, value=\n") == 8
    found, expected = numbers(texts["sunk"]).reshape(8, 4, 10), numbers(texts["pynative"]).reshape(8, 4, 10)
    assert relative(found[0], found[4]) > 0.05  # the same batch, two steps later
    for step in range(4):
        assert relative(found[2 * step], expected[2 * step]) < 1e-3
        for logits, dout in (found[2 * step : 2 * step + 2], expected[2 * step : 2 * step + 2]):
            probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            labels = np.eye(10)[step % 2 * 4 :][:4]
            assert np.abs(dout - (probabilities - labels) / 4).max() < 1e-6

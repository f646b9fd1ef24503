"""`nn.replace_head`: the last linear layer is that which is executed last, whatever the network is built of."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from models.cnn import CNN
from models.lenet import LeNet5
from models.mlp import MLP
from models.resnet import resnet18, resnet50
from runner import dtype as dt, nn, ops
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError
from runner.host import seed
from runner.types import TensorType

rng = np.random.default_rng(3)
VECTOR, IMAGE = TensorType(dt.float32, (4, 6)), TensorType(dt.float32, (4, 3, 32, 32))


def values(*shape: int) -> Tensor:
    return Tensor(rng.normal(size=shape).astype(np.float32))


class Backwards(nn.Cell):
    """Attributes in another order than calls."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.unused, self.first = nn.Dense(5, 3), nn.Dense(5, 3), nn.Dense(6, 5)

    def construct(self, x):
        return self.last(self.first(x))


class Pooled(nn.Cell):
    """A classifier of 1 x 1 convolutions, as that of SqueezeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 8, 3, 2)
        self.classifier = nn.SequentialCell(nn.Conv2d(8, 10, 1, has_bias=True), nn.ReLU())

    def construct(self, x):
        return self.classifier(self.features(x)).mean((2, 3))


class Product(nn.Cell):
    """A head that is no layer: (inputs, outputs), or transposed; with a bias that is added, and a Softmax."""

    def __init__(self, transposed: bool = False, turned: bool = False, scale: bool = False) -> None:
        super().__init__()
        self.body = nn.Dense(6, 5)
        self.w = Parameter(values(*((3, 5) if transposed or turned else (5, 3))), "w")
        self.b = Parameter(values(1, 3), "b")
        self.scale = Parameter(values(*((3,) if scale else (1,))), "scale")
        self.product, self.turned = ops.MatMul(transpose_b=transposed), turned

    def construct(self, x):
        w = ops.Transpose()(self.w, (1, 0)) if self.turned else self.w
        return ops.Softmax()((self.product(self.body(x), w) + self.b) * self.scale)


class Sequence(nn.Cell):
    """Dense over the last of three axes, and a mean over the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(7, 6), nn.Dense(6, 3)

    def construct(self, x):
        return self.head(self.tokens(x)).mean(1)


class Stacks(nn.Cell):
    """A matrix that is broadcast to a stack of products."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(values(6, 3), "w")

    def construct(self, x):
        stack = ops.BroadcastTo((4, *self.w.shape))(self.w)
        return ops.BatchMatMul()(ops.ExpandDims()(x, 1), stack).mean(1)


class Attention(nn.Cell):
    """Products of values that follow the last layer are no layers."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Dense(6, 3, has_bias=False)

    def construct(self, x):
        value = self.value(x)
        return ops.MatMul()(ops.Softmax()(ops.MatMul(transpose_b=True)(value, value)), value)


@table(
    ("make", "kind", "names"),
    [
        (lambda: LeNet5(), TensorType(dt.float32, (2, 1, 32, 32)), ["fc3.weight", "fc3.bias"]),
        (lambda: MLP((6,), 3), VECTOR, ["layers.4.weight", "layers.4.bias"]),
        (lambda: CNN(3, 10), IMAGE, ["fc.weight", "fc.bias"]),
        (lambda: resnet18(width=4), IMAGE, ["linear.weight", "linear.bias"]),
        (lambda: resnet50(width=4, stem="imagenet"), IMAGE, ["linear.weight", "linear.bias"]),
        (Backwards, VECTOR, ["last.weight", "last.bias"]),
        (Pooled, IMAGE, ["classifier.0.weight", "classifier.0.bias"]),
        (Product, VECTOR, ["w", "b"]),
        (lambda: Product(transposed=True), VECTOR, ["w", "b"]),
        (lambda: Product(turned=True), VECTOR, ["w", "b"]),
        (Sequence, TensorType(dt.int32, (4, 5)), ["head.weight", "head.bias"]),
        (Stacks, VECTOR, ["w"]),
        (Attention, VECTOR, ["value.weight"]),
    ],
)
def test_which_layer_is_the_last(make, kind, names):
    network = make()
    before = {p.name: (p.shape, p.asnumpy().copy()) for p in network.get_parameters()}
    head = nn.replace_head(network, [kind], 7)
    assert [p.name for p in head] == names
    for name, parameter in network.parameters_dict().items():
        shape, array = before[name]
        if name in names:
            assert sorted(parameter.shape) != sorted(shape)
            assert parameter.size * next(n for n in shape if n in (3, 10)) == 7 * int(np.prod(shape))
        else:
            assert np.array_equal(parameter.asnumpy(), array)
    arrays = np.zeros(kind.shape, kind.dtype.numpy)
    for mode in MODES:
        assert step_of(network.construct, mode)(arrays)[0].shape == (kind.shape[0], 7)


def test_the_values_are_those_of_the_seed():
    def made(number: int) -> list[np.ndarray]:
        seed.set_seed(number)
        return [p.asnumpy() for p in nn.replace_head(LeNet5(), [TensorType(dt.float32, (2, 1, 32, 32))], 200)]

    (weight, bias), again, other = made(5), made(5), made(6)
    assert np.array_equal(weight, again[0])
    assert not np.array_equal(weight, other[0])
    assert weight.shape == (200, 84)
    assert np.abs(weight).max() <= np.sqrt(1 / 84)
    assert abs(weight.std() - np.sqrt(1 / 84 / 3)) < 0.002
    assert not bias.any()


def test_an_equal_number_of_outputs_gets_new_values_too():
    network = Backwards()
    before = network.last.weight.asnumpy().copy()
    nn.replace_head(network, [VECTOR], 3)
    assert network.last.weight.shape == before.shape
    assert not np.array_equal(network.last.weight.asnumpy(), before)


def test_the_layer_knows_its_outputs():
    network = Pooled()
    nn.replace_head(network, [IMAGE], 4)
    assert network.classifier[0].out_channels == 4
    assert "output_channels=4" in repr(network)
    x = rng.normal(size=(2, 8, 5, 5)).astype(np.float32)
    weight = network.classifier[0].weight.asnumpy().astype(np.float64)
    expected = np.einsum("nchw,kc->nkhw", x, weight[:, :, 0, 0])
    assert relative(step_of(network.classifier[0].construct, "pynative")(x)[0], expected) < 1e-5


class TwoHeads(nn.Cell):
    def __init__(self, chosen: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.chosen = nn.Dense(6, 3), nn.Dense(6, 2), chosen

    def construct(self, x):
        return self.a(x), self.b(x)

    def head_parameters(self):
        return {self.b.weight: 0, self.b.bias: 0} if self.chosen else None


class Tied(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 6)

    def construct(self, x):
        return ops.MatMul(transpose_b=True)(self.tokens(x).mean(1), self.tokens.embedding_table)


class Fixed(nn.Cell):
    """Needs three outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Dense(6, 3)

    def construct(self, x):
        return ops.Reshape()(self.head(x), (4, 3, 1))


class Last(nn.Cell):
    def __init__(self, *cells: nn.Cell) -> None:
        super().__init__()
        self.cells_ = nn.SequentialCell(*cells)

    def construct(self, x):
        return self.cells_(x)


TOKENS = TensorType(dt.int32, (4, 5))


@table(
    ("make", "kind", "what", "said"),
    [
        (TwoHeads, VECTOR, "several linear layers are the last one", "a.weight.*b.weight"),
        (Tied, TOKENS, "the weight of the last linear layer has another use", "tokens.embedding_table"),
        (Fixed, VECTOR, "the network needs as many outputs as its head had", "the elements do not fill the shape"),
        (lambda: Last(nn.ReLU()), VECTOR, "no linear layer leads to the outputs", "head_parameters"),
        (
            lambda: Last(nn.Conv2d(3, 4, 3), nn.Conv2dTranspose(4, 3, 2, 2)),
            IMAGE,
            "the last layer is not linear",
            "Conv2DBackpropInput.*cells_.1.weight",
        ),
        (
            lambda: Last(nn.Dense(6, 3), nn.BatchNorm1d(3)),
            VECTOR,
            "the last layer is not linear",
            "BatchNorm.*cells_.1.gamma",
        ),
        (lambda: Product(scale=True), VECTOR, "the last layer is not linear", "Mul.*scale"),
    ],
)
def test_errors(make, kind, what, said):
    with pytest.raises(ConfigError, match=f"(?s){said}") as caught:
        nn.replace_head(make(), [kind], 9, {"key": "network.head"})
    assert caught.value.what == what
    assert caught.value.rows["key"] == "network.head"


def test_a_network_may_name_its_head():
    network = TwoHeads(chosen=True)
    head = nn.replace_head(network, [VECTOR], 9)
    assert [p.name for p in head] == ["b.weight", "b.bias"]
    assert [y.shape for y in step_of(network.construct, "pynative")(np.zeros((4, 6), np.float32))] == [(4, 3), (4, 9)]


@table("count", [0, -1, 2.5, True])
def test_impossible_numbers(count):
    with pytest.raises(ConfigError):
        nn.replace_head(Backwards(), [VECTOR], count)

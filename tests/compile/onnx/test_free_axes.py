"""Exported networks take batches of any size: as the network itself computes them, or else they say why not."""

import itertools
import json
import random

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from soak import thinned
from tables import table

from runner import Model, Tensor, context, dtype, nn, ops, register, set_seed
from runner.compile import export_onnx
from runner.config.groups.entries import NETWORKS
from runner.core.gradients import gradients
from runner.core.values import Parameter
from runner.train.model import inference
from runner.types import TensorType

SIZES = (1, 2, 3, 8, 33)


def values(kind: TensorType, rows: int, seed: int = 0) -> np.ndarray:
    shape = (rows, *kind.shape[1:])
    numbers = np.random.default_rng(seed)
    drawn = numbers.standard_normal(shape) if kind.dtype.is_float else numbers.integers(0, 5, shape)
    return drawn.astype(kind.dtype.numpy)


def floats(*shape: int) -> TensorType:
    return TensorType(dtype.float32, shape)


def whole(*shape: int) -> TensorType:
    return TensorType(dtype.int32, shape)


class Lambda(nn.Cell):
    """A network of one expression."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def construct(self, *inputs):
        return self.function(*inputs)


class Attention(nn.Cell):
    """Heads by reshapes and transpositions, as usually written: with the length of the batch."""

    def __init__(self, width=12, heads=3, tokens=6):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm((width,))
        self.query, self.key, self.value, self.out = (nn.Dense(width, width, "he_uniform") for _ in range(4))
        self.table = nn.Embedding(5, width)
        self.first = Parameter(Tensor(np.full((1, 1, width), 0.1, np.float32)), "first")
        self.place = Parameter(Tensor(np.linspace(0, 1, (tokens + 1) * width, dtype=np.float32)), "place")
        self.last = nn.Dense(width, 4, "he_uniform")

    def split(self, x, rows, length, width):
        x = ops.Reshape()(x, (rows, length, self.heads, width // self.heads))
        return ops.Transpose()(x, (0, 2, 1, 3))

    def construct(self, words):
        x = self.table(words)
        rows, length, width = x.shape
        x = ops.Concat(1)((ops.Tile()(self.first, (rows, 1, 1)), x))
        length += 1
        x = x + ops.BroadcastTo((rows, length, width))(ops.Reshape()(self.place, (1, length, width)))
        flat = ops.Reshape()(self.norm(x), (rows * length, width))
        query, key, value = (self.split(f(flat), rows, length, width) for f in (self.query, self.key, self.value))
        weights = ops.Softmax()(ops.BatchMatMul(transpose_b=True)(query, key) * 0.5)
        mixed = ops.Transpose()(ops.BatchMatMul()(weights, value), (0, 2, 1, 3))
        mixed = self.out(ops.Reshape()(mixed, (rows * length, width)))
        x = x + ops.Reshape()(ops.GeLU()(mixed), (rows, length, width))
        return self.last(ops.Reshape()(ops.Slice((0, 0, 0), (rows, 1, width))(x), (rows, width)))


class Recurrent(nn.Cell):
    """A state that begins with zeros for every row, and is in the next step what `over` makes of it."""

    def __init__(self, width, over):
        super().__init__()
        self.width, self.into, self.over = width, nn.Dense(4, width, "he_uniform"), over

    def construct(self, x):
        state = Tensor(np.zeros((x.shape[0], self.width), np.float32))
        for step in ops.Unstack(1)(x):
            state = ops.Tanh()(self.into(step) + self.over(state))
        return state


class Pair(nn.Cell):
    """Two inputs of the same batch, a number per row, and three outputs."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Dense(4, 3, "he_uniform"), nn.Dense(2, 3, "he_uniform")

    def construct(self, x, y, words):
        both = self.left(x) * self.right(y)
        rows = x.shape[0]
        doubled = ops.Concat(0)((both, both + 1.0))
        return both + ops.OneHot(depth=3)(words), doubled, ops.Reshape()(ops.ReduceSum(False, 1)(both), (1, rows))


def convolutional():
    layers = nn.Conv2d(3, 6, 3, weight_init="he_uniform"), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2, 2)
    return nn.SequentialCell(*layers, nn.AvgPool2d(2, 2), nn.Flatten(), nn.Dense(24, 5, "he_uniform"))


def perceptron(width=32):
    return nn.SequentialCell(nn.Dense(width, 32, "he_uniform"), nn.BatchNorm1d(32), nn.ReLU(), nn.Dense(32, 5))


def similarities(x):
    """Every row with every other: a matrix whose sides are the batch."""
    products = ops.MatMul(transpose_b=True)(x, x)
    return ops.Reshape()(ops.ExpandDims()(products, 0), (x.shape[0], x.shape[0]))


def centred(x):
    mean = ops.ReduceMean(True, 0)(x)
    return x - ops.BroadcastTo(x.shape)(mean)


def repeated(x):
    return ops.Tile()(ops.ReduceMean(True, 0)(x), (x.shape[0] * 2 + 1, 1))


def halves(x):
    first, second = ops.Split(1, 2)(x)
    return ops.Stack(1)((first, second))


def slopes_of_pools(x):
    pooled = ops.MaxPool(3, 2, "pad", padding=1)(x)
    mean = ops.AvgPool((2, 3), 2, "pad", padding=(1, 0, 1, 1), dilation=(2, 1), ceil_mode=True)(pooled)
    return gradients(mean * mean, [x])[0]


def built_in(name: str, **arguments):
    return lambda: register.network[name].source(**arguments)


# A network, the types of its inputs; the batch is also a length of something else where that could mislead.
FREE = {
    "lenet5": (built_in("lenet5"), [floats(32, 1, 32, 32)]),
    "cnn": (built_in("cnn", num_classes=4, num_channels=3), [floats(8, 3, 8, 8)]),
    "mlp": (built_in("mlp", num_classes=4, input_shape=(6,)), [floats(6, 6)]),
    "resnet18": (built_in("resnet18", width=16), [floats(32, 3, 32, 32)]),
    "convolutional": (convolutional, [floats(6, 3, 8, 8)]),
    **{f"perceptron-{rows}": (perceptron, [floats(rows, 32)]) for rows in (1, 5, 7, 32, 64)},
    **{f"attention-{rows}": (Attention, [whole(rows, 6)]) for rows in (2, 3, 6, 7, 12)},
    "recurrent": (lambda: Recurrent(8, nn.Dense(8, 8, "he_uniform")), [floats(9, 3, 4)]),
    "recurrent-folded-only-when-small": (lambda: Recurrent(9000, nn.Tanh()), [floats(8, 2, 4)]),
    "pair": (Pair, [floats(4, 4), floats(4, 2), whole(4)]),
    "similarities": (lambda: Lambda(similarities), [floats(6, 3)]),
    "centred": (lambda: Lambda(centred), [floats(6, 3)]),
    "repeated": (lambda: Lambda(repeated), [floats(6, 3)]),
    "halves": (lambda: Lambda(halves), [floats(6, 4)]),
    "slopes-of-pools": (lambda: Lambda(slopes_of_pools), [floats(6, 2, 9, 11)]),
    "identity": (lambda: Lambda(lambda x: x), [floats(6, 4)]),
    "ones": (lambda: Lambda(lambda x: x * Tensor(np.ones(x.shape, np.float32))), [floats(6, 4)]),
    "rows-of-a-table": (
        lambda: Lambda(lambda x: x + Tensor(np.tile(np.arange(4, dtype=np.float32), (x.shape[0], 1)))),
        [floats(6, 4)],
    ),
    "inferred": (lambda: Lambda(lambda x: ops.Reshape()(x, (-1, 3, 2))), [floats(2, 6)]),
    "outputs-without-elements": (lambda: Lambda(lambda x: ops.Reshape()(x, (x.shape[0] * 2, 0))), [floats(3, 0)]),
    "constant": (lambda: Lambda(lambda x: (x, Tensor(np.arange(3, dtype=np.float32)))), [floats(6, 4)]),
}


def session(content: bytes) -> ort.InferenceSession:
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    return ort.InferenceSession(content, providers=["CPUExecutionProvider"])


def metadata(content: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load_from_string(content).metadata_props}


def compare(content: bytes, network: nn.Cell, types: list[TensorType], sizes=SIZES) -> None:
    """Against the network in numpy, and bit for bit against a model for exactly that size."""
    free = session(content)
    model = Model(network, mode=context.PYNATIVE_MODE)
    for rows in sizes:
        inputs = [values(kind, rows, k) for k, kind in enumerate(types)]
        made = free.run(None, {f"input{k}": x for k, x in enumerate(inputs)})
        expected = model.predict(*inputs)
        for y, z in zip(made, expected if isinstance(expected, tuple) else [expected], strict=True):
            np.testing.assert_allclose(y, z.asnumpy(), rtol=1e-5, atol=1e-5, err_msg=f"{rows} rows")
        with inference(network, None):
            of_size = [kind.with_shape(rows, *kind.shape[1:]) for kind in types]
            exact = session(export_onnx(network.construct, of_size, "network", free=[{} for _ in types]))
        for y, z in zip(made, exact.run(None, {f"input{k}": x for k, x in enumerate(inputs)}), strict=True):
            assert y.tobytes() == z.tobytes(), f"{rows} rows"


@table("name", [*thinned(FREE, every=2)], ids=str)
def test_any_batch_size(name):
    set_seed(0)
    build, types = FREE[name]
    network = build()
    content = Model(network).export(types)
    assert metadata(content)["batch"] == "any", metadata(content)
    proto = onnx.load_from_string(content)
    for entry in list(proto.graph.input)[: len(types)]:
        assert entry.type.tensor_type.shape.dim[0].dim_param == "batch"
    compare(content, network, types, SIZES[:3] if name.startswith("resnet") else SIZES)


@pytest.mark.parametrize("name", ["resnet34", "resnet50", "resnet101", "resnet152"])
def test_every_built_in_network_takes_any_batch_size(name):
    assert {name, *FREE} > set(NETWORKS) - {"onnx", "resnet34", "resnet50", "resnet101", "resnet152"}
    content = Model(built_in(name)()).export([floats(32, 3, 32, 32)])
    assert metadata(content)["batch"] == "any"


def test_the_names_are_those_of_the_network_for_one_size():
    network, types = convolutional(), [floats(6, 3, 8, 8)]
    fixed = onnx.load_from_string(export_onnx(network.set_train(False).construct, types, "network", free=[{}]))
    free = onnx.load_from_string(Model(network).export(types))
    read = {value for graph in (fixed.graph,) for node in graph.node for value in node.input} | {"output0"}
    needed = [node for node in fixed.graph.node if read & set(node.output)]
    names = [(node.name, node.op_type) for node in free.graph.node]
    assert names == [entry for entry in ((node.name, node.op_type) for node in needed) if entry in names]
    assert len(names) >= 0.8 * len(needed)
    weights = ({i.name: i for i in proto.graph.initializer if ":" not in i.name} for proto in (free, fixed))
    assert next(weights) == next(weights)


def hard_coded(x):
    return ops.Reshape()(x, (6, 2, 2))


def branching(x):
    return x * 2.0 if x.shape[0] == 6 else x


def failing(x):
    return [x + 1.0][x.shape[0] - 6]


FIXED = {
    "hard-coded": (hard_coded, "do not fill the shape"),
    "branching": (branching, "of the network depend on the length"),
    "failing": (failing, "IndexError: list index out of range"),
    "a mean that is written out": (lambda x: ops.ReduceSum(False, 0)(x) / float(x.shape[0]), "the numbers"),
    "numbers of the rows": (lambda x: x + Tensor(np.arange(x.shape[0], dtype=np.float32)[:, None]), "the numbers"),
    "half of the rows": (lambda x: ops.Slice((0, 0), (x.shape[0] // 2, 4))(x), "the numbers"),
    "one result per row": (lambda x: ops.Unstack(0)(x), "its inputs or outputs"),
    "squares": (lambda x: ops.BroadcastTo((x.shape[0] ** 2, 4))(ops.Slice((0, 0), (1, 4))(x)), "the numbers"),
    "as many operators as rows": (lambda x: sum((x for _ in range(x.shape[0])), start=x), "of the network depend"),
    "attributes": (lambda x: ops.Transpose()(x, (0, 1) if x.shape[0] == 6 else (1, 0)), "depend on the length"),
    "rank": (lambda x: ops.Reshape()(x, (1,) * (x.shape[0] % 2) + (-1, 4)), "depend"),
    "a random table": (
        lambda x: x + Tensor(np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)),
        "the numbers",
    ),
}


@table("name", FIXED, ids=str)
def test_a_network_for_one_batch_size_says_so(name):
    function, reason = FIXED[name]
    content = Model(Lambda(function)).export([floats(6, 4)])
    described = metadata(content)
    assert described["batch"] == "6"
    assert reason in described["batch_reason"]
    x = values(floats(6, 4), 6)
    made = session(content).run(None, {"input0": x})
    expected = Model(Lambda(function), mode=context.PYNATIVE_MODE).predict(x)
    for y, z in zip(made, expected if isinstance(expected, tuple) else [expected], strict=True):
        np.testing.assert_allclose(y, z.asnumpy(), rtol=1e-6, atol=1e-6)


def test_inputs_without_the_batch_keep_their_shape():
    def scaled(x, table, number):
        return ops.MatMul()(x, table) * number

    content = Model(Lambda(scaled)).export([floats(6, 4), floats(4, 3), floats()])
    made = session(content)
    assert [entry.shape for entry in made.get_inputs()] == [["batch", 4], [4, 3], []]
    x, y, number = values(floats(6, 4), 2), values(floats(4, 3), 4), np.float32(2)
    (result,) = made.run(None, {"input0": x, "input1": y, "input2": np.asarray(number)})
    np.testing.assert_allclose(result, x @ y * 2, rtol=1e-5, atol=1e-6)


def test_metadata_are_those_given_and_names_in_equal_bytes():
    network, types = Pair(), [floats(4, 4), floats(4, 2), whole(4)]
    contents = [Model(network).export(types, {"class_names": '["a", "ä"]', "runner": "1"}) for _ in range(2)]
    assert contents[0] == contents[1]
    described = metadata(contents[0])
    assert json.loads(described["input"]) == ["input0", "input1", "input2"]
    assert json.loads(described["output"]) == ["output0", "output1", "output2"]
    assert (described["class_names"], described["runner"]) == ('["a", "ä"]', "1")
    declared = [[d.dim_param or d.dim_value for d in y.type.tensor_type.shape.dim] for y in proto_outputs(contents[0])]
    assert declared == [["batch", 3], [0, 3], [1, "batch"]]


def proto_outputs(content: bytes) -> list[onnx.ValueInfoProto]:
    return list(onnx.load_from_string(content).graph.output)


STEPS = {
    "dense": lambda x: ops.ReLU()(x * 0.5 + 1.0),
    "flat": lambda x: ops.Reshape()(ops.Reshape()(x, (x.size,)), x.shape),
    "turned": lambda x: ops.Reshape()(ops.Transpose()(x, (1, 0, 2)), (x.shape[0], x.shape[1], x.shape[2])),
    "mixed": lambda x: ops.BatchMatMul()(ops.Softmax()(ops.BatchMatMul(transpose_b=True)(x, x)), x),
    "centred": lambda x: x - ops.Tile()(ops.ReduceMean(True, (0, 1))(x), (x.shape[0], x.shape[1], 1)),
    "doubled": lambda x: ops.Slice((x.shape[0], 0, 0), x.shape)(ops.Concat(0)((x, x * 2.0))),
    "regrouped": lambda x: ops.Reshape()(
        ops.Softmax()(ops.Reshape()(x, (x.shape[0] * x.shape[1], x.shape[2]))), (x.shape[0], x.shape[1], x.shape[2])
    ),
    "zeros": lambda x: ops.Concat(2)((x, Tensor(np.zeros((x.shape[0], x.shape[1], 1), np.float32)))),
    "masked": lambda x: ops.Select()(x > 0.0, x, ops.ZerosLike()(x)),
}


@table("number", range(40), ids=str)
def test_networks_made_at_random(number):
    chosen = random.Random(number)
    steps = [chosen.choice(list(STEPS)) for _ in range(chosen.randint(2, 7))]
    rows, length, width = (chosen.choice((1, 2, 3, 5, 6, 7, 11)) for _ in range(3))

    def network(x):
        for step in steps:
            x = STEPS[step](x)
        return x

    types = [floats(rows, length, width)]
    cell = Lambda(network)
    content = Model(cell).export(types)
    if metadata(content)["batch"] != "any":
        assert rows == 1 or "turned" in steps, (steps, metadata(content))  # with one row, other shapes are possible
        return
    compare(content, cell, types, itertools.chain((1, 2, rows), (13,)))

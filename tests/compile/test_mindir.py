"""MindIR files: what protobuf's own library reads in them, and what is refused. `test_mindspore.py` runs them."""

import numpy as np
import pytest
from mindir_schema import decoded, described
from samples import SAMPLES
from tables import table

from models.cnn import CNN
from models.lenet import LeNet5
from models.mlp import MLP
from models.resnet import resnet18
from runner import dtype as dt, export, nn, ops
from runner.compile import mindir as exports
from runner.compile.mindir import RULES, export_mindir
from runner.core.operators import REGISTRY
from runner.core.values import Tensor, Value
from runner.errors import ConfigError
from runner.types import TensorType

NETWORKS = {
    "lenet5": (LeNet5, (1, 32, 32)),
    "cnn": (lambda: CNN(3, 10, (4, 8), dropout=0.5), (3, 12, 12)),
    "mlp": (lambda: MLP((6,), 3, (5,), "gelu", 0.5), (6,)),
    "resnet18": (lambda: resnet18(width=4), (3, 32, 32)),
    "resnet18 imagenet": (lambda: resnet18(width=4, stem="imagenet"), (3, 64, 64)),
    "resnet18 torchvision": (lambda: resnet18(width=4, stem="torchvision"), (3, 64, 64)),
}
FLOAT32 = 1


def floats(*shape: int) -> TensorType:
    return TensorType(dt.float32, shape)


def exported(cell: nn.Cell, *types: TensorType):
    return decoded(export_mindir(cell.set_train(False).construct, types, "network"))


class Function(nn.Cell):
    """A cell that computes a function of tensors."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def construct(self, *inputs: Value):
        return self.function(*inputs)


@table("name", NETWORKS)
def test_the_names_and_types_of_a_network(name):
    make, shape = NETWORKS[name]
    network = make()
    model = exported(network, floats(4, *shape))
    graph = model.graph
    assert (model.ir_version, model.producer_name, model.mind_ir_version) == ("0.1.0", "runner", 2)
    assert model.little_endian
    assert [(x.name, tuple(x.tensor[0].dims)) for x in graph.input] == [("network:input0", (-1, *shape))]
    assert graph.output[0].tensor[0].dims[0] == -1
    weights = {p.name.removeprefix("network:"): np.frombuffer(p.raw_data, np.float32) for p in graph.parameter}
    used = {p.name: p.asnumpy() for p in network.get_parameters() if p.name in weights}
    assert {p.name for p in network.trainable_params()} <= set(used) == set(weights)
    for parameter in graph.parameter:
        plain = parameter.name.removeprefix("network:")
        assert tuple(parameter.dims) == used[plain].shape
        assert np.array_equal(weights[plain].reshape(used[plain].shape), used[plain])


@table("name", NETWORKS)
def test_every_value_is_defined_once_and_before_its_use(name):
    make, shape = NETWORKS[name]
    graph = exported(make(), floats(4, *shape)).graph
    defined = [*(x.name for x in graph.input), *(p.name for p in graph.parameter)]
    for node in graph.node:
        assert set(node.input) <= set(defined)
        defined += node.output
    assert len(defined) == len(set(defined))
    assert {y.name for y in graph.output} <= set(defined)


def test_full_names_are_those_of_the_operators():
    graph = exported(LeNet5(), floats(4, 1, 32, 32)).graph
    assert [node.domain for node in graph.node if node.op_type == "Conv2D"] == [
        "Default/conv1-Conv2d/Conv2D-op0",
        "Default/conv2-Conv2d/Conv2D-op3",
    ]


X = (None,)
CONVOLUTION = {
    "out_channel": 6,
    "kernel_size": (3, 3),
    "mode": 1,
    "pad_mode": "pad",
    "pad": (1, 1, 1, 1),
    "group": 1,
    "stride": (1, 1, 2, 2),
    "dilation": (1, 1, 1, 1),
    "format": "NCHW",
    "pad_list": (1, 1, 1, 1),
    "groups": 1,
}
FORMS = [
    (ops.Softmax(1), [(2, 3)], "Softmax", (*X, (1,)), {}),
    (ops.MatMul(transpose_b=True), [(2, 3), (4, 3)], "MatMul", (*X, *X, False, True), {}),
    (ops.ReduceMean(True, None), [(2, 3)], "ReduceMean", (*X, (), True), {}),
    (ops.ReduceSum(False, -1), [(2, 3)], "ReduceSum", (*X, (-1,), False, False), {}),
    (ops.Cast(dt.float16), [(2, 3)], "Cast", (*X, 42), {}),
    (ops.Argmax(0, dt.int64), [(2, 3)], "Argmax", (*X, 0, 35), {}),
    (ops.BroadcastTo((2, 3)), [(3,)], "BroadcastTo", (*X, (2, 3)), {}),
    (ops.AvgPool(2, 2, "same"), [(2, 3, 4, 4)], "AvgPool", (*X, (2, 2), (2, 2), 1, 0), {}),
    (ops.Conv2D(6, 3, pad_mode="pad", pad=1, stride=2), [(2, 3, 8, 8), (6, 3, 3, 3)], "Conv2D", (*X, *X), CONVOLUTION),
    (
        ops.MaxPool(3, 2, "same"),
        [(2, 3, 8, 8)],
        "MaxPool",
        X,
        {"kernel_size": (1, 1, 3, 3), "strides": (1, 1, 2, 2), "pad_mode": "SAME", "format": "NCHW"},
    ),
]


@table(("op", "shapes", "primitive", "operands", "attributes"), FORMS)
def test_the_node_of_an_operator(op, shapes, primitive, operands, attributes):
    (node,) = described(exported(Function(op), *(floats(*shape) for shape in shapes)))
    node[2].pop("shape")
    assert node == (primitive, operands, attributes)


def test_an_epsilon_is_the_nearest_float():
    nodes = described(exported(nn.BatchNorm2d(3), floats(2, 3, 4, 4)))
    assert [name for name, _, _ in nodes] == ["BatchNorm", *["TupleGetItem"] * 5]
    assert nodes[0][1][5:] == (False, np.float32(1e-5), np.float32(0.1), 0)
    assert [operands[1] for _, operands, _ in nodes[1:]] == [0, 1, 2, 3, 4]


def test_padding_by_numbers_is_an_operator_of_its_own():
    pool = ops.MaxPool(3, 2, "pad", padding=(1, 0, 2, 1))
    before, pooled = described(exported(Function(pool), floats(2, 3, 8, 8)))
    assert before == ("PadV3", (None, (2, 1, 1, 0), -np.inf), {"mode": "constant", "paddings_contiguous": True})
    assert (pooled[0], pooled[2]["pad_mode"]) == ("MaxPool", "VALID")


def test_several_operands_of_one_argument_are_a_tuple():
    (made, joined) = described(exported(Function(lambda x, y: ops.Concat(1)(x, y)), floats(2, 3), floats(2, 4)))
    assert made == ("MakeTuple", (None, None), {"shape": (((FLOAT32, (-1, 3)),), ((FLOAT32, (-1, 4)),))})
    assert joined == ("Concat", (None, 1), {"shape": ((FLOAT32, (-1, 7)),)})


@table(
    ("function", "length"),
    [
        (lambda x: ops.Reshape()(x, (x.shape[0], 6)), -1),
        (lambda x: x * 2.0, -1),
        (lambda x: ops.Transpose()(x, (2, 0, 1)), 2),  # -1 is then the second axis
        (lambda x: x * (1.0 / x.shape[0]), 4),
        (lambda x: ops.Reshape()(x, (2 * x.shape[0], 3)), -1),
        (lambda x: x if x.shape[0] < 9 else -x, 4),
        (lambda x: ops.Tile()(x, (x.shape[0], 1, 1)), 16),
        (lambda x: x + Tensor(np.ones((4, 3, 2), np.float32)), 4),
    ],
    ids=["reshaped", "scaled", "transposed", "divided", "doubled", "branched", "repeated", "added"],
)
def test_the_batch_is_free_where_two_sizes_agree(function, length):
    model = exported(Function(function), floats(4, 3, 2))
    assert model.graph.output[0].tensor[0].dims[0] == length


UNSUPPORTED = [
    lambda x: ops.TopK()(x, 2)[0],
    lambda x: ops.MaxPool(2, 2, "pad", ceil_mode=True)(x.reshape(2, 1, 3, 2)),
    lambda x: ops.Div()(ops.Cast(dt.int32)(x), ops.Cast(dt.int32)(x)),
    ops.Elu(0.5),
    ops.Elu(0.25),
]


def test_all_operators_that_mindir_does_not_have_are_listed():
    with pytest.raises(ConfigError, match="MindIR does not have every operator of the network") as caught:
        exported(Function(lambda x: [function(x) for function in UNSUPPORTED]), floats(2, 3, 2))
    rows = caught.value.rows
    assert rows.pop("repair") == "ONNX, which other programs read"
    assert rows == {
        "TopK": "Default/TopK-op0",
        "MaxPool": "ceil_mode=True: Default/MaxPool-op2",
        "Div": "Int32: Default/Div-op5",
        "Elu": "alpha=0.5: Default/Elu-op6\nalpha=0.25: Default/Elu-op7",
    }


def test_a_result_that_is_another_one_in_mindspore_is_refused():
    norm = ops.BatchNorm()

    def statistics(*operands: Value):
        return norm(*operands)[0], norm(*operands)[4]

    with pytest.raises(ConfigError) as caught:
        exported(Function(statistics), floats(2, 3, 4, 4), *[floats(3)] * 4)
    assert caught.value.rows["BatchNorm"] == "result 1 and following: Default/BatchNorm-op0"


def test_what_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(exports, "MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match="do not fit into a MindIR file"):
        exported(LeNet5(), floats(1, 1, 32, 32))


def test_every_rule_is_of_an_operator_with_samples():
    assert set(RULES) <= set(REGISTRY) & {sample.op.name for sample in SAMPLES}


def test_a_script_exports_mindir(tmp_path):
    image, file = Tensor(np.zeros((2, 1, 32, 32), np.float32)), tmp_path / "net.mindir"
    export(LeNet5(), image, file_name=str(tmp_path / "net"), file_format="MINDIR")
    assert [*tmp_path.iterdir()] == [file]
    assert len(described(decoded(file.read_bytes()))) == 15

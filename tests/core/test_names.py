"""Full names of operators: equal in both modes."""

import numpy as np
import pytest
from both_modes import MODES, digits, lenet_step, nodes_of

from models.lenet import LeNet5
from runner import context, nn, ops
from runner.core.operators import Node
from runner.errors import ShapeError

NETWORK = "Default/network-WithLossCell/_backbone-LeNet5"
LOSS = "Default/network-WithLossCell/_loss_fn-SoftmaxCrossEntropyWithLogits"
LENET = [
    f"{NETWORK}/conv1-Conv2d/Conv2D-op0",
    f"{NETWORK}/relu-ReLU/ReLU-op1",
    f"{NETWORK}/max_pool2d-MaxPool2d/MaxPool-op2",
    f"{NETWORK}/conv2-Conv2d/Conv2D-op3",
    f"{NETWORK}/relu-ReLU/ReLU-op4",
    f"{NETWORK}/max_pool2d-MaxPool2d/MaxPool-op5",
    f"{NETWORK}/flatten-Flatten/Flatten-op6",
    f"{NETWORK}/fc1-Dense/MatMul-op7",
    f"{NETWORK}/fc1-Dense/BiasAdd-op8",
    f"{NETWORK}/relu-ReLU/ReLU-op9",
    f"{NETWORK}/fc2-Dense/MatMul-op10",
    f"{NETWORK}/fc2-Dense/BiasAdd-op11",
    f"{NETWORK}/relu-ReLU/ReLU-op12",
    f"{NETWORK}/fc3-Dense/MatMul-op13",
    f"{NETWORK}/fc3-Dense/BiasAdd-op14",
    f"{LOSS}/SparseSoftmaxCrossEntropyWithLogits-op15",
    f"Gradients/{LOSS}/gradSparseSoftmaxCrossEntropyWithLogits/SparseSoftmaxCrossEntropyWithLogits-op16",
    f"Gradients/{LOSS}/gradSparseSoftmaxCrossEntropyWithLogits/Mul-op17",
    f"Gradients/{NETWORK}/fc3-Dense/gradBiasAdd/BiasAddGrad-op18",
    f"Gradients/{NETWORK}/fc3-Dense/gradMatMul/MatMul-op19",
    f"Gradients/{NETWORK}/fc3-Dense/gradMatMul/MatMul-op20",
    f"Gradients/{NETWORK}/relu-ReLU/gradReLU/ReluGrad-op21",
    f"Gradients/{NETWORK}/fc2-Dense/gradBiasAdd/BiasAddGrad-op22",
    f"Gradients/{NETWORK}/fc2-Dense/gradMatMul/MatMul-op23",
    f"Gradients/{NETWORK}/fc2-Dense/gradMatMul/MatMul-op24",
    f"Gradients/{NETWORK}/relu-ReLU/gradReLU/ReluGrad-op25",
    f"Gradients/{NETWORK}/fc1-Dense/gradBiasAdd/BiasAddGrad-op26",
    f"Gradients/{NETWORK}/fc1-Dense/gradMatMul/MatMul-op27",
    f"Gradients/{NETWORK}/fc1-Dense/gradMatMul/MatMul-op28",
    f"Gradients/{NETWORK}/flatten-Flatten/gradFlatten/Reshape-op29",
    f"Gradients/{NETWORK}/max_pool2d-MaxPool2d/gradMaxPool/MaxPoolGrad-op30",
    f"Gradients/{NETWORK}/relu-ReLU/gradReLU/ReluGrad-op31",
    f"Gradients/{NETWORK}/conv2-Conv2d/gradConv2D/Conv2DBackpropInput-op32",
    f"Gradients/{NETWORK}/conv2-Conv2d/gradConv2D/Conv2DBackpropFilter-op33",
    f"Gradients/{NETWORK}/max_pool2d-MaxPool2d/gradMaxPool/MaxPoolGrad-op34",
    f"Gradients/{NETWORK}/relu-ReLU/gradReLU/ReluGrad-op35",
    f"Gradients/{NETWORK}/conv1-Conv2d/gradConv2D/Conv2DBackpropFilter-op36",
    *(f"Default/optimizer-Momentum/ApplyMomentum-op{number}" for number in range(37, 45)),
]
X = np.ones((2, 3), np.float32)


def names(function, mode: str, *arrays: np.ndarray) -> list[str]:
    return [node.name for node in nodes_of(function, mode, *arrays)]


def without_classes(name: str) -> str:
    *scope, operator = name.split("/")
    return "/".join([*(part.partition("-")[0] for part in scope), operator])


@pytest.mark.parametrize("mode", MODES)
def test_a_training_step_of_lenet(mode):
    assert names(lenet_step().construct, mode, *digits(1)[0]) == LENET


@pytest.mark.parametrize("mode", MODES)
def test_without_class_names(mode):
    context.set_context(reserve_class_name_in_scope=False)
    made = names(lenet_step().construct, mode, *digits(1)[0])
    assert made == [without_classes(name) for name in LENET]
    assert made[0] == "Default/network/_backbone/conv1/Conv2D-op0"
    assert made[-1] == "Default/optimizer/ApplyMomentum-op44"


@pytest.mark.parametrize("mode", MODES)
def test_a_sunk_step_has_one_more_level(mode):
    made = names(lenet_step(), mode, *digits(1)[0])
    prefix = "Default/TrainOneStepCell"
    expected = [name.replace("Default", prefix, 1) for name in LENET]
    assert made == expected


@pytest.mark.parametrize("mode", MODES)
def test_a_shared_cell_keeps_its_first_name(mode):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.first = nn.Dense(3, 3)
            self.second = self.first
            self.last = nn.SequentialCell(self.first, nn.ReLU())

        def construct(self, x):
            return self.last(self.second(self.first(x)))

    net = Net()
    assert [p.name for p in net.get_parameters()] == ["first.weight", "first.bias"]
    assert names(net.construct, mode, X) == [
        "Default/first-Dense/MatMul-op0",
        "Default/first-Dense/BiasAdd-op1",
        "Default/first-Dense/MatMul-op2",
        "Default/first-Dense/BiasAdd-op3",
        "Default/last-SequentialCell/first-Dense/MatMul-op4",
        "Default/last-SequentialCell/first-Dense/BiasAdd-op5",
        "Default/last-SequentialCell/1-ReLU/ReLU-op6",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_operators_that_are_called_directly_stand_in_the_scope_of_the_cell(mode):
    class Inner(nn.Cell):
        def construct(self, x):
            return ops.Tanh()(x * 2.0) + x

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def construct(self, x):
            return ops.Neg()(self.inner(x))

    inner = "Default/inner-Inner"
    assert names(Net().construct, mode, X) == [
        f"{inner}/Mul-op0",
        f"{inner}/Tanh-op1",
        f"{inner}/Add-op2",
        "Default/Neg-op3",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_numbers_start_again_with_each_step(mode):
    network = LeNet5()
    x = digits(1)[0][0]
    first, second = names(network.construct, mode, x), names(network.construct, mode, x)
    assert first == second
    assert [int(name.rpartition("-op")[2]) for name in first] == list(range(15))


@pytest.mark.parametrize("mode", MODES)
def test_a_scope_ends_when_its_cell_fails(mode):
    class Careful(nn.Cell):
        def __init__(self):
            super().__init__()
            self.wide = nn.Dense(7, 7)

        def construct(self, x):
            with pytest.raises(ShapeError):
                self.wide(x)
            return ops.Neg()(x)

    assert names(Careful().construct, mode, X) == ["Default/Neg-op0"]


def test_both_modes_record_the_same_operators_on_the_same_types():
    arrays = digits(1, batch=4)[0]
    for optimizer in ("momentum", "sgd", "adam"):
        eager, graph = (nodes_of(lenet_step(optimizer).construct, mode, *arrays) for mode in MODES)
        assert [described(node) for node in eager] == [described(node) for node in graph]


def described(node: Node) -> tuple[object, ...]:
    types = [tuple(x.type for x in values) for values in (node.inputs, node.outputs)]
    return node.name, node.op, *types

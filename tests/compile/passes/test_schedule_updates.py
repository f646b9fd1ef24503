"""Updates move up to their gradients: nothing is lost or computed twice, nothing waits for what comes later, and less
memory is alive at once. The memory is counted here, from the graph alone."""

import math
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from training_steps import lenet, resnet, results, training_step

from runner import dtype as dt, nn, ops
from runner.compile.onnx.lower import lower
from runner.compile.passes import PASSES, default_passes, optimize
from runner.compile.passes.order import schedule_updates
from runner.core.gradients import gradients
from runner.core.graph import Graph, verify
from runner.core.interpreter import current
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor, Value
from runner.device import Device
from runner.types import TensorType

PLAIN = tuple(apply for apply in PASSES if apply is not schedule_updates)
SQUARE = TensorType(dt.float32, (4, 4))
OPTIMIZERS: dict[str, Callable[[list[Parameter]], nn.Optimizer]] = {
    "momentum": lambda p: nn.Momentum(p, 0.01, 0.9),
    "momentum with decay": lambda p: nn.Momentum(p, 0.01, 0.9, weight_decay=1e-3),
    "sgd": lambda p: nn.SGD(p, 0.01, 0.9, weight_decay=1e-3, nesterov=True),
    "adam": lambda p: nn.Adam(p, 1e-3, weight_decay=1e-3, loss_scale=2.0),
}
NETWORKS = {"lenet": lenet, "resnet": resnet}


def step_graph(network: str, optimizer: str) -> tuple[Graph, tuple[np.ndarray, ...]]:
    """A training step as the other passes leave it, and a batch."""
    cell, (image, label) = NETWORKS[network]()
    step = training_step(cell, OPTIMIZERS[optimizer])
    types = [TensorType.of(image), TensorType.of(label)]
    return optimize(trace(step.construct, types, "step"), PLAIN), (image, label)


def waiting_gradients(graph: Graph) -> int:
    """Most bytes of gradients that wait for their update at the same time."""
    readers: dict[Value, list[int]] = {}
    for place, node in enumerate(graph.nodes):
        for x in node.inputs:
            readers.setdefault(x, []).append(place)
    inner = {x for node in graph.nodes if node.scope.startswith("Gradients/") for x in node.inputs}
    alive = dict.fromkeys(range(len(graph.nodes)), 0)
    for place, node in enumerate(graph.nodes):
        for y in node.outputs:
            if node.scope.startswith("Gradients/") and y in readers and y not in inner:
                for later in range(place, max(readers[y]) + 1):
                    alive[later] += y.size * y.dtype.size
    return max(alive.values())


def live_peak(model: onnx.ModelProto) -> int:
    """Most bytes that are alive at once when the nodes run in their order: a value is from the node that makes it to
    the last one that reads it. A Reshape takes no memory; inputs and parameters are there anyway."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    size = {v.name: _bytes(v.type.tensor_type) for v in (*inferred.value_info, *inferred.output)}
    whole: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "Reshape":
            whole[node.output[0]] = whole.get(node.input[0], node.input[0])
            size.setdefault(whole[node.output[0]], size.get(node.output[0], 0))  # ONNX does not know FusedConv
    steps = [({whole.get(y, y) for y in n.output}, {whole.get(x, x) for x in n.input}) for n in model.graph.node]
    last = {value: place for place, (made, read) in enumerate(steps) for value in made | read}
    last |= {whole.get(y.name, y.name): len(steps) for y in model.graph.output}
    alive: set[str] = set()
    peak = 0
    for place, (made, _) in enumerate(steps):
        alive |= made & size.keys()
        peak = max(peak, sum(size[value] for value in alive))
        alive -= {value for value in alive if last[value] == place}
    return peak


def _bytes(kind: onnx.TypeProto.Tensor) -> int:
    return (
        math.prod(d.dim_value for d in kind.shape.dim) * onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
    )


def updates_during_backpropagation(graph: Graph) -> int:
    """How many parameters have their new value before the last gradient of the network is there."""
    gradients = [place for place, node in enumerate(graph.nodes) if node.scope.startswith("Gradients/")]
    makers = {y: place for place, node in enumerate(graph.nodes) for y in node.outputs}
    return sum(makers[value] < gradients[-1] for p, value in graph.updates.items() if p.requires_grad)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_update_moves_up_to_its_gradient(network, optimizer):
    before, arrays = step_graph(network, optimizer)
    after = verify(schedule_updates(before))
    assert Counter(map(id, after.nodes)) == Counter(map(id, before.nodes))
    assert updates_during_backpropagation(before) == 0
    trained = sum(p.requires_grad for p in before.updates)
    assert updates_during_backpropagation(after) >= trained - 3  # those of the first layers come last
    assert waiting_gradients(before) == sum(p.size * p.dtype.size for p in before.updates if p.requires_grad)
    largest = max(p.size * p.dtype.size for p in before.updates if p.requires_grad)
    assert waiting_gradients(after) <= 1.1 * largest  # one at a time, and small ones that are made with it
    assert [a.tobytes() for a in results(after, *arrays)] == [a.tobytes() for a in results(before, *arrays)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_less_memory_is_alive_at_once(optimizer):
    """An update that stands at the end takes its gradient's product along, and with it all that the product reads."""
    layers = [layer for _ in range(6) for layer in (nn.Conv2d(16, 16, 3), nn.ReLU())]
    network = nn.SequentialCell(nn.Conv2d(1, 16, 3), *layers, nn.MaxPool2d(4, 4), nn.Flatten(), nn.Dense(256, 10))
    step = training_step(network, OPTIMIZERS[optimizer])
    images, labels = TensorType(dt.float32, (32, 1, 16, 16)), TensorType(dt.int32, (32,))
    traced = trace(step.construct, [images, labels], "step")
    early, late = (
        lower(optimize(traced, passes), ["image", "label"], ["loss"])
        for passes in (
            default_passes(Device()),
            [apply for apply in default_passes(Device()) if apply is not schedule_updates],
        )
    )
    assert live_peak(early) < 0.4 * live_peak(late)  # measured: 9.4 and 33 MB


def chain(length: int) -> Callable[[Value], Value]:
    """The only weight, and behind it a long way to the loss: no gradient is shared."""
    weight = Parameter(Tensor(np.eye(4, dtype=np.float32)), "weight")

    def step(x: Value) -> Value:
        y = weight * x
        for _ in range(length):
            y = ops.Tanh()(y)
        loss = ops.ReduceSum()(y)
        (gradient,) = gradients(loss, [weight])
        current().assign(weight, weight - gradient)
        return loss

    return step


def test_a_way_that_is_longer_than_the_stack_is_deep():
    before = trace(chain(sys.getrecursionlimit()), [SQUARE], "chain")
    after = verify(schedule_updates(before))
    assert set(map(id, after.nodes)) == set(map(id, before.nodes))


def test_values_that_others_need_stay_where_they_are():
    """What is returned, read by an operator outside, or assigned to two parameters is computed in its own place."""
    a, b = (Parameter(Tensor(np.eye(4, dtype=np.float32)), name) for name in "ab")

    def step(x: Value) -> tuple[Value, Value]:
        first = ops.Exp()(a * x)
        last = ops.Tanh()(ops.Exp()(x))
        moved = first + b
        current().assign(a, moved)
        current().assign(b, moved)
        return first, last

    before = trace(step, [SQUARE], "step")
    after = verify(schedule_updates(before))
    assert [n.op.name for n in before.nodes] == ["Mul", "Exp", "Exp", "Tanh", "Add"]
    assert [n.op.name for n in after.nodes] == ["Mul", "Exp", "Add", "Exp", "Tanh"]
    x = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    assert [v.tobytes() for v in results(after, x)] == [v.tobytes() for v in results(before, x)]


def test_a_graph_without_updates_is_left_alone():
    graph = trace(lambda x: ops.Tanh()(ops.Exp()(x)), [SQUARE], "net")
    assert schedule_updates(graph).nodes == graph.nodes

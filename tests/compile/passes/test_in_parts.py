"""Large batches in parts: the same numbers within rounding, part after part, only where values stay in the cache."""

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from operands import normal
from samples import SAMPLES
from training_steps import lenet, resnet, results, training_step

from runner import nn, ops
from runner.compile.passes import PASSES, default_passes, device_passes, optimize
from runner.compile.passes.in_parts import JoinBatch, SplitBatch, in_parts, in_parts_by
from runner.core.graph import Graph, verify
from runner.core.operators import infer
from runner.core.trace import trace
from runner.core.values import Value
from runner.device import Device, Tuning
from runner.observe.graph.listing import describe, parse, text
from runner.types import TensorType

MODULE = sys.modules[in_parts.__module__]
IMAGES = np.random.default_rng(0).standard_normal((16, 3, 24, 24)).astype(np.float32)
LABELS = np.arange(16, dtype=np.int32) % 10


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """A cache that a few images fill, so that small batches are large ones."""
    monkeypatch.setattr(MODULE, "CACHE_BYTES", 1 << 18)
    monkeypatch.setattr(MODULE, "LARGE_BYTES", 1 << 16)
    monkeypatch.setattr(MODULE, "MIN_IMAGES", 2)


class Branches(nn.Cell):
    """Convolutions with biases, both kinds of pools, and a smooth activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True, bias_init="normal")
        self.second = nn.Conv2d(8, 8, 3, stride=2, pad_mode="same", has_bias=True)
        self.largest, self.mean = nn.MaxPool2d(2, 2), nn.AvgPool2d(2, 2)
        self.head, self.flatten = nn.Dense(8 * 6 * 6, 10), nn.Flatten()

    def construct(self, x: Value) -> Value:
        x = ops.Tanh()(self.first(x))
        return self.head(self.flatten(self.largest(ops.ReLU()(self.second(x))) + self.mean(ops.ReLU()(self.second(x)))))


def step_graph(network: nn.Cell, *arrays: np.ndarray) -> Graph:
    return optimize(trace(training_step(network).construct, list(map(TensorType.of, arrays)), "step"), PASSES)


def kinds(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def check_equal(graph: Graph, divided: Graph, *arrays: np.ndarray) -> None:
    """Both graphs give the same results but for rounding."""
    for expected, result in zip(results(graph, *arrays), results(divided, *arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: lenet(16), lambda: (Branches(), (IMAGES, LABELS))], ids=["lenet", "branches"])
@pytest.mark.parametrize("placed", [False, True], ids=["plain", "layouts"])
def test_a_step_in_parts_computes_the_same(make: Callable[[], tuple[nn.Cell, tuple[np.ndarray, ...]]], placed: bool):
    network, arrays = make()
    graph = step_graph(network, *arrays)
    divided = verify(in_parts(graph))
    count = kinds(divided).count("Conv2DBackpropFilter") // kinds(graph).count("Conv2DBackpropFilter")
    assert count >= 2
    assert {node.name for node in graph.nodes} <= {node.name for node in divided.nodes}
    assert kinds(divided).count("ApplyMomentum") == kinds(graph).count("ApplyMomentum")
    passes = device_passes(Device())[1:] if placed else ()
    check_equal(optimize(graph, passes), optimize(divided, passes), *arrays)


def test_one_part_follows_the_other():
    network, arrays = lenet(16)
    divided = in_parts(step_graph(network, *arrays))
    places = [as_part(node.outputs[0]) for node in divided.nodes if node.op.name in ("Conv2D", "ReLU", "MaxPool")]
    convolutional = [place for place in places if place is not None]
    assert convolutional == sorted(convolutional)
    assert len(set(convolutional)) >= 2


def as_part(value: Value) -> int | None:
    name = str(getattr(value, "name", ""))
    return int(name.rpartition(".part")[2]) if ".part" in name else None


def test_what_is_returned_or_printed_is_whole():
    printed = ops.Print()

    def net(x: Value, w: Value) -> tuple[Value, Value]:
        y = ops.Conv2D(16, 3)(x, w)
        z = ops.ReLU()(y)
        printed(z)
        return ops.MaxPool(2, 2)(ops.Tanh()(ops.Tanh()(ops.Tanh()(z))))

    w = normal(16, 3, 3, 3)
    graph = optimize(trace(net, [TensorType.of(IMAGES), TensorType.of(w)], "net"), PASSES)
    divided = verify(in_parts(graph))
    assert kinds(divided).count("JoinBatch") == 2
    assert [y.shape for y in divided.results] == [y.shape for y in graph.results]
    assert [r.tobytes() for r in results(divided, IMAGES, w)] == [r.tobytes() for r in results(graph, IMAGES, w)]


def test_statistics_of_a_batch_are_not_divided():
    """Between two operators of the whole batch nothing would stay in the cache."""
    network, arrays = resnet(16)
    graph = step_graph(network, *arrays)
    assert in_parts(graph) is graph


def test_small_batches_stay_whole(monkeypatch):
    network, arrays = lenet(8)
    graph = step_graph(network, *arrays)
    monkeypatch.setattr(MODULE, "CACHE_BYTES", 4 << 20)
    assert in_parts(graph) is graph
    monkeypatch.setattr(MODULE, "CACHE_BYTES", 1 << 18)
    monkeypatch.setattr(MODULE, "MIN_IMAGES", 8)
    assert in_parts(graph) is graph
    monkeypatch.setattr(MODULE, "MIN_IMAGES", 3)  # 8 images have parts of 4
    assert "SplitBatch" in kinds(in_parts(graph))


def test_a_tuning_chooses_the_parts():
    network, arrays = lenet(16)
    graph = step_graph(network, *arrays)
    for images, count in ((8, 2), (4, 4), (16, 0), (5, 0)):
        found = [node.op for node in in_parts_by(Tuning(images=images))(graph).nodes if isinstance(node.op, SplitBatch)]
        assert {op.count for op in found} == ({count} if count else set())
    assert [p.__name__ for p in default_passes(Device(tuning=Tuning(placed=False)))] == [p.__name__ for p in PASSES]


@pytest.mark.parametrize("layout", [0, 1], ids=["plain", "last"])
def test_parts_are_split_and_joined_in_both_layouts(layout):
    x = normal(6, 2, 3)

    def net(x: Value) -> Value:
        joined: Value = JoinBatch()(*SplitBatch(3)(x))
        return joined

    graph = trace(net, [TensorType.of(x)], "net")
    placed = [replace(node, lowering=node.op.lowerings(*(v.type for v in node.inputs))[layout]) for node in graph.nodes]
    assert [node.op.name for node in placed] == ["SplitBatch", "JoinBatch"]
    assert np.array_equal(results(replace(graph, nodes=tuple(placed)), x)[0], x)
    assert np.array_equal(JoinBatch().kernel(*SplitBatch(3).kernel(x)), x)


def test_operators_that_say_so_compute_every_sample_separately():
    """Of the rows of the contract: the parts give what the whole batch gives."""
    divided = set()
    for sample in SAMPLES:
        op, arrays = sample.op, tuple(sample.arrays)
        types = tuple(map(TensorType.of, arrays))
        found = op.batched(types)
        if found is None or any(each and len(x) < 2 for x, each in zip(arrays, found.operands, strict=True)):
            continue
        divided.add(op.name)
        assert len(infer(op, types)) == 1
        length = next(len(x) for x, each in zip(arrays, found.operands, strict=True) if each)
        pieces = []
        for rows in (slice(0, 1), slice(1, length)):
            part = tuple(x[rows] if each else x for x, each in zip(arrays, found.operands, strict=True))
            pieces.append(np.asarray(found.resized(rows.stop - rows.start).kernel(*part)))
        whole = np.asarray(op.kernel(*arrays))
        made = pieces[0] + pieces[1] if found.is_sum else np.concatenate(pieces)
        np.testing.assert_allclose(made, whole, rtol=1e-4, atol=1e-5, err_msg=repr(op))
    assert divided >= {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MaxPoolGrad", "AvgPoolGrad", "BiasAdd"}


def test_parts_are_listed_one_by_one():
    """Every part is an operation of its own in IR files, under the full name of the operator."""
    network, arrays = lenet(16)
    divided = in_parts(step_graph(network, *arrays))
    listed = describe(divided)
    operations = listed.subgraphs[0].operations
    assert len({operation.number for operation in operations}) == len(divided.nodes)
    assert [operation.full_name for operation in operations] == [node.name for node in divided.nodes]
    assert parse(text(listed)) == listed
